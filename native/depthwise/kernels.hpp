// The inner loops of a depthwise convolution with a fused 1x1 convolution: one table of kernels for
// each vector width. Files that implement it include no standard templates, for the reason in
// winograd/kernels.hpp.
#pragma once

#include <cstdint>

#include "post_ops/stages.hpp"
#include "support/bfloat16.hpp"

namespace stridewise {

// The parameters of a window along one axis of an image.
struct DepthwiseAxis {
    std::int64_t taps, stride, dilation;

    // Number of pixels from the first to the last tap of one result.
    std::int64_t extent() const { return (taps - 1) * dilation + 1; }
    // Number of pixels that `results` adjacent results read.
    std::int64_t read_by(std::int64_t results) const { return (results - 1) * stride + extent(); }
};

// Where results of a pair of channel vectors go, and what is applied to them before.
struct ResultPixels {
    void *result;         // of the first vector, of the type of the kernels' result
    std::int64_t offset;  // elements from the start of an operand of a stage to its first one
    std::int64_t pixel;   // elements from one result to the next
    std::int64_t half;    // elements from the first vector to the second one
    std::int64_t count;   // results
    std::int64_t lanes;   // valid channels, at most those of a pair
    bool blocked;         // padding lanes are set to zero
    const Stage *stages;
    int stage_count;
};

// One row of results of a pair of channel vectors, and the windows of these.
struct DepthwiseWindows : ResultPixels {
    std::int64_t down;        // taps of a column of the window
    DepthwiseAxis axis;       // along the row
    const float *weights;     // [tap][2 * lane]
    std::int64_t weight_row;  // elements from one row of taps to the next
    const float *bias;        // [2 * lane]
};

// Windows of copied pixels, with zeros where the image is padded.
struct DepthwiseRow : DepthwiseWindows {
    const float *const *rows;  // one per vertical tap, each at the first tap of the first result
    // For rows of groups: channels of a group, a divisor of the lanes of a vector, and elements
    // from the weights of one of them to those of the next.
    std::int64_t group, weight_channel;
};

// Windows of pixels of the source itself.
struct DepthwiseInPlace : DepthwiseWindows {
    // One per vertical tap inside of the image, each at the first pixel of a row of the source, of
    // the type of the kernels' source.
    const void *const *rows;
    std::int64_t from_pixel, from_half;  // elements as in GatherPixels
    std::int64_t wide;                   // pixels of a row
    std::int64_t start;  // pixel of the first tap of the first result, negative in the padding
};

// The products of a row of gradients of results with the pixels that each tap met.
struct DepthwiseCorrelation {
    const float *const *rows;  // as those of DepthwiseRow
    std::int64_t down;         // taps of a column of the window
    DepthwiseAxis axis;        // along the row
    const float *gradients;    // [result][2 * lane]
    std::int64_t count;        // results
    std::int64_t lanes;        // valid channels, at most those of a pair
    float *sums;               // [tap][2 * lane]; products are added
};

// Results that are prefetched before they are written, and what is added to them.
struct ExpectedResults {
    const char *results;
    const char *others;  // with the same strides; may be null
    std::int64_t pixel;  // bytes from one pixel to the next
    std::int64_t half;   // bytes from the first vector to the second one
    std::int64_t rows;   // pixels; 0 for none
};

// A product of the 1x1 convolution: some pixels x a pair of vectors of outputs. Elements are
// channels in float32, or pairs of channels in bfloat16.
struct ExpandProduct {
    const float *pixels;        // [chunk][pixel][lane]
    std::int64_t chunk_stride;  // elements from one chunk to the next
    std::int64_t pixel_stride;  // elements from one pixel to the next, for kernels that take any
    std::int64_t channels;      // or pairs; of a run
    const float *weights;       // [run][channel][2 * lane]
    const float *start;         // [2 * lane]: the bias, or earlier sums of the first pixel
    std::int64_t start_pixel;   // elements from these of one pixel to the next; 0 for a bias
    void *results;              // of the first vector, of the type of the kernel's results
    std::int64_t result_pixel;  // elements from one result to the next
    std::int64_t result_half;   // elements from the first vector to the second one
    std::int64_t rows;          // pixels
    bool fetches;               // whether pixels are fetched before they are read
    const void *others;         // to add, of the type and strides of results; may be null
    bool clips;                 // to the bounds
    float low, high;
    const float *next;         // weights to prefetch meanwhile
    std::int64_t next_lines;   // cache lines of them per chunk; 0 for none
    ExpectedResults expected;  // by the next product
    // Each pixel has some runs of channels. Elements to them; those of the first are subtracted.
    const std::int64_t *offsets = nullptr;
    std::int64_t runs = 1;
};

// Some source pixels of a depthwise convolution that is not fused.
struct GatherPixels {
    const void *from;    // of the first vector, of the type of the kernels' source
    std::int64_t row;    // elements from one row to the next
    std::int64_t pixel;  // elements from one pixel to the next
    std::int64_t half;   // elements from the first vector to the second one
    std::int64_t count;  // pixels
    std::int64_t lanes;  // valid channels, at most those of a pair
    float *to;           // [pixel][2 * lane], padding lanes zero
    // Lanes that hold the same channel, a divisor of the lanes of a vector.
    std::int64_t copies = 1;
};

// All channels of one source pixel of a depthwise convolution that is fused.
struct GatherChannels {
    const void *from;    // of the first vector, of the type of the kernels' source
    std::int64_t chunk;  // elements from one vector to the next
    std::int64_t channels;
    float *to;               // of the first vector
    std::int64_t to_stride;  // elements from one vector to the next
};

struct DepthwiseKernels {
    int lanes;      // elements of a vector
    int row_count;  // pixels of one matrix product
    void (*expand)(const ExpandProduct &product);
    void (*gather)(const GatherPixels &pixels);
    void (*gather_channels)(const GatherChannels &pixel);
    // The same in pairs of channels; null for a source of float32.
    void (*expand_pairs)(const ExpandProduct &product);
    void (*gather_pairs)(const GatherChannels &pixel);
    // Applies stages without operands to `count` pixels of a pair of vectors.
    void (*activate)(float *pixels, std::int64_t count, const Stage *stages, int stage_count);
    void (*row)(const DepthwiseRow &row);
    void (*row_of_groups)(const DepthwiseRow &row);
    void (*row_in_place)(const DepthwiseInPlace &row);  // or null
    void (*correlate)(const DepthwiseCorrelation &row);
};

// Returns the kernels for the taps, stride and dilation of a window along a row.
const DepthwiseKernels &portable_depthwise_kernels(const DepthwiseAxis &axis, HalfSides halves,
                                                   int lanes);
#ifdef STRIDEWISE_AVX2
const DepthwiseKernels &avx2_depthwise_kernels(const DepthwiseAxis &axis, HalfSides halves);
const DepthwiseKernels &avx512_depthwise_kernels(const DepthwiseAxis &axis, HalfSides halves);
// For results of bfloat16, and sources of it or of float32.
const DepthwiseKernels &avx512_bf16_depthwise_kernels(const DepthwiseAxis &axis, bool is_half);
#endif

}  // namespace stridewise
