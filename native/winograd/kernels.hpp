// The inner loops of Winograd convolution: one table of kernels for each vector width. Files that
// implement it include no standard templates. They are compiled for other instruction sets, and the
// linker could select their template instances for the whole program.
#pragma once

#include <cstdint>

#include "post_ops/stages.hpp"
#include "support/bfloat16.hpp"
#include "support/images.hpp"

namespace stridewise {

// F(high x wide, taps_high x taps_wide): results of a tile and taps of the window.
struct WinogradTile {
    int high, wide;
    int taps_high, taps_wide;

    constexpr bool operator==(const WinogradTile &other) const {
        return high == other.high && wide == other.wide && taps_high == other.taps_high &&
               taps_wide == other.taps_wide;
    }
    constexpr int places_high() const { return high + taps_high - 1; }
    constexpr int places_wide() const { return wide + taps_wide - 1; }
};

// One convolution with strides of 1. The taps of a window are `dilation` pixels apart, and so are
// the results of a tile. The results of one phase form a convolution without dilation.
struct WinogradShape {
    std::int64_t height, width;          // extents of the source
    std::int64_t out_height, out_width;  // extents of the result
    std::int64_t pad_top, pad_left;
    std::int64_t channels, outputs;
    std::int64_t dilation_high, dilation_wide;
    std::int64_t tiles_high, tiles_wide;  // tiles of one image, all phases together
    ImageStrides source, result;          // the result is that after pooling
    bool is_blocked;                      // the source has whole chunks; padding lanes are zero
    // Extent of the max-pooling window along each axis: 1 (no pooling), or 2 if tiles have an even
    // number of results. Only the maxima are stored.
    std::int64_t pool;
};

// A group of tiles in the scratchpad of transformed pixels, [xi][...][chunk][tile][lane]. A lane is
// one channel in float32, or a pair of channels in bfloat16 where products are of pairs.
struct TransformedTiles {
    std::int64_t xi_stride;     // lanes from one place of the window to the next
    std::int64_t chunk_stride;  // lanes from one chunk of channels to the next
};

// Lanes of a chunk that are multiplied in one step.
constexpr int kLaneStep = 4;

// A matrix product for one place of the window: tiles x one pair of vectors of outputs.
struct WinogradProduct {
    const float *transformed;   // [chunk][tile][lane]
    std::int64_t chunk_stride;  // elements from one chunk of channels to the next
    std::int64_t chunks;
    std::int64_t tail;     // lanes of the last chunk that are multiplied, a multiple of kLaneStep
    const float *weights;  // [channel][output], or [pair of channels][output][2] in bfloat16
    float *products;       // [tile][output]
    std::int64_t rows;     // tiles
    bool resumes;          // accumulates into `products`
    const float *next;     // weights to prefetch, as many cache lines per chunk as the chunk reads
    std::int64_t next_lines;
};

struct WinogradResult {
    void *data;         // of the type of the kernels' result, as the operands of stages are
    const float *bias;  // padded with zeros to whole pairs of vectors; never null
    const Stage *stages;
    int stage_count;
    bool blocked;  // the result has whole chunks; padding lanes are set to zero
};

struct WinogradKernels {
    WinogradTile tile;
    int lanes;      // elements of a vector
    int row_count;  // tiles of one matrix product
    // Transforms tiles [first, first + count) of chunks [chunk, chunk_end) of the source, which has
    // the type of the kernels' source.
    void (*input)(const WinogradShape &shape, const void *source, std::int64_t first,
                  std::int64_t count, std::int64_t chunk, std::int64_t chunk_end,
                  const TransformedTiles &tiles, float *transformed);
    void (*multiply)(const WinogradProduct &product);
    // A product for a pair of vectors of outputs whose vectors may read different channels.
    void (*multiply_groups)(const float *low, const float *high, std::int64_t chunk_stride,
                            std::int64_t chunks, const float *weights, float *products,
                            std::int64_t rows);
    // Prefetches places of results of one pair of vectors of outputs: those from `begin` to `end`,
    // counted from the first result of tile `first` on.
    void (*expect)(const WinogradShape &shape, std::int64_t first, std::int64_t begin,
                   std::int64_t end, std::int64_t pair, const WinogradResult &result);
    // Output transform of `count` tiles of one pair of vectors of outputs, [xi][tile][2 * lane].
    void (*output)(const WinogradShape &shape, const float *products, std::int64_t xi_stride,
                   std::int64_t first, std::int64_t count, std::int64_t pair,
                   const WinogradResult &result);
};

// Null if there are no kernels for the tile. The portable kernels have vectors of 8 and 16 lanes. A
// window with one tap along an axis has it along the vertical axis.
const WinogradKernels *portable_winograd_kernels(const WinogradTile &tile, HalfSides halves,
                                                 int lanes);
// With products of pairs of bfloat16, which are added in float32; the source is bfloat16, and the
// result is where `is_half`. There are fewer tiles: rounding errors grow with them.
const WinogradKernels *portable_pair_kernels(const WinogradTile &tile, bool is_half, int lanes);
#ifdef STRIDEWISE_AVX2
const WinogradKernels *avx2_winograd_kernels(const WinogradTile &tile, HalfSides halves);
const WinogradKernels *avx512_winograd_kernels(const WinogradTile &tile, HalfSides halves);
// With products of pairs of bfloat16, as below.
const WinogradKernels *avx512_bf16_pair_kernels(const WinogradTile &tile, bool is_half);
#endif

}  // namespace stridewise
