// Depthwise convolution, alone or fused with the 1x1 convolution before it, whose results are then
// not stored.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "depthwise/kernels.hpp"
#include "executor/kernel.hpp"
#include "onednn/primitives.hpp"
#include "support/images.hpp"

namespace stridewise {

// Channels whose weights are zero outside of a part of the window.
struct DepthwisePart {
    std::int64_t channels;
    std::int64_t top, left, rows, columns;  // in taps
};

struct DepthwiseOptions {
    bool expands;  // whether the 1x1 convolution is fused
    std::int64_t images, channels, height, width;
    std::int64_t middle;               // channels of the result and of the intermediate tensor
    std::int64_t group;                // channels that each result reads, of as many results
    std::array<std::int64_t, 4> pads;  // of the depthwise convolution: top, left, bottom, right
    DepthwiseAxis down, across;        // of the window
    // Of a volume: its slices, which lie one below the other and have `height` rows each, and the
    // window and the padding along them.
    std::int64_t slices = 1;
    DepthwiseAxis deep{1, 1, 1};
    std::array<std::int64_t, 2> deep_pads{};  // at the front and at the back
    std::vector<DepthwisePart> parts;         // of the channels, in order; none for whole windows
    int lanes;                                // elements of a vector: 8 or 16
    HalfSides halves;
    bool multiplies_halves;  // whether the products of the 1x1 convolution are of bfloat16
    bool channels_last;      // otherwise channels in blocks of one vector
    bool has_bias;           // of the 1x1 convolution
    bool has_depthwise_bias;
    int threads;
    std::string isa;  // one of kernel_isas(lanes); "" for the best

    // Results of each channel, if groups have one.
    std::int64_t copies() const { return expands ? 1 : middle / channels; }
};

// Argument ids of the depthwise convolution, fused or not.
constexpr int kDepthwiseWeights = DNNL_ARG_ATTR_POST_OP_DW | DNNL_ARG_WEIGHTS;
constexpr int kDepthwiseBias = DNNL_ARG_ATTR_POST_OP_DW | DNNL_ARG_BIAS;

// The kernels for the taps, stride and dilation of a window along a row.
const DepthwiseKernels &find_depthwise_kernels(const std::string &isa, int lanes,
                                               const DepthwiseAxis &axis, HalfSides halves);

class Depthwise : public Kernel {
  public:
    // The first `between` post-ops belong to the 1x1 convolution. No post-op has an operand. Throws
    // std::invalid_argument if the kernels do not support the operation.
    Depthwise(DepthwiseOptions options, const PostOps &post_ops, std::size_t between);

    std::string impl() const override;
    std::size_t scratchpad_nbytes() const override;
    MemoryDesc arg_desc(int arg) const override;
    void execute(const std::vector<void *> &data, void *scratchpad) const override;

  private:
    struct Call;
    // The results and the pairs of channel vectors of one item of work.
    struct Item {
        std::int64_t image, slice, row, row_end, column, column_end, pair, pair_end;
    };
    // The part of the source that an item reads.
    struct Region {
        std::int64_t row, row_end, column, column_end;
    };

    // The part of the window that a pair of vectors reads, and its kernel.
    struct Taps {
        std::int64_t top, left, rows, columns;
        const DepthwiseKernels *kernels;
    };

    void plan_taps();
    void plan_items();
    std::int64_t item_count() const {
        return options_.images * out_slices_ * bands_ * strips_ * splits_;
    }
    Item item(std::int64_t index) const;
    // Whether products read a copy of the pixels of the source, in another order or type.
    bool gathers() const {
        return options_.expands && (options_.channels_last || options_.halves.source);
    }
    Region region(const Item &item) const;
    std::int64_t top_of(std::int64_t row) const {
        return row * options_.down.stride - options_.pads[0];
    }
    std::int64_t left_of(std::int64_t column) const {
        return column * options_.across.stride - options_.pads[1];
    }
    void gather(const Call &call, const Item &item, const Region &region, float *gathered) const;
    // An element of the source or the result.
    const std::byte *source_at(const Call &call, std::int64_t element) const;
    void *result_at(const Call &call, std::int64_t element) const;
    void expand(const Call &call, const float *source, std::int64_t chunk_stride,
                std::int64_t pixels, std::int64_t pair, float *row) const;
    // What the rows of results of all pairs have in common, and those of one pair.
    void describe(const Item &item, DepthwiseWindows &work) const;
    void describe(const Call &call, std::int64_t pair, DepthwiseWindows &work) const;
    // Rows of the window, those of all slices.
    std::int64_t window_rows() const { return options_.deep.taps * options_.down.taps; }
    // Rows of pixels that are kept for the windows of a row of results.
    std::int64_t ring_rows() const { return options_.deep.taps * options_.down.extent(); }
    // Copies a row of the source, or computes it by the 1x1 convolution.
    void fetch(const Call &call, const Item &item, const Region &region, std::int64_t row,
               std::int64_t pair, const float *gathered, float *to) const;
    void compute(const Call &call, const Item &item, float *scratch) const;
    void compute_in_place(const Call &call, const Item &item, const void **rows) const;

    DepthwiseOptions options_;
    const DepthwiseKernels *kernels_;
    bool is_in_place_;        // whether products read the source itself
    std::vector<Taps> taps_;  // for each pair
    // Vectors of elements that products read for a pixel, and pairs of vectors of the result.
    std::int64_t chunks_, pairs_;
    std::int64_t out_slices_, out_height_, out_width_;
    std::int64_t bands_, strips_, splits_;  // of the rows, columns and pairs of an image
    // Sizes in elements: one row between the two convolutions, all such rows, the source pixels of
    // an item, and the scratchpad of one thread, which ends with pointers to rows.
    std::int64_t row_count_, ring_count_, gathered_count_, thread_count_;
    ImageStrides source_, result_;
    std::vector<Stage> stages_;
    int between_;
};

}  // namespace stridewise
