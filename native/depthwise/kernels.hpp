// The inner loops of a depthwise convolution that computes its own source, once for each width of
// a vector, behind one table. Files that implement it include no standard templates, for the reason
// in winograd/kernels.hpp.
#pragma once

#include <cstdint>

#include "post_ops/stages.hpp"

namespace stridewise {

// How a window lies along one axis of an image.
struct DepthwiseAxis {
    std::int64_t taps, stride, dilation;

    // Pixels from the first to the last tap of one result.
    std::int64_t extent() const { return (taps - 1) * dilation + 1; }
    // Pixels that so many results next to each other read.
    std::int64_t read_by(std::int64_t results) const { return (results - 1) * stride + extent(); }
};

// One row of results of a pair of vectors of channels.
struct DepthwiseRow {
    const float *const *rows;  // one for each tap down, from the first tap of the first result on
    std::int64_t down;         // taps of a column of the window
    DepthwiseAxis axis;        // along the row
    const float *weights;      // [tap][2 * lane]
    const float *bias;         // [2 * lane]
    float *result;             // of the first vector
    std::int64_t pixel;        // elements from one result to the next
    std::int64_t half;         // elements from the first vector to the second one
    std::int64_t count;        // results
    std::int64_t lanes;        // channels that are left, at most those of a pair
    bool blocked;              // spare lanes become zero
    const Stage *stages;
    int stage_count;
};

// Some pixels of a convolution of 1x1, for a pair of vectors of outputs.
struct ExpandProduct {
    const float *pixels;        // [chunk][pixel][lane]
    std::int64_t chunk_stride;  // elements from one chunk of channels to the next
    std::int64_t channels;
    const float *weights;  // [channel][2 * lane]
    const float *bias;     // [2 * lane]
    float *results;        // [pixel][2 * lane]
    std::int64_t rows;     // pixels
    bool clips;            // to the bounds
    float low, high;
};

// Some pixels of the source of a depthwise convolution that is given.
struct GatherPixels {
    const float *from;   // of the first vector
    std::int64_t pixel;  // elements from one pixel to the next
    std::int64_t half;   // elements from the first vector to the second one
    std::int64_t count;  // pixels
    std::int64_t lanes;  // channels that are left, at most those of a pair
    float *to;           // [pixel][2 * lane], spare lanes zero
};

struct DepthwiseKernels {
    int lanes;      // elements of a vector
    int row_count;  // pixels of one matrix product
    void (*expand)(const ExpandProduct &product);
    void (*gather)(const GatherPixels &pixels);
    // Applies stages without operands to `count` pixels of a pair of vectors.
    void (*activate)(float *pixels, std::int64_t count, const Stage *stages, int stage_count);
    void (*row)(const DepthwiseRow &row);
};

// The kernels for windows with so many taps, strides and dilations along a row.
const DepthwiseKernels &portable_depthwise_kernels(const DepthwiseAxis &axis, int lanes);
#ifdef STRIDEWISE_AVX2
const DepthwiseKernels &avx2_depthwise_kernels(const DepthwiseAxis &axis);
const DepthwiseKernels &avx512_depthwise_kernels(const DepthwiseAxis &axis);
#endif

}  // namespace stridewise
