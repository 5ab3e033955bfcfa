#include "conv1x1/conv1x1.hpp"

#include <algorithm>

#include "isa/choice.hpp"
#include "post_ops/parse.hpp"
#include "support/caches.hpp"
#include "support/errors.hpp"
#include "threads/openmp.hpp"
#include "threads/shares.hpp"

namespace stridewise {
namespace {

// Limit in bytes of the pixels of the source that a thread rereads for every pair of vectors, so
// that they stay in the second-level cache.
constexpr std::int64_t kBandBytes = 192 << 10;
// Number of pieces of each thread's share. Idle threads take pieces of others.
constexpr std::int64_t kPieces = 4;
// Limits in bytes of weights that stay in the second-level and in the first-level cache beside
// pixels.
constexpr std::int64_t kLightBytes = 192 << 10;
constexpr std::int64_t kPanelBytes = 16 << 10;
// Limit in bytes of weights that each thread multiplies by factors.
constexpr std::int64_t kScaledBytes = 512 << 10;
// Pixels with a multiple of so many channels lie in a few sets of the first-level cache. A set has
// as many lines as the cache has pages, because its index is the part of an address within a page.
constexpr std::int64_t kColliding = 512;
constexpr std::int64_t kPageBytes = 4096;

// Fetches the lines of results while they are computed: rows of pixels that lie far from each other
// are not fetched ahead by the processor.
void prefetch_results(const FinishPixels &work) {
    const auto *to = static_cast<const float *>(work.result);
    for (std::int64_t pixel = 0; pixel < work.count; ++pixel, to += work.pixel) {
        __builtin_prefetch(to, 1);
        __builtin_prefetch(to + work.half, 1);
    }
}

Conv1x1Options checked(Conv1x1Options o) {
    const auto known = kernel_isas(o.lanes);
    if (o.isa.empty()) o.isa = known.front();
    require(std::find(known.begin(), known.end(), o.isa) != known.end(),
            "conv1x1: there are no " + o.isa + " kernels of " + std::to_string(o.lanes) +
                " lanes here");
    require(std::min({o.images, o.channels, o.height, o.width, o.outputs}) >= 1,
            "conv1x1: expected positive extents");
    require(o.groups >= 1 && o.channels % o.groups == 0 && o.outputs % o.groups == 0,
            "conv1x1: expected groups that divide the channels");
    require(o.groups == 1 || o.channels_last ||
                (o.channels / o.groups % o.lanes == 0 && o.outputs / o.groups % o.lanes == 0),
            "conv1x1: expected groups of whole blocks");
    return o;
}

const Conv1x1Kernels &find_kernels(const Conv1x1Options &options) {
#ifdef STRIDEWISE_AVX2
    if (options.isa == "avx512") return avx512_conv1x1_kernels();
    if (options.isa == "avx2") return avx2_conv1x1_kernels();
#endif
    return portable_conv1x1_kernels(options.lanes);
}

}  // namespace

struct Conv1x1::Call {
    const float *source;
    const float *weights;
    const float *bias;     // of all groups, zero-padded to whole pairs of vectors
    const float *factors;  // of all images and groups, padded to whole vectors
    float *result;
    const Stage *stages;
};

Conv1x1::Conv1x1(Conv1x1Options options, const PostOps &post_ops, std::size_t between)
    : Kernel(options.threads, {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST}),
      options_(checked(std::move(options))),
      kernels_(&find_kernels(options_)) {
    const auto &o = options_;
    const std::int64_t lanes = kernels_->lanes;
    pixels_ = o.height * o.width;
    channels_ = o.channels / o.groups;
    outputs_ = o.outputs / o.groups;
    chunks_ = ceil_div(channels_, lanes);
    pairs_ = ceil_div(outputs_, 2 * lanes);
    source_ = strides_of(o.channels_last, lanes, o.channels, o.height, o.width);
    result_ = strides_of(o.channels_last, lanes, o.outputs, o.height, o.width);
    if (o.has_bias) args_.push_back(DNNL_ARG_BIAS);
    if (o.has_factor) args_.push_back(kConv1x1Factor);
    plan_stages(post_ops, between);
    plan_items();
}

void Conv1x1::plan_stages(const PostOps &post_ops, std::size_t between) {
    require(between <= post_ops.size(), "conv1x1: expected post-ops of the source");
    for (std::size_t index = 0; index < post_ops.size(); ++index) {
        const Stage stage = stage_of(post_ops[index]);
        if (index < between) {
            require(stage.op < StageOp::sum, "conv1x1: post-ops of the source have no operands");
            before_.push_back(stage);
            continue;
        }
        stages_.push_back(stage);
        operands_.push_back(stage.op < StageOp::sum    ? -1
                            : stage.op == StageOp::sum ? 2
                                                       : static_cast<int>(args_.size()));
        if (stage.op > StageOp::sum) args_.push_back(post_op_arg(static_cast<int>(index)));
    }
}

// Uses the fewest bands whose pixels fit the cache. Then splits what is read again by more threads
// at the least cost, until all threads have work: pixels if there are more of them than weights.
void Conv1x1::plan_items() {
    const auto &o = options_;
    const std::int64_t lanes = kernels_->lanes, rows = kernels_->row_count;
    const auto nbytes_of = [](std::int64_t count) {
        return count * static_cast<std::int64_t>(sizeof(float));
    };
    collides_ =
        o.channels_last && o.channels % kColliding == 0 && rows > caches().first / kPageBytes;
    scales_weights_ =
        o.has_factor && !collides_ && before_.empty() && pairs_ * 2 * lanes <= pixels_;
    is_light_ = nbytes_of(o.outputs * channels_) <= kLightBytes && !scales_weights_;
    // Results of a pixel are written one group after the other.
    const std::int64_t written = is_light_ && o.groups > 1 ? o.outputs : 0;
    const std::int64_t nbytes = nbytes_of(chunks_ * lanes + written);
    const std::int64_t groups = ceil_div(pixels_, rows), cells = o.images * o.groups;
    const std::int64_t wanted = o.threads == 1 ? 1 : kPieces * o.threads;
    bands_ = ceil_div(groups, std::max<std::int64_t>(kBandBytes / (nbytes * rows), 1));
    splits_ = 1;
    const auto split_pixels = [&] {
        const std::int64_t more = ceil_div(wanted, cells * splits_);
        bands_ = std::max(bands_, std::min(more, ceil_div(groups, 2)));
    };
    if (pixels_ >= outputs_) split_pixels();
    splits_ = std::clamp<std::int64_t>(ceil_div(wanted, cells * bands_), 1, pairs_);
    split_pixels();
    panel_ = channels_ * 2 * lanes;
    const std::int64_t most = ceil_div(pairs_, splits_) * panel_;
    scales_weights_ = scales_weights_ && nbytes_of(most) <= kScaledBytes;
    scaled_count_ = scales_weights_ ? most : 0;
    gathered_count_ = gathers() ? ceil_div(pixels_, bands_) * chunks_ * lanes : 0;
    thread_count_ = whole_lines(scaled_count_) + whole_lines(gathered_count_) + rows * 2 * lanes;
}

// Items of the same outputs are neighbors, so that a thread reads few weights; those of the same
// pixels if all weights stay in a cache.
Conv1x1::Item Conv1x1::item(std::int64_t index) const {
    const std::int64_t cells = bands_ * options_.images, outputs = splits_ * options_.groups;
    const std::int64_t cell = is_light_ ? index / outputs : index % cells;
    const std::int64_t output = is_light_ ? index % outputs : index / cells;
    const std::int64_t band = cell % bands_, split = output % splits_;
    return {cell / bands_,
            output / splits_,
            pixels_ * band / bands_,
            pixels_ * (band + 1) / bands_,
            pairs_ * split / splits_,
            pairs_ * (split + 1) / splits_};
}

std::size_t Conv1x1::scratchpad_nbytes() const {
    const auto &o = options_;
    const std::int64_t lanes = kernels_->lanes;
    const std::int64_t shared = whole_lines(o.groups * pairs_ * 2 * lanes) +
                                whole_lines(o.images * o.groups * chunks_ * lanes);
    return static_cast<std::size_t>(shared + o.threads * thread_count_) * sizeof(float);
}

MemoryDesc Conv1x1::arg_desc(int arg) const {
    const auto &o = options_;
    switch (arg) {
        case DNNL_ARG_SRC:
            return image_desc({o.images, o.channels, o.height, o.width}, false, o.channels_last,
                              o.lanes);
        case DNNL_ARG_WEIGHTS:
            if (o.groups > 1) {
                return MemoryDesc({o.groups, outputs_, channels_, 1, 1}, "f32",
                                  o.lanes == 16 ? "aBdec32b" : "aBdec16b");
            }
            return MemoryDesc({o.outputs, o.channels, 1, 1}, "f32",
                              o.lanes == 16 ? "Acdb32a" : "Acdb16a");
        case DNNL_ARG_BIAS:
            return MemoryDesc({o.outputs}, "f32", "a");
        case kConv1x1Factor:
            return image_desc({o.images, o.channels, 1, 1}, false, o.channels_last, o.lanes);
        case DNNL_ARG_SCRATCHPAD:
            return MemoryDesc({static_cast<std::int64_t>(scratchpad_nbytes() / sizeof(float))},
                              "f32", "a");
        default:
            require(takes(arg), "conv1x1: there is no argument " + std::to_string(arg));
            return image_desc({o.images, o.outputs, o.height, o.width}, false, o.channels_last,
                              o.lanes);
    }
}

// The first pixel of an item.
const float *Conv1x1::source_of(const Call &call, const Item &item) const {
    const std::int64_t lanes = kernels_->lanes;
    const std::int64_t channel = item.group * channels_;
    return call.source + item.image * source_.image + item.pixel * source_.pixel +
           (options_.channels_last ? channel : channel / lanes * source_.chunk);
}

// Copies the source pixels of an item, with their factors, into the order of products:
// [chunk][pixel][lane].
void Conv1x1::gather(const Call &call, const Item &item, float *gathered) const {
    const auto &o = options_;
    const std::int64_t lanes = kernels_->lanes, count = item.pixel_end - item.pixel;
    const float *from = source_of(call, item);
    const float *factors = call.factors + (item.image * o.groups + item.group) * chunks_ * lanes;
    ScaleVectors work{};
    work.stages = before_.data();
    work.stage_count = static_cast<int>(before_.size());
    if (o.channels_last) {
        work.from_step = work.factor_step = lanes;
        work.to_step = count * lanes;
        work.factors = factors;
        work.count = channels_ / lanes;
        work.tail = channels_ % lanes;
        for (std::int64_t pixel = 0; pixel < count; ++pixel) {
            work.from = from + pixel * source_.pixel;
            work.to = gathered + pixel * lanes;
            kernels_->scale(work);
        }
        return;
    }
    work.from_step = work.to_step = lanes;
    work.count = count;
    for (std::int64_t chunk = 0; chunk < chunks_; ++chunk) {
        work.from = from + chunk * source_.chunk;
        work.factors = factors + chunk * lanes;
        work.to = gathered + chunk * count * lanes;
        kernels_->scale(work);
    }
}

// Multiplies the weights of an item by the factors of its image.
void Conv1x1::scale_weights(const Call &call, const Item &item, float *scaled) const {
    const std::int64_t wide = 2 * kernels_->lanes, cell = item.image * options_.groups + item.group;
    const float *factors = call.factors + cell * chunks_ * kernels_->lanes;
    const float *weights = call.weights + (item.group * pairs_ + item.pair) * panel_;
    for (std::int64_t pair = item.pair; pair < item.pair_end; ++pair) {
        for (std::int64_t channel = 0; channel < channels_; ++channel) {
            for (std::int64_t i = 0; i < wide; ++i) scaled[i] = weights[i] * factors[channel];
            scaled += wide;
            weights += wide;
        }
    }
}

// `weights` are those of the item.
void Conv1x1::compute(const Call &call, const Item &item, const float *weights,
                      float *scratch) const {
    const auto &o = options_;
    const std::int64_t lanes = kernels_->lanes, count = item.pixel_end - item.pixel;
    const std::int64_t output = item.group * outputs_;
    const std::int64_t first = item.image * result_.image + item.pixel * result_.pixel +
                               (o.channels_last ? output : output / lanes * result_.chunk);
    float *sums = scratch + whole_lines(gathered_count_);
    const float *source = source_of(call, item);
    ExpandProduct product{};
    product.chunk_stride = gathers() ? count * lanes : source_.chunk;
    product.pixel_stride = gathers() ? lanes : source_.pixel;
    product.channels = channels_;
    if (gathers()) {
        gather(call, item, scratch);
        source = scratch;
    }
    FinishPixels work{};
    work.sums = sums;
    work.pixel = result_.pixel;
    work.half = result_.chunk;
    work.blocked = !o.channels_last;
    // The first stage is applied in registers if it is a clip, which is free there.
    product.clips = !stages_.empty() && stages_.front().op == StageOp::clip;
    if (product.clips) {
        product.low = stages_.front().alpha;
        product.high = stages_.front().beta;
    }
    work.stages = call.stages + (product.clips ? 1 : 0);
    work.stage_count = static_cast<int>(stages_.size()) - (product.clips ? 1 : 0);
    // Results of all outputs of a pixel are neighbors with channels last. If all weights of the
    // item stay in the nearest cache, they are written one after the other.
    const std::int64_t pairs = item.pair_end - item.pair;
    const bool by_pixel = pairs * panel_ * static_cast<std::int64_t>(sizeof(float)) <= kPanelBytes;
    const std::int64_t groups = ceil_div(count, kernels_->row_count);
    for (std::int64_t index = 0; index < groups * pairs; ++index) {
        const std::int64_t group = by_pixel ? index / pairs : index % groups;
        const std::int64_t pair = item.pair + (by_pixel ? index % pairs : index / groups);
        product.weights = weights + (pair - item.pair) * panel_;
        product.bias = call.bias + (item.group * pairs_ + pair) * 2 * lanes;
        work.lanes = std::min(outputs_ - pair * 2 * lanes, 2 * lanes);
        const std::int64_t begin = count * group / groups;
        product.rows = work.count = count * (group + 1) / groups - begin;
        // Pixels come from memory when they are read for the first time.
        product.fetches = pair == item.pair && !gathers();
        product.pixels = source + begin * product.pixel_stride;
        work.offset = first + 2 * pair * result_.chunk + begin * result_.pixel;
        work.result = call.result + work.offset;
        // Products store their results if these are whole vectors without further stages.
        const bool stores = work.stage_count == 0 && work.lanes % lanes == 0;
        product.results = stores ? call.result + work.offset : sums;
        product.result_pixel = stores ? result_.pixel : 2 * lanes;
        product.result_half = stores ? result_.chunk : lanes;
        prefetch_results(work);
        kernels_->multiply[product.pixel_stride != lanes][work.lanes > lanes](product);
        if (!stores) kernels_->finish(work);
    }
}

void Conv1x1::execute(const std::vector<void *> &data, void *scratchpad) const {
    const auto &o = options_;
    const std::int64_t lanes = kernels_->lanes;
    const std::int64_t wide = chunks_ * lanes, pairs = pairs_ * 2 * lanes;
    auto *bias = static_cast<float *>(scratchpad);
    float *factors = bias + whole_lines(o.groups * pairs);
    float *scratch = factors + whole_lines(o.images * o.groups * wide);
    std::fill(bias, factors, 0.0F);
    std::fill(factors, scratch, 1.0F);
    for (std::int64_t group = 0; group < o.groups; ++group) {
        if (o.has_bias) {
            const auto *given = static_cast<const float *>(data[3]) + group * outputs_;
            std::copy_n(given, outputs_, bias + group * pairs);
        }
        if (!o.has_factor) continue;
        const auto *given =
            static_cast<const float *>(data[o.has_bias ? 4 : 3]) + group * channels_;
        const std::int64_t stride = o.channels_last ? o.channels : o.groups * wide;
        for (std::int64_t image = 0; image < o.images; ++image) {
            std::copy_n(given + image * stride, channels_,
                        factors + (image * o.groups + group) * wide);
        }
    }
    std::vector<Stage> stages = stages_;
    for (std::size_t index = 0; index < stages.size(); ++index) {
        if (operands_[index] >= 0) {
            stages[index].operand = data[static_cast<std::size_t>(operands_[index])];
        }
    }
    const Call call{static_cast<const float *>(data[0]),
                    static_cast<const float *>(data[1]),
                    bias,
                    factors,
                    static_cast<float *>(data[2]),
                    stages.data()};
    Shares items(item_count(), o.threads);
    in_parallel(o.threads, [&](int part, int) {
        float *scaled = scratch + part * thread_count_, *own = scaled + whole_lines(scaled_count_);
        Item last{-1, 0, 0, 0, 0, 0};
        for (std::int64_t index; (index = items.next(part)) >= 0;) {
            const Item next = item(index);
            const bool is_same =
                next.image == last.image && next.group == last.group && next.pair == last.pair;
            if (scales_weights_ && !is_same) scale_weights(call, next, scaled);
            last = next;
            const float *weights = call.weights + (next.group * pairs_ + next.pair) * panel_;
            compute(call, next, scales_weights_ ? scaled : weights, own);
        }
    });
}

}  // namespace stridewise
