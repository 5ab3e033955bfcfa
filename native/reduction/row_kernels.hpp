// The inner loops of softmax and normalizations of rows, once for each instruction set, behind one
// table. Files that implement it include no standard templates, for the reason in
// winograd/kernels.hpp.
#pragma once

#include <cstdint>

#include "support/bfloat16.hpp"

namespace stridewise {

// Rows one after the other, of `count` neighbors each, of the element types of the kernels.
struct DenseRows {
    const void *from;
    void *to;            // may be `from` if the types are the same
    const float *scale;  // `count` numbers; null for none
    const float *shift;
    std::int64_t count, rows;
    double epsilon;  // what a norm adds to the variance
};

// The longest rows, of which the partial sums of a loop are exact enough in float32.
constexpr std::int64_t kLongestRow = 4096;

// Rows of float32 side by side: `width` of them, `stride` elements from one element of a row to the
// next.
struct SideRows {
    const float *from;
    float *to;  // may be `from`
    std::int64_t count, width, stride;
};

// Rows side by side that are given to a kernel at a time, at most, unless they are all there are.
constexpr std::int64_t kSideRows = 64;

// Rows as those above: (x - mean) * factor + shift, which are given for each neighbor.
struct ColumnRows {
    const void *from;
    void *to;
    const float *mean, *factor, *shift;
    std::int64_t count, rows;
};

// Without scale and shift, except of norms.
struct RowKernels {
    void (*softmax)(const DenseRows &rows);
    void (*log_softmax)(const DenseRows &rows);
    void (*norm)(const DenseRows &rows);
    void (*side_softmax)(const SideRows &rows);
    void (*side_log_softmax)(const SideRows &rows);
    void (*columns)(const ColumnRows &rows);
};

const RowKernels &portable_row_kernels(HalfSides halves);
#ifdef STRIDEWISE_AVX2
const RowKernels &avx2_row_kernels(HalfSides halves);
const RowKernels &avx512_row_kernels(HalfSides halves);
#endif

}  // namespace stridewise
