// The inner loops of elementwise operators of two operands, once for each instruction set, behind
// one table. Files that implement it include no standard templates, for the reason in
// winograd/kernels.hpp.
#pragma once

#include <cstdint>

namespace stridewise {

// Rows of results, each contiguous. Strides are in elements.
struct PointwiseRows {
    const float *a, *b;
    float *result;
    std::int64_t rows, count;               // of results, and results in a row
    std::int64_t a_row, b_row, result_row;  // from one row to the next
    std::int64_t a_step, b_step;  // from one operand of a row to the next; 0: all the same
};

struct PointwiseKernels {
    const char *name;
    void (*run)(const PointwiseRows &rows);
};

// By the name of the operation; null for one that does not exist.
const PointwiseKernels *portable_pointwise_kernels(const char *name);
#ifdef STRIDEWISE_AVX2
const PointwiseKernels *avx2_pointwise_kernels(const char *name);
const PointwiseKernels *avx512_pointwise_kernels(const char *name);
#endif

}  // namespace stridewise
