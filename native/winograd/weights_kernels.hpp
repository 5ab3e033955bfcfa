// The inner loops of weight gradients by Winograd's algorithm: one table for each vector width.
//
// It includes no standard templates, for the reason in winograd/kernels.hpp.
#pragma once

#include <cstdint>

#include "winograd/kernels.hpp"

namespace stridewise {

// Products of some outputs and channels for one place of the window, summed over tiles.
struct WinogradOuterProduct {
    const float *gradients;  // [tile][lane], from the first output on
    const float *pixels;     // [chunk][tile][lane]
    std::int64_t tiles;
    std::int64_t chunk_stride;  // of pixels, in elements
    std::int64_t chunks;        // 1 or 2
    float *sums;                // [output][channel]
    std::int64_t sums_stride;   // from one output to the next, in elements
    bool resumes;               // accumulates into `sums`
};

// Gradients of the windows of one output, from its sums over tiles.
struct WinogradWindows {
    const float *sums;       // [xi][channel]
    std::int64_t xi_stride;  // in elements
    std::int64_t channels;
    const double *vertical, *horizontal;  // the transforms of weights, [place][tap]
    float *windows;                       // [channel][tap]
};

// The transform of the windows of one channel and a pair of vectors of outputs.
struct WinogradFilterPair {
    const float *windows;                 // of the first output, at the first tap
    const float *odd;                     // likewise of the next channel; null behind the last one
    std::int64_t distance;                // elements from one output to the next
    std::int64_t step;                    // elements from one tap to the next
    std::int64_t outputs;                 // at most those of a pair; the others are set to zero
    const double *vertical, *horizontal;  // the transforms of weights, [place][tap]
    float *packed;                        // [xi][...][2 * lane]
    std::int64_t xi_stride;               // in elements
};

struct WinogradWeightsKernels {
    WinogradTile tile;
    int rows;  // outputs of one product
    // Transforms tiles [first, first + count) of chunks [chunk, chunk_end) of the gradient of the
    // result, as WinogradKernels::input does for the source.
    void (*gradient)(const WinogradShape &shape, const float *gradient, std::int64_t first,
                     std::int64_t count, std::int64_t chunk, std::int64_t chunk_end,
                     const TransformedTiles &tiles, float *transformed);
    void (*outer)(const WinogradOuterProduct &product);
    void (*windows)(const WinogradWindows &windows);
    void (*pack)(const WinogradFilterPair &pair);
    // Likewise for two channels, whose results are stored in turn as bfloat16.
    void (*pack_halves)(const WinogradFilterPair &pair);
};

// Null if there are no kernels for the tile.
const WinogradWeightsKernels *portable_winograd_weights(const WinogradTile &tile, int lanes);
#ifdef STRIDEWISE_AVX2
const WinogradWeightsKernels *avx2_winograd_weights(const WinogradTile &tile);
const WinogradWeightsKernels *avx512_winograd_weights(const WinogradTile &tile);
#endif

}  // namespace stridewise
