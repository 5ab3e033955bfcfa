#include "conv1x1/conv1x1.hpp"

#include <algorithm>
#include <numeric>

#include "isa/choice.hpp"
#include "post_ops/parse.hpp"
#include "support/caches.hpp"
#include "support/errors.hpp"
#include "threads/regions.hpp"
#include "threads/shares.hpp"

namespace stridewise {
namespace {

// Number of pieces of each thread's share. Idle threads take pieces of others.
constexpr std::int64_t kPieces = 4;
// Limit in bytes of weights that each thread multiplies by factors.
constexpr std::int64_t kScaledBytes = 512 << 10;
// The index of a set of the first-level cache is the part of an address within a page, so a set has
// as many lines as the cache has pages.
constexpr std::int64_t kPageBytes = 4096;
// Lines of a set beside those of the pixels of a product.
constexpr std::int64_t kOtherLines = 2;

Conv1x1Options checked(Conv1x1Options o) {
    const auto known = kernel_isas(o.lanes, o.halves.source);
    if (o.isa.empty()) o.isa = known.front();
    require(std::find(known.begin(), known.end(), o.isa) != known.end(),
            "conv1x1: there are no " + o.isa + " kernels of " + std::to_string(o.lanes) +
                " lanes here");
    require(std::min({o.images, o.channels, o.height, o.width, o.outputs}) >= 1,
            "conv1x1: expected positive extents");
    require(std::min(o.down, o.across) >= 1, "conv1x1: expected positive strides");
    require(o.groups >= 1 && o.channels % o.groups == 0 && o.outputs % o.groups == 0,
            "conv1x1: expected groups that divide the channels");
    require(o.halves.source || !o.halves.result,
            "conv1x1: expected float32 results of float32 channels");
    require(!o.halves.source ||
                (o.channels_last && o.channels % 2 == 0 && o.groups == 1 && !o.has_factor),
            "conv1x1: expected pairs of bfloat16 channels, last, without groups and factors");
    require(o.groups == 1 || o.channels_last ||
                (o.channels / o.groups % o.lanes == 0 && o.outputs / o.groups % o.lanes == 0),
            "conv1x1: expected groups of whole blocks");
    return o;
}

const Conv1x1Kernels &find_kernels(const Conv1x1Options &options) {
    const HalfSides halves = options.halves;
#ifdef STRIDEWISE_AVX2
    if (options.isa == "avx512_bf16") return avx512_bf16_conv1x1_pair_kernels(halves.result);
    if (!halves.source && options.isa == "avx512") return avx512_conv1x1_kernels();
    if (!halves.source && options.isa == "avx2") return avx2_conv1x1_kernels();
#endif
    return halves.source ? portable_conv1x1_pair_kernels(options.lanes, halves.result)
                         : portable_conv1x1_kernels(options.lanes);
}

}  // namespace

struct Conv1x1::Call {
    const float *source;
    const float *weights;
    const float *bias;     // of all groups, zero-padded to whole pairs of vectors
    const float *factors;  // of all images and groups, padded to whole vectors
    std::byte *result;
    const std::vector<Stage> *stages;
};

Conv1x1::Conv1x1(Conv1x1Options options, const PostOps &post_ops, std::size_t between)
    : Kernel(options.threads, {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST}),
      options_(checked(std::move(options))),
      kernels_(&find_kernels(options_)) {
    const auto &o = options_;
    const std::int64_t lanes = kernels_->lanes;
    height_ = ceil_div(o.height, o.down);
    width_ = ceil_div(o.width, o.across);
    pixels_ = height_ * width_;
    channels_ = o.channels / o.groups / channels_each();
    outputs_ = o.outputs / o.groups;
    chunks_ = ceil_div(channels_, lanes);
    pairs_ = ceil_div(outputs_, 2 * lanes);
    source_ = strides_of(o.channels_last, lanes, o.channels / channels_each(), o.height, o.width);
    result_ = strides_of(o.channels_last, lanes, o.outputs, height_, width_);
    if (o.has_bias) args_.push_back(DNNL_ARG_BIAS);
    if (o.has_factor) args_.push_back(kConv1x1Factor);
    plan_stages(post_ops, between);
    plan_items();
}

void Conv1x1::plan_stages(const PostOps &post_ops, std::size_t between) {
    require(between <= post_ops.size(), "conv1x1: expected post-ops of the source");
    require(between == 0 || !options_.halves.source,
            "conv1x1: expected no post-ops of a bfloat16 source");
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

// Returns the pixels of a product. All read their lines of a chunk again for each of its channels.
// If a power of two lies between them, these lines are in a few sets of the first-level cache.
std::int64_t Conv1x1::product_rows() const {
    const std::int64_t most = kernels_->row_count;
    const std::int64_t nbytes = source_.pixel * static_cast<std::int64_t>(sizeof(float));
    const std::int64_t sets = kPageBytes / std::gcd(nbytes, kPageBytes);
    const std::int64_t lines = caches().first / kPageBytes - kOtherLines;
    return std::clamp<std::int64_t>(lines * sets, 1, most);
}

// Divides the pixels among the threads, as other kernels do, so that a thread reads most of what it
// has written itself. Bands of a thread's pixels stay in the cache. Then divides the outputs, and
// pixels once more if these are few, until idle threads find work.
void Conv1x1::plan_items() {
    const auto &o = options_;
    const std::int64_t lanes = kernels_->lanes;
    const auto nbytes_of = [](std::int64_t count) {
        return count * static_cast<std::int64_t>(sizeof(float));
    };
    const std::int64_t rows = product_rows();
    products_.emplace(*kernels_, ProductRuns{channels_, {0}}, outputs_, rows, result_,
                      !o.channels_last, o.halves);
    scales_weights_ =
        o.has_factor && before_.empty() && !is_strided() && pairs_ * 2 * lanes <= pixels_;
    // Results of a pixel are written one group after the other.
    const std::int64_t written = o.groups > 1 ? o.outputs : 0;
    const std::int64_t nbytes = nbytes_of(chunks_ * lanes + written);
    const std::int64_t groups = ceil_div(pixels_, rows), cells = o.images * o.groups;
    const std::int64_t wanted = o.threads == 1 ? 1 : kPieces * o.threads;
    const std::int64_t band = caches().second / 2 - Products::kDepthBytes;
    bands_ = ceil_div(groups, std::max<std::int64_t>(band / (nbytes * rows), 1));
    const auto split_pixels = [&](std::int64_t count) {
        bands_ = std::max(bands_, std::min(count, ceil_div(groups, 2)));
    };
    split_pixels(ceil_div(o.threads, o.images));
    splits_ = std::clamp<std::int64_t>(ceil_div(wanted, cells * bands_), 1, pairs_);
    split_pixels(ceil_div(wanted, cells * splits_));
    const std::int64_t most = ceil_div(pairs_, splits_) * products_->panel();
    scales_weights_ = scales_weights_ && nbytes_of(most) <= kScaledBytes;
    scaled_count_ = scales_weights_ ? most : 0;
    gathered_count_ = gathers() ? ceil_div(pixels_, bands_) * chunks_ * lanes : 0;
    const std::int64_t sums = products_->sum_count(ceil_div(pixels_, bands_));
    thread_count_ = apart(whole_lines(scaled_count_) + whole_lines(gathered_count_) + sums);
}

// Items of the same pixels are neighbors.
Conv1x1::Item Conv1x1::item(std::int64_t index) const {
    const std::int64_t outputs = splits_ * options_.groups;
    const std::int64_t cell = index / outputs, output = index % outputs;
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
    const std::int64_t shared =
        whole_lines(o.groups * pairs_ * 2 * lanes) + apart(o.images * o.groups * chunks_ * lanes);
    return static_cast<std::size_t>(shared + o.threads * thread_count_) * sizeof(float);
}

MemoryDesc Conv1x1::arg_desc(int arg) const {
    const auto &o = options_;
    switch (arg) {
        case DNNL_ARG_SRC:
            return image_desc({o.images, o.channels, o.height, o.width}, o.halves.source,
                              o.channels_last, o.lanes);
        case DNNL_ARG_WEIGHTS:
            if (o.groups > 1) {
                return MemoryDesc({o.groups, outputs_, channels_, 1, 1}, "f32",
                                  o.lanes == 16 ? "aBdec32b" : "aBdec16b");
            }
            if (o.halves.source) {
                return MemoryDesc({o.outputs, o.channels, 1, 1}, "bf16",
                                  o.lanes == 16 ? "AcdB32a2b" : "AcdB16a2b");
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
            return image_desc({o.images, o.outputs, height_, width_}, o.halves.result,
                              o.channels_last, o.lanes);
    }
}

// Elements from the first pixel of the source to the one of a pixel of the result.
std::int64_t Conv1x1::source_offset(std::int64_t pixel) const {
    if (!is_strided()) return pixel * source_.pixel;
    return pixel / width_ * options_.down * source_.row +
           pixel % width_ * options_.across * source_.pixel;
}

// The first pixel of an item.
const float *Conv1x1::source_of(const Call &call, const Item &item) const {
    const std::int64_t lanes = kernels_->lanes;
    const std::int64_t channel = item.group * channels_;
    return call.source + item.image * source_.image + source_offset(item.pixel) +
           (options_.channels_last ? channel : channel / lanes * source_.chunk);
}

// Copies the source pixels of an item, with their factors, into the order of products:
// [chunk][pixel][lane], or [pixel][channel] of bfloat16.
void Conv1x1::gather(const Call &call, const Item &item, float *gathered) const {
    const auto &o = options_;
    const std::int64_t lanes = kernels_->lanes, count = item.pixel_end - item.pixel;
    const float *from = source_of(call, item);
    const float *factors = call.factors + (item.image * o.groups + item.group) * chunks_ * lanes;
    ScaleVectors work{};
    work.stages = before_.data();
    work.stage_count = static_cast<int>(before_.size());
    const std::int64_t first = source_offset(item.pixel);
    if (o.halves.source) {
        for (std::int64_t pixel = 0; pixel < count; ++pixel) {
            std::copy_n(from + source_offset(item.pixel + pixel) - first, channels_,
                        gathered + pixel * channels_);
        }
        return;
    }
    if (o.channels_last) {
        work.from_step = work.factor_step = lanes;
        work.to_step = count * lanes;
        work.factors = factors;
        work.count = channels_ / lanes;
        work.tail = channels_ % lanes;
        for (std::int64_t pixel = 0; pixel < count; ++pixel) {
            work.from = from + source_offset(item.pixel + pixel) - first;
            work.to = gathered + pixel * lanes;
            kernels_->scale(work);
        }
        return;
    }
    work.from_step = o.across * lanes;
    work.to_step = lanes;
    for (std::int64_t chunk = 0; chunk < chunks_; ++chunk) {
        work.factors = factors + chunk * lanes;
        // Pixels of a row are at equal distances.
        for (std::int64_t pixel = 0; pixel < count; pixel += work.count) {
            const std::int64_t at = item.pixel + pixel, left = count - pixel;
            work.count = is_strided() ? std::min(width_ - at % width_, left) : left;
            work.from = from + chunk * source_.chunk + source_offset(at) - first;
            work.to = gathered + (chunk * count + pixel) * lanes;
            kernels_->scale(work);
        }
    }
}

// Multiplies the weights of an item by the factors of its image.
void Conv1x1::scale_weights(const Call &call, const Item &item, float *scaled) const {
    const std::int64_t wide = 2 * kernels_->lanes, cell = item.image * options_.groups + item.group;
    const float *factors = call.factors + cell * chunks_ * kernels_->lanes;
    const float *weights = call.weights + (item.group * pairs_ + item.pair) * products_->panel();
    for (std::int64_t pair = item.pair; pair < item.pair_end; ++pair) {
        for (std::int64_t channel = 0; channel < channels_; ++channel) {
            for (std::int64_t i = 0; i < wide; ++i) scaled[i] = weights[i] * factors[channel];
            scaled += wide;
            weights += wide;
        }
    }
}

// `weights` are those of the item. `is_gathered` if its pixels have been copied already.
void Conv1x1::compute(const Call &call, const Item &item, const float *weights, bool is_gathered,
                      float *scratch) const {
    const std::int64_t lanes = kernels_->lanes, count = item.pixel_end - item.pixel;
    const std::int64_t output = item.group * outputs_;
    const bool is_packed = gathers() && !options_.halves.source;
    if (gathers() && !is_gathered) gather(call, item, scratch);
    const std::int64_t last = scales_weights_ ? item.pair_end : pairs_;
    ProductTile tile{};
    tile.source = gathers() ? scratch : source_of(call, item);
    tile.source_pixel = is_packed ? lanes : gathers() ? channels_ : source_.pixel;
    tile.source_chunk = is_packed ? count * lanes : source_.chunk;
    tile.fetches = !gathers();
    tile.rows = 1;
    tile.columns = count;
    tile.weights = weights;
    tile.weights_end = weights + (last - item.pair) * products_->panel();
    tile.bias = call.bias + (item.group * pairs_ + item.pair) * 2 * lanes;
    tile.result = item.image * result_.image + item.pixel * result_.pixel +
                  (options_.channels_last ? output : output / lanes * result_.chunk);
    tile.pair = item.pair;
    tile.pair_end = item.pair_end;
    tile.sums = scratch + whole_lines(gathered_count_);
    products_->run(tile, *call.stages, call.result);
}

void Conv1x1::execute(const std::vector<void *> &data, void *scratchpad) const {
    const auto &o = options_;
    const std::int64_t lanes = kernels_->lanes;
    const std::int64_t wide = chunks_ * lanes, pairs = pairs_ * 2 * lanes;
    auto *bias = static_cast<float *>(scratchpad);
    float *factors = bias + whole_lines(o.groups * pairs);
    float *scratch = factors + apart(o.images * o.groups * wide);
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
                    static_cast<std::byte *>(data[2]),
                    &stages};
    Shares items(item_count(), o.threads);
    in_parallel(o.threads, [&](int part, int) {
        float *scaled = scratch + part * thread_count_, *own = scaled + whole_lines(scaled_count_);
        Item last{-1, 0, 0, 0, 0, 0};
        for (std::int64_t index; (index = items.next(part)) >= 0;) {
            const Item next = item(index);
            const bool is_same =
                next.image == last.image && next.group == last.group && next.pair == last.pair;
            if (scales_weights_ && !is_same) scale_weights(call, next, scaled);
            const bool is_gathered =
                next.image == last.image && next.group == last.group && next.pixel == last.pixel;
            last = next;
            const float *weights =
                call.weights + (next.group * pairs_ + next.pair) * products_->panel();
            compute(call, next, scales_weights_ ? scaled : weights, is_gathered, own);
        }
    });
}

}  // namespace stridewise
