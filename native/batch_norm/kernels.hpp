// The inner loops of batch norm in training: one table for each instruction set. Files that
// implement it include no standard templates, for the reason in winograd/kernels.hpp.
#pragma once

#include <cstdint>

namespace stridewise {

// Rows of neighboring channels, or one row of neighboring pixels of a channel. Images have the
// element type of the kernels; arithmetic and numbers of channels are float32.
struct NormRows {
    const void *source;
    const void *other;  // what is added to results, or the gradient of results; null if unused
    void *result;
    std::int64_t rows, count;  // of one row of pixels, `rows` is 1
    std::int64_t stride;       // elements from one row to the next
    // For each channel. Results are (x - mean) * factor + shift; gradients of the source are
    // dy * factor + (x - mean) * slope + rest.
    const float *mean, *factor, *shift, *slope, *rest;
    // Results are cut to these bounds. Gradients pass where a result lies between them.
    float low, high;
    double *sums, *products;  // for each channel; added to
};

struct NormKernels {
    // Adds up x - mean, and its squares.
    void (*moments)(const NormRows &rows);
    void (*apply)(const NormRows &rows);
    // Adds up dy, and dy * (x - mean).
    void (*sums)(const NormRows &rows);
    void (*gradient)(const NormRows &rows);
};

struct NormKind {
    bool of_pixels;  // rows of pixels of one channel
    bool adds;       // `other` to results
    bool masks;      // gradients, by the bounds
    bool is_half;    // images are stored in bfloat16
};

const NormKernels &portable_norm_kernels(const NormKind &kind);
#ifdef STRIDEWISE_AVX2
const NormKernels &avx2_norm_kernels(const NormKind &kind);
const NormKernels &avx512_norm_kernels(const NormKind &kind);
// Of bfloat16 images.
const NormKernels &avx512_bf16_norm_kernels(const NormKind &kind);
#endif

}  // namespace stridewise
