#include "depthwise/transposed.hpp"

#include <algorithm>
#include <numeric>

#include "depthwise/depthwise.hpp"
#include "post_ops/parse.hpp"
#include "support/errors.hpp"
#include "threads/regions.hpp"
#include "threads/shares.hpp"

namespace stridewise {
namespace {

// Number of pieces of each thread's share. Idle threads take pieces of others.
constexpr std::int64_t kPieces = 8;
// Smallest number of rows of an item: rows of the source at its borders are copied twice.
constexpr std::int64_t kFewestRows = 7;

std::int64_t modulo(std::int64_t a, std::int64_t b) {
    return (a % b + b) % b;
}

}  // namespace

struct TransposedDepthwise::Call {
    const std::byte *source;
    const float *packed, *zeros;
    std::byte *result;
    const std::vector<Stage> *stages;
};

TransposedDepthwise::TransposedDepthwise(GradientOptions options, const PostOps &post_ops)
    : Kernel(options.threads, {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST}),
      options_(checked(std::move(options), "transposed depthwise")) {
    const auto &o = options_;
    for (std::size_t axis = 0; axis < 2; ++axis) {
        const DepthwiseAxis &w = o.window[axis];
        require(o.to[axis] <= w.read_by(o.from[axis]) - o.pads[axis] + w.stride,
                "transposed depthwise: the result is larger than what windows reach");
    }
    phases_ = {phases_of(0), phases_of(1)};
    pairs_ = ceil_div(o.channels, 2 * o.lanes);
    packed_count_ = o.window[0].taps * o.window[1].taps * 2 * o.lanes;
    std::int64_t right = 0;
    for (const Phase &phase : phases_[1]) {
        if (phase.taps == 0 || phase.count == 0) continue;
        left_ = std::max(left_, (phase.taps - 1) * dilation(1) - phase.source);
        right = std::max(right, phase.source + phase.count - o.from[1]);
    }
    row_count_ = whole_lines((left_ + o.from[1] + right) * 2 * o.lanes);
    ring_rows_ = (o.window[0].extent() - 1) / o.window[0].stride + 1;
    ring_count_ = (ring_rows_ + 1) * row_count_;
    source_ = strides_of(o.channels_last, o.lanes, o.channels, o.from[0], o.from[1]);
    result_ = strides_of(o.channels_last, o.lanes, o.channels, o.to[0], o.to[1]);
    for (std::size_t index = 0; index < post_ops.size(); ++index) {
        stages_.push_back(stage_of(post_ops[index]));
        require(stages_.back().op != StageOp::sum, "transposed depthwise: nothing is summed up");
        const bool has_operand = stages_.back().op > StageOp::sum;
        operands_.push_back(has_operand ? static_cast<int>(args_.size()) : -1);
        if (has_operand) args_.push_back(post_op_arg(static_cast<int>(index)));
    }
    plan_items();
}

// Pixels of the source from one tap of a phase to the next.
std::int64_t TransposedDepthwise::dilation(std::size_t axis) const {
    const DepthwiseAxis &w = options_.window[axis];
    return w.dilation / std::gcd(w.stride, w.dilation);
}

std::vector<TransposedDepthwise::Phase> TransposedDepthwise::phases_of(std::size_t axis) const {
    const auto &o = options_;
    const DepthwiseAxis &w = o.window[axis];
    const std::int64_t step = w.stride / std::gcd(w.stride, w.dilation);
    std::vector<Phase> found;
    for (std::int64_t rest = 0; rest < w.stride; ++rest) {
        Phase phase{};
        phase.first = modulo(rest - o.pads[axis], w.stride);
        phase.count = std::max<std::int64_t>(ceil_div(o.to[axis] - phase.first, w.stride), 0);
        phase.step = step;
        while (phase.tap < std::min(step, w.taps) && phase.tap * w.dilation % w.stride != rest) {
            ++phase.tap;
        }
        if (phase.tap < std::min(step, w.taps)) phase.taps = ceil_div(w.taps - phase.tap, step);
        phase.source = (phase.first + o.pads[axis] - phase.tap * w.dilation) / w.stride;
        phase.kernels = &find_depthwise_kernels(o.isa, o.lanes, {phase.taps, 1, dilation(axis)},
                                                {o.is_half, o.is_half});
        found.push_back(phase);
    }
    return found;
}

// Splits pairs and then rows until all threads have work.
void TransposedDepthwise::plan_items() {
    const std::int64_t wanted = kPieces * options_.threads, images = options_.images;
    splits_ = std::clamp<std::int64_t>(ceil_div(wanted, images), 1, pairs_);
    const std::int64_t most = ceil_div(options_.to[0], kFewestRows);
    bands_ = std::clamp<std::int64_t>(ceil_div(wanted, images * splits_), 1, most);
}

std::size_t TransposedDepthwise::scratchpad_nbytes() const {
    const std::int64_t zeros = 2 * options_.lanes;
    return static_cast<std::size_t>(zeros + pairs_ * packed_count_ +
                                    options_.threads * ceil_div(pairs_, splits_) * ring_count_) *
           sizeof(float);
}

MemoryDesc TransposedDepthwise::arg_desc(int arg) const {
    const auto &o = options_;
    if (arg == DNNL_ARG_SRC) {
        return image_desc({o.images, o.channels, o.from[0], o.from[1]}, o.is_half, o.channels_last,
                          o.lanes);
    }
    if (arg == DNNL_ARG_WEIGHTS) {
        return MemoryDesc({o.channels, 1, 1, o.window[0].taps, o.window[1].taps}, "f32", "abcde");
    }
    if (arg == DNNL_ARG_SCRATCHPAD) {
        return MemoryDesc({static_cast<std::int64_t>(scratchpad_nbytes() / sizeof(float))}, "f32",
                          "a");
    }
    require(takes(arg), "transposed depthwise: there is no argument " + std::to_string(arg));
    return image_desc({o.images, o.channels, o.to[0], o.to[1]}, o.is_half, o.channels_last,
                      o.lanes);
}

// Stores the weights of a pair for each phase down and across: [tap][2 * lane], taps in reverse.
void TransposedDepthwise::pack(const float *weights, std::int64_t pair, float *packed) const {
    const auto &o = options_;
    const std::int64_t wide = 2 * o.lanes, taps = o.window[0].taps * o.window[1].taps;
    const std::int64_t count = std::min(o.channels - pair * wide, wide);
    const float *from = weights + pair * wide * taps;
    for (const Phase &down : phases_[0]) {
        for (const Phase &across : phases_[1]) {
            for (std::int64_t i = down.taps - 1; i >= 0; --i) {
                for (std::int64_t j = across.taps - 1; j >= 0; --j, packed += wide) {
                    const std::int64_t tap = (down.tap + i * down.step) * o.window[1].taps +
                                             across.tap + j * across.step;
                    for (std::int64_t c = 0; c < count; ++c) packed[c] = from[c * taps + tap];
                    std::fill(packed + count, packed + wide, 0.0F);
                }
            }
        }
    }
}

void TransposedDepthwise::compute_row(const Call &call, std::int64_t image, std::int64_t pair,
                                      std::int64_t y, const float *ring) const {
    const auto &o = options_;
    const std::int64_t wide = 2 * o.lanes, stride = o.window[0].stride;
    const auto rest = static_cast<std::size_t>((y + o.pads[0]) % stride);
    const Phase &down = phases_[0][rest];
    const float *rows[kMostTaps], *shifted[kMostTaps];
    for (std::int64_t i = 0; i < down.taps; ++i) {
        const std::int64_t row =
            down.source + (y - down.first) / stride - (down.taps - 1 - i) * dilation(0);
        const bool inside = row >= 0 && row < o.from[0];
        rows[i] = ring + (inside ? row % ring_rows_ : ring_rows_) * row_count_;
    }
    std::int64_t before = 0;  // taps of the phases before
    for (std::size_t other = 0; other < rest; ++other) {
        before += phases_[0][other].taps * o.window[1].taps;
    }
    DepthwiseRow work{};
    work.rows = shifted;
    work.down = down.taps;
    work.bias = call.zeros;
    work.pixel = result_.pixel * o.window[1].stride;
    work.half = result_.chunk;
    work.lanes = std::min(o.channels - pair * wide, wide);
    work.blocked = !o.channels_last;
    work.stages = call.stages->data();
    work.stage_count = static_cast<int>(call.stages->size());
    for (const Phase &across : phases_[1]) {
        const std::int64_t taps = (across.taps - 1) * dilation(1);
        const std::int64_t column = across.taps > 0 ? left_ + across.source - taps : 0;
        for (std::int64_t i = 0; i < down.taps; ++i) shifted[i] = rows[i] + column * wide;
        work.axis = {across.taps, 1, dilation(1)};
        work.weight_row = across.taps * wide;
        work.weights = call.packed + pair * packed_count_ + before * wide;
        work.offset = image * result_.image + 2 * pair * result_.chunk + y * result_.row +
                      across.first * result_.pixel;
        work.result = call.result + work.offset * element_nbytes(o.is_half);
        work.count = across.count;
        if (work.count > 0) across.kernels->row(work);
        before += down.taps * across.taps;
    }
}

// Rows of all pairs before the next row: with channels last they share pages of memory, and what is
// prefetched for one pair is of use for the next one.
void TransposedDepthwise::compute(const Call &call, std::int64_t item, float *rings) const {
    const auto &o = options_;
    const std::int64_t split = item % splits_, band = item / splits_ % bands_;
    const std::int64_t image = item / (splits_ * bands_), wide = 2 * o.lanes;
    const std::int64_t first = pairs_ * split / splits_, end = pairs_ * (split + 1) / splits_;
    const std::int64_t row_end = o.to[0] * (band + 1) / bands_;
    const DepthwiseAxis &w = o.window[0];
    GatherPixels work{nullptr, source_.row, source_.pixel, source_.chunk, o.from[1], 0, nullptr};
    std::int64_t next = 0;  // the first row of the source that is not there
    for (std::int64_t y = o.to[0] * band / bands_; y < row_end; ++y) {
        const std::int64_t top = y + o.pads[0] - (w.extent() - 1);
        const std::int64_t last = std::min((y + o.pads[0]) / w.stride, o.from[0] - 1);
        const std::int64_t begin = std::max(next, top > 0 ? ceil_div(top, w.stride) : 0);
        float *ring = rings;
        for (std::int64_t pair = first; pair < end; ++pair, ring += ring_count_) {
            work.lanes = std::min(o.channels - pair * wide, wide);
            for (next = begin; next <= last; ++next) {
                const std::int64_t from =
                    image * source_.image + 2 * pair * source_.chunk + next * source_.row;
                work.from = call.source + from * element_nbytes(o.is_half);
                work.to = ring + next % ring_rows_ * row_count_ + left_ * wide;
                phases_[1].front().kernels->gather(work);
            }
            compute_row(call, image, pair, y, ring);
        }
    }
}

void TransposedDepthwise::execute(const std::vector<void *> &data, void *scratchpad) const {
    const auto &o = options_;
    auto *zeros = static_cast<float *>(scratchpad);
    std::fill(zeros, zeros + 2 * o.lanes, 0.0F);
    float *packed = zeros + 2 * o.lanes, *rings = packed + pairs_ * packed_count_;
    std::vector<Stage> stages = stages_;
    for (std::size_t index = 0; index < stages.size(); ++index) {
        if (operands_[index] >= 0) {
            stages[index].operand = data[static_cast<std::size_t>(operands_[index])];
        }
    }
    const auto *weights = static_cast<const float *>(data[1]);
    const std::int64_t rings_count = ceil_div(pairs_, splits_) * ring_count_;
    in_parallel(o.threads, [&](int part, int parts) {
        for (std::int64_t pair = part; pair < pairs_; pair += parts) {
            pack(weights, pair, packed + pair * packed_count_);
        }
        float *own = rings + part * rings_count;
        std::fill(own, own + rings_count, 0.0F);
    });
    const Call call{static_cast<const std::byte *>(data[0]), packed, zeros,
                    static_cast<std::byte *>(data[2]), &stages};
    Shares items(o.images * bands_ * splits_, o.threads);
    in_parallel(o.threads, [&](int part, int) {
        for (std::int64_t item; (item = items.next(part)) >= 0;) {
            compute(call, item, rings + part * rings_count);
        }
    });
}

}  // namespace stridewise
