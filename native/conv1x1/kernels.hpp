// The inner loops of a 1x1 convolution: one table of kernels for each vector width. Files that
// implement it include no standard templates, for the reason in winograd/kernels.hpp.
#pragma once

#include <cstdint>

#include "depthwise/kernels.hpp"

namespace stridewise {

// Some vectors of the source, multiplied by factors into the order of products.
struct ScaleVectors {
    const float *from;
    std::int64_t from_step;  // elements from one vector to the next, here and below
    const float *factors;
    std::int64_t factor_step;
    float *to;
    std::int64_t to_step;
    std::int64_t count;   // whole vectors
    std::int64_t tail;    // elements of a last vector; its other lanes are set to zero
    const Stage *stages;  // without operands
    int stage_count;
};

// Results of products that are stored after the stages that are left.
struct FinishPixels : ResultPixels {
    const float *sums;  // [pixel][2 * lane]
};

// Outputs that are so few that products of vectors of channels, added up, are fewer than those of
// vectors of outputs.
constexpr int kMostDots = 4;
// Limit of the pixels that are summed up at once.
constexpr int kMostDotRows = 8;

struct Conv1x1Kernels {
    int lanes;                                   // elements of a vector
    int row_count;                               // pixels of one matrix product
    void (*scale)(const ScaleVectors &vectors);  // null for bfloat16
    // By whether pixels have any stride, and whether both vectors of a pair are computed; sums are
    // float32. Pixels of bfloat16 always have strides.
    void (*multiply[2][2])(const ExpandProduct &product);
    // The same; results have their type.
    void (*store[2][2])(const ExpandProduct &product);
    void (*finish)(const FinishPixels &pixels);
    // The same for results of bfloat16; null in tables of pairs.
    void (*finish_half)(const FinishPixels &pixels);
    // Sums of a few outputs, by their number: pixels in vectors of the elements of a run. Weights
    // are [output][run][channel], and at most dot_rows pixels are summed up at once.
    int dot_rows[kMostDots];
    void (*dot[kMostDots])(const ExpandProduct &product);
    // Copies `count` pixels whose channels are `plane` elements apart to [pixel][channel]. By
    // whether they are bfloat16.
    void (*interleave[2])(const void *from, std::int64_t plane, std::int64_t channels,
                          std::int64_t count, float *to);
};

const Conv1x1Kernels &portable_conv1x1_kernels(int lanes);
// Those that multiply pairs of bfloat16; with `half`, results are bfloat16, too.
const Conv1x1Kernels &portable_conv1x1_pair_kernels(int lanes, bool half);
#ifdef STRIDEWISE_AVX2
const Conv1x1Kernels &avx2_conv1x1_kernels();
const Conv1x1Kernels &avx512_conv1x1_kernels();
const Conv1x1Kernels &avx512_bf16_conv1x1_pair_kernels(bool half);
#endif

}  // namespace stridewise
