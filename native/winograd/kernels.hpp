// The inner loops of Winograd convolution, once for each width of a vector, behind one table.
// Files that implement it include no standard templates: they are compiled for other instruction
// sets, and the linker would be free to use their instances everywhere.
#pragma once

#include <cstdint>

#include "post_ops/stages.hpp"
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

// One convolution with strides of 1. Pixels that a window meets are `dilation` apart, and so are
// the results of a tile: those of one phase make an ordinary convolution.
struct WinogradShape {
    std::int64_t height, width;          // of the source
    std::int64_t out_height, out_width;  // of the result
    std::int64_t pad_top, pad_left;
    std::int64_t channels, outputs;
    std::int64_t dilation_high, dilation_wide;
    std::int64_t tiles_high, tiles_wide;  // of one image, all phases together
    ImageStrides source, result;          // of the result as it is stored, after pooling
    // The maxima of windows of so many results along each axis are stored instead of them: 1 or 2,
    // where tiles have an even number of results.
    std::int64_t pool;
};

// A group of tiles inside the scratch of transformed pixels, [xi][...][chunk][tile][lane].
struct TransformedTiles {
    std::int64_t xi_stride;     // elements from one place of the window to the next
    std::int64_t chunk_stride;  // elements from one chunk of channels to the next
};

// A matrix product for one place of the window: tiles times one pair of vectors of outputs.
struct WinogradProduct {
    const float *transformed;   // [chunk][tile][lane]
    std::int64_t chunk_stride;  // elements from one chunk of channels to the next
    std::int64_t chunks;
    const float *weights;  // [channel][2 * lane]
    float *products;       // [tile][2 * lane]
    std::int64_t rows;     // tiles
    bool resumes;          // adds to the products
    const float *next;     // weights that are wanted later, as many lines a chunk as follow
    std::int64_t next_lines;
};

struct WinogradResult {
    float *data;
    const float *bias;  // padded with zeros to whole pairs of vectors; never null
    const Stage *stages;
    int stage_count;
    bool blocked;  // the result has whole chunks, whose spare lanes become zero
};

struct WinogradKernels {
    WinogradTile tile;
    int lanes;      // elements of a vector
    int row_count;  // tiles of one matrix product
    // Transforms tiles [first, first + count) of chunks [chunk, chunk_end) of the source.
    void (*input)(const WinogradShape &shape, const float *source, std::int64_t first,
                  std::int64_t count, std::int64_t chunk, std::int64_t chunk_end,
                  const TransformedTiles &tiles, float *transformed);
    void (*multiply)(const WinogradProduct &product);
    // A product for a pair of vectors of outputs that read channels of their own, or the same ones.
    void (*multiply_groups)(const float *low, const float *high, std::int64_t chunk_stride,
                            std::int64_t chunks, const float *weights, float *products,
                            std::int64_t rows);
    // Transforms back `count` tiles of one pair of vectors of outputs, [xi][tile][2 * lane].
    void (*output)(const WinogradShape &shape, const float *products, std::int64_t xi_stride,
                   std::int64_t first, std::int64_t count, std::int64_t pair,
                   const WinogradResult &result);
};

// Null for tiles that have no kernels; the portable ones are for vectors of 8 and 16 lanes. Windows
// with one tap along an axis have it along the vertical one.
const WinogradKernels *portable_winograd_kernels(const WinogradTile &tile, int lanes);
#ifdef STRIDEWISE_AVX2
const WinogradKernels *avx2_winograd_kernels(const WinogradTile &tile);
const WinogradKernels *avx512_winograd_kernels(const WinogradTile &tile);
#endif

}  // namespace stridewise
