#include "conv1x1/conv1x1.hpp"

#include <algorithm>

#include "post_ops/parse.hpp"
#include "support/errors.hpp"
#include "threads/openmp.hpp"
#include "threads/shares.hpp"
#include "winograd/winograd.hpp"

namespace stridewise {
namespace {

// Limit in bytes of the pixels of the source that a thread rereads for every pair of vectors, so
// that they stay in the second-level cache.
constexpr std::int64_t kBandBytes = 192 << 10;
// Number of pieces of each thread's share. Idle threads take pieces of others.
constexpr std::int64_t kPieces = 4;
constexpr std::int64_t kLine = 64 / sizeof(float);
// oneDNN's block of input channels in weights.
constexpr std::int64_t kInputBlock = 16;

std::int64_t whole_lines(std::int64_t count) {
    return ceil_div(count, kLine) * kLine;
}

Conv1x1Options checked(Conv1x1Options o) {
    const auto known = winograd_isas(o.lanes);
    if (o.isa.empty()) o.isa = known.front();
    require(std::find(known.begin(), known.end(), o.isa) != known.end(),
            "conv1x1: there are no " + o.isa + " kernels of " + std::to_string(o.lanes) +
                " lanes here");
    require(std::min({o.images, o.channels, o.height, o.width, o.outputs}) >= 1,
            "conv1x1: expected positive extents");
    require(o.threads >= 1, "threads: expected at least 1, got " + std::to_string(o.threads));
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
    const float *bias;     // zero-padded to whole pairs of vectors
    const float *factors;  // of all images, padded to whole vectors
    float *result;
    const Stage *stages;
};

Conv1x1::Conv1x1(Conv1x1Options options, const PostOps &post_ops, std::size_t between)
    : options_(checked(std::move(options))), kernels_(&find_kernels(options_)) {
    const auto &o = options_;
    const std::int64_t lanes = kernels_->lanes;
    pixels_ = o.height * o.width;
    chunks_ = ceil_div(o.channels, lanes);
    pairs_ = ceil_div(o.outputs, 2 * lanes);
    source_ = strides_of(o.channels_last, lanes, o.channels, o.height, o.width);
    result_ = strides_of(o.channels_last, lanes, o.outputs, o.height, o.width);
    args_ = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST};
    if (o.has_bias) args_.push_back(DNNL_ARG_BIAS);
    if (o.has_factor) args_.push_back(kConv1x1Factor);
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
    plan_items();
}

// Uses the fewest bands whose pixels fit the cache. Then splits what is read again by more threads
// at the least cost, until all threads have work: pixels if there are more of them than weights.
void Conv1x1::plan_items() {
    const auto &o = options_;
    const std::int64_t lanes = kernels_->lanes, rows = kernels_->row_count;
    const std::int64_t nbytes = chunks_ * lanes * static_cast<std::int64_t>(sizeof(float));
    const std::int64_t groups = ceil_div(pixels_, rows);
    const std::int64_t wanted = o.threads == 1 ? 1 : kPieces * o.threads;
    bands_ = ceil_div(groups, std::max<std::int64_t>(kBandBytes / (nbytes * rows), 1));
    splits_ = 1;
    const auto split_pixels = [&] {
        const std::int64_t more = ceil_div(wanted, o.images * splits_);
        bands_ = std::max(bands_, std::min(more, ceil_div(groups, 2)));
    };
    if (pixels_ >= o.outputs) split_pixels();
    splits_ = std::clamp<std::int64_t>(ceil_div(wanted, o.images * bands_), 1, pairs_);
    split_pixels();
    gathered_count_ = gathers() ? ceil_div(pixels_, bands_) * chunks_ * lanes : 0;
    thread_count_ = whole_lines(gathered_count_) + rows * 2 * lanes;
}

// Items of the same outputs are neighbors, so that a thread reads few weights.
Conv1x1::Item Conv1x1::item(std::int64_t index) const {
    const std::int64_t band = index % bands_, image = index / bands_ % options_.images;
    const std::int64_t split = index / (bands_ * options_.images);
    return {image, pixels_ * band / bands_, pixels_ * (band + 1) / bands_, pairs_ * split / splits_,
            pairs_ * (split + 1) / splits_};
}

std::size_t Conv1x1::scratchpad_nbytes() const {
    const auto &o = options_;
    const std::int64_t lanes = kernels_->lanes;
    const std::int64_t shared =
        whole_lines(pairs_ * 2 * lanes) + whole_lines(o.images * chunks_ * lanes);
    return static_cast<std::size_t>(shared + o.threads * thread_count_) * sizeof(float);
}

MemoryDesc Conv1x1::arg_desc(int arg) const {
    const auto &o = options_;
    switch (arg) {
        case DNNL_ARG_SRC:
            return image_desc({o.images, o.channels, o.height, o.width}, false, o.channels_last,
                              o.lanes);
        case DNNL_ARG_WEIGHTS:
            return MemoryDesc({o.outputs, o.channels, 1, 1}, "f32",
                              o.lanes == 16 ? "ABcd16b32a" : "ABcd16b16a");
        case DNNL_ARG_BIAS:
            return MemoryDesc({o.outputs}, "f32", "a");
        case kConv1x1Factor:
            return image_desc({o.images, o.channels, 1, 1}, false, o.channels_last, o.lanes);
        case DNNL_ARG_SCRATCHPAD:
            return MemoryDesc({static_cast<std::int64_t>(scratchpad_nbytes() / sizeof(float))},
                              "f32", "a");
        default:
            require(std::find(args_.begin(), args_.end(), arg) != args_.end(),
                    "conv1x1: there is no argument " + std::to_string(arg));
            return image_desc({o.images, o.outputs, o.height, o.width}, false, o.channels_last,
                              o.lanes);
    }
}

// Copies the source pixels of an item, with their factors, into the order of products:
// [chunk][pixel][lane].
void Conv1x1::gather(const Call &call, const Item &item, float *gathered) const {
    const auto &o = options_;
    const std::int64_t lanes = kernels_->lanes, count = item.pixel_end - item.pixel;
    const float *from = call.source + item.image * source_.image + item.pixel * source_.pixel;
    const float *factors = call.factors + item.image * chunks_ * lanes;
    ScaleVectors work{};
    work.stages = before_.data();
    work.stage_count = static_cast<int>(before_.size());
    if (o.channels_last) {
        work.from_step = work.factor_step = lanes;
        work.to_step = count * lanes;
        work.factors = factors;
        work.count = o.channels / lanes;
        work.tail = o.channels % lanes;
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

void Conv1x1::compute(const Call &call, const Item &item, float *scratch) const {
    const auto &o = options_;
    const std::int64_t lanes = kernels_->lanes, count = item.pixel_end - item.pixel;
    const std::int64_t panel = ceil_div(o.channels, kInputBlock) * kInputBlock * 2 * lanes;
    float *sums = scratch + whole_lines(gathered_count_);
    const float *source = call.source + item.image * source_.image + item.pixel * source_.pixel;
    ExpandProduct product{};
    product.chunk_stride = gathers() ? count * lanes : source_.chunk;
    product.channels = o.channels;
    product.results = sums;
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
    const std::int64_t groups = ceil_div(count, kernels_->row_count);
    for (std::int64_t pair = item.pair; pair < item.pair_end; ++pair) {
        product.weights = call.weights + pair * panel;
        product.bias = call.bias + pair * 2 * lanes;
        work.lanes = std::min(o.outputs - pair * 2 * lanes, 2 * lanes);
        auto *multiply = work.lanes > lanes ? kernels_->multiply : kernels_->multiply_one;
        for (std::int64_t group = 0; group < groups; ++group) {
            const std::int64_t begin = count * group / groups;
            product.rows = work.count = count * (group + 1) / groups - begin;
            product.pixels = source + begin * lanes;
            multiply(product);
            work.offset = item.image * result_.image + 2 * pair * result_.chunk +
                          (item.pixel + begin) * result_.pixel;
            work.result = call.result + work.offset;
            kernels_->finish(work);
        }
    }
}

void Conv1x1::execute(const std::vector<void *> &data, void *scratchpad) const {
    const auto &o = options_;
    const std::int64_t lanes = kernels_->lanes, wide = chunks_ * lanes;
    auto *bias = static_cast<float *>(scratchpad);
    float *factors = bias + whole_lines(pairs_ * 2 * lanes);
    float *scratch = factors + whole_lines(o.images * wide);
    std::fill(bias, factors, 0.0F);
    if (o.has_bias) std::copy_n(static_cast<const float *>(data[3]), o.outputs, bias);
    std::fill(factors, scratch, 1.0F);
    if (o.has_factor) {
        const auto *given = static_cast<const float *>(data[o.has_bias ? 4 : 3]);
        const std::int64_t stride = o.channels_last ? o.channels : wide;
        for (std::int64_t image = 0; image < o.images; ++image) {
            std::copy_n(given + image * stride, o.channels, factors + image * wide);
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
        float *own = scratch + part * thread_count_;
        for (std::int64_t index; (index = items.next(part)) >= 0;) compute(call, item(index), own);
    });
}

}  // namespace stridewise
