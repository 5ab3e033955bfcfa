#include "depthwise/weights.hpp"

#include <algorithm>

#include "depthwise/depthwise.hpp"
#include "support/errors.hpp"
#include "threads/regions.hpp"
#include "threads/shares.hpp"

namespace stridewise {
namespace {

// Parts with sums of their own. The number does not depend on the machine: the order of sums
// follows from it.
constexpr std::int64_t kParts = 32;
// Smallest number of rows of a band: rows of the source at its borders are copied twice.
constexpr std::int64_t kFewestRows = 7;
// Items of each thread. Idle threads take items of others.
constexpr std::int64_t kPieces = 8;

const std::byte *at(const void *data, std::int64_t element, bool is_half) {
    return static_cast<const std::byte *>(data) + element * element_nbytes(is_half);
}

}  // namespace

struct DepthwiseWeightGradient::Call {
    const void *source, *gradient;
    float *sums;  // [part][pair][tap][2 * lane]
    float *result;
};

DepthwiseWeightGradient::DepthwiseWeightGradient(GradientOptions options)
    : Kernel(options.threads, {DNNL_ARG_SRC, DNNL_ARG_DIFF_DST, DNNL_ARG_DST}),
      options_(checked(std::move(options), "depthwise weights")),
      kernels_(&find_depthwise_kernels(options_.isa, options_.lanes, options_.window[1],
                                       {options_.is_half, false})),
      pairs_(ceil_div(options_.channels, 2 * options_.lanes)),
      taps_(options_.window[0].taps * options_.window[1].taps) {
    const auto &o = options_;
    for (std::size_t axis = 0; axis < 2; ++axis) {
        const DepthwiseAxis &w = o.window[axis];
        require(w.read_by(o.to[axis]) - o.pads[axis] < o.from[axis] + w.extent(),
                "depthwise weights: the gradient is larger than what windows reach");
    }
    const std::int64_t most = ceil_div(o.to[0], kFewestRows);
    bands_ = std::clamp<std::int64_t>(ceil_div(kParts, o.images), 1, most);
    parts_ = std::min(o.images * bands_, kParts);
    splits_ = std::clamp<std::int64_t>(ceil_div(kPieces * o.threads, parts_), 1, pairs_);
    ring_rows_ = o.window[0].extent();
    const std::int64_t wide = o.pads[1] + o.from[1];
    row_count_ = whole_lines(std::max(wide, o.window[1].read_by(o.to[1])) * 2 * o.lanes);
    ring_count_ = (ring_rows_ + 1) * row_count_ + whole_lines(o.to[1] * 2 * o.lanes);
    source_ = strides_of(o.channels_last, o.lanes, o.channels, o.from[0], o.from[1]);
    gradient_ = strides_of(o.channels_last, o.lanes, o.channels, o.to[0], o.to[1]);
}

std::size_t DepthwiseWeightGradient::scratchpad_nbytes() const {
    const std::int64_t sums = parts_ * pairs_ * taps_ * 2 * options_.lanes;
    const std::int64_t rings = options_.threads * ceil_div(pairs_, splits_) * ring_count_;
    return static_cast<std::size_t>(sums + rings) * sizeof(float);
}

MemoryDesc DepthwiseWeightGradient::arg_desc(int arg) const {
    const auto &o = options_;
    if (arg == DNNL_ARG_SRC || arg == DNNL_ARG_DIFF_DST) {
        const auto &extents = arg == DNNL_ARG_SRC ? o.from : o.to;
        return image_desc({o.images, o.channels, extents[0], extents[1]}, o.is_half,
                          o.channels_last, o.lanes);
    }
    if (arg == DNNL_ARG_SCRATCHPAD) {
        return MemoryDesc({static_cast<std::int64_t>(scratchpad_nbytes() / sizeof(float))}, "f32",
                          "a");
    }
    require(arg == DNNL_ARG_DST, "depthwise weights: there is no argument " + std::to_string(arg));
    return MemoryDesc({o.channels, 1, 1, o.window[0].taps, o.window[1].taps}, "f32", "abcde");
}

DepthwiseWeightGradient::Band DepthwiseWeightGradient::band_of(std::int64_t number) const {
    const std::int64_t band = number % bands_, rows = options_.to[0];
    return {number / bands_, rows * band / bands_, rows * (band + 1) / bands_};
}

// Copies rows [first, last] of the source to the ring.
void DepthwiseWeightGradient::gather(const Call &call, const Band &band, std::int64_t pair,
                                     std::int64_t first, std::int64_t last, float *ring) const {
    const auto &o = options_;
    const std::int64_t wide = 2 * o.lanes;
    const std::int64_t lanes = std::min(o.channels - pair * wide, wide);
    const std::int64_t corner = band.image * source_.image + 2 * pair * source_.chunk;
    for (std::int64_t row = first; row <= last; ++row) {
        float *to = ring + row % ring_rows_ * row_count_ + o.pads[1] * wide;
        kernels_->gather({at(call.source, corner + row * source_.row, o.is_half), source_.row,
                          source_.pixel, source_.chunk, o.from[1], lanes, to});
    }
}

// Adds the products of a row of gradients with the rows of the source that it met.
void DepthwiseWeightGradient::add_row(const Call &call, const Band &band, std::int64_t pair,
                                      std::int64_t y, float *ring, float *sums) const {
    const auto &o = options_;
    const std::int64_t wide = 2 * o.lanes;
    const std::int64_t lanes = std::min(o.channels - pair * wide, wide);
    float *gradients = ring + (ring_rows_ + 1) * row_count_;
    const std::int64_t from =
        band.image * gradient_.image + 2 * pair * gradient_.chunk + y * gradient_.row;
    kernels_->gather({at(call.gradient, from, o.is_half), gradient_.row, gradient_.pixel,
                      gradient_.chunk, o.to[1], lanes, gradients});
    const float *rows[kMostTaps];
    const DepthwiseAxis &down = o.window[0];
    for (std::int64_t tap = 0; tap < down.taps; ++tap) {
        const std::int64_t row = y * down.stride - o.pads[0] + tap * down.dilation;
        const bool inside = row >= 0 && row < o.from[0];
        rows[tap] = ring + (inside ? row % ring_rows_ : ring_rows_) * row_count_;
    }
    kernels_->correlate({rows, down.taps, o.window[1], gradients, o.to[1], lanes, sums});
}

// Rows of all pairs before the next row: with channels last they share pages of memory.
void DepthwiseWeightGradient::compute(const Call &call, std::int64_t item, float *rings) const {
    const auto &o = options_;
    const std::int64_t part = item / splits_, split = item % splits_;
    const std::int64_t first = pairs_ * split / splits_, end = pairs_ * (split + 1) / splits_;
    const std::int64_t count = taps_ * 2 * o.lanes, bands = o.images * bands_;
    float *sums = call.sums + part * pairs_ * count;
    std::fill(sums + first * count, sums + end * count, 0.0F);
    const DepthwiseAxis &down = o.window[0];
    for (std::int64_t number = bands * part / parts_; number < bands * (part + 1) / parts_;
         ++number) {
        const Band band = band_of(number);
        std::int64_t next = 0;  // the first row of the source that is not in the ring
        for (std::int64_t y = band.first; y < band.end; ++y) {
            const std::int64_t top = y * down.stride - o.pads[0];
            const std::int64_t begin = std::max(next, top);
            const std::int64_t last = std::min(top + down.extent(), o.from[0]) - 1;
            float *ring = rings;
            for (std::int64_t pair = first; pair < end; ++pair, ring += ring_count_) {
                gather(call, band, pair, begin, last, ring);
                add_row(call, band, pair, y, ring, sums + pair * count);
            }
            next = std::max(next, last + 1);
        }
    }
}

// Adds up the sums of all parts.
void DepthwiseWeightGradient::finish(const Call &call, std::int64_t pair) const {
    const auto &o = options_;
    const std::int64_t wide = 2 * o.lanes, part = pairs_ * taps_ * wide;
    const std::int64_t channels = std::min(o.channels - pair * wide, wide);
    for (std::int64_t tap = 0; tap < taps_; ++tap) {
        const float *from = call.sums + (pair * taps_ + tap) * wide;
        float *to = call.result + pair * wide * taps_ + tap;
        for (std::int64_t channel = 0; channel < channels; ++channel) {
            float sum = 0.0F;
            for (std::int64_t k = 0; k < parts_; ++k) sum += from[k * part + channel];
            to[channel * taps_] = sum;
        }
    }
}

void DepthwiseWeightGradient::execute(const std::vector<void *> &data, void *scratchpad) const {
    const auto &o = options_;
    auto *rings = static_cast<float *>(scratchpad);
    const std::int64_t own = ceil_div(pairs_, splits_) * ring_count_;
    const Call call{data[0], data[1], rings + o.threads * own, static_cast<float *>(data[2])};
    Shares items(parts_ * splits_, o.threads);
    in_parallel(o.threads, [&](int part, int) {
        float *ring = rings + part * own;
        std::fill(ring, ring + own, 0.0F);
        for (std::int64_t item; (item = items.next(part)) >= 0;) compute(call, item, ring);
    });
    Shares pairs(pairs_, o.threads);
    in_parallel(o.threads, [&](int part, int) {
        for (std::int64_t pair; (pair = pairs.next(part)) >= 0;) finish(call, pair);
    });
}

}  // namespace stridewise
