// The inner loops of softmax and normalizations of rows, once for each instruction set, behind one
// table. Files that implement it include no standard templates, for the reason in
// winograd/kernels.hpp.
#pragma once

#include <cstdint>

namespace stridewise {

// Rows one after the other, of `count` neighbors each.
struct DenseRows {
    const float *from;
    float *to;           // may be `from`
    const float *scale;  // `count` numbers; null for none
    const float *shift;
    std::int64_t count, rows;
    double epsilon;  // what a norm adds to the variance
};

// The longest rows, of which the partial sums of a loop are exact enough in float32.
constexpr std::int64_t kLongestRow = 4096;

// Rows side by side: `width` of them, `stride` elements from one element of a row to the next.
struct SideRows {
    const float *from;
    float *to;  // may be `from`
    std::int64_t count, width, stride;
};

// Rows side by side that are given to a kernel at a time, at most, unless they are all there are.
constexpr std::int64_t kSideRows = 64;

// Rows one after the other, of `count` neighbors each: (x - mean) * factor + shift, which are given
// for each neighbor.
struct ColumnRows {
    const void *from;  // of the kernel's element type
    void *to;          // may be `from`
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
    void (*half_columns)(const ColumnRows &rows);  // of bfloat16
};

const RowKernels &portable_row_kernels();
#ifdef STRIDEWISE_AVX2
const RowKernels &avx2_row_kernels();
const RowKernels &avx512_row_kernels();
#endif

}  // namespace stridewise
