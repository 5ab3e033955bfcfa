// The inner loops of elementwise operators, once for each instruction set, behind one table. Files
// that implement it include no standard templates, for the reason in winograd/kernels.hpp.
#pragma once

#include <cstdint>

namespace stridewise {

// Counts of elements in a loop are multiples of this one.
constexpr std::int64_t kPointwiseLanes = 16;

// Contiguous operands and results; results may overwrite an operand.
struct PointwiseLoop {
    const float *a, *b, *c;  // as many as the operation has
    float *result;
    std::int64_t count;
    float alpha, beta;
};

struct PointwiseKernel {
    const char *name;
    int operands;
    void (*run)(const PointwiseLoop &loop);
};

// By the name of the operation; null for one that does not exist.
const PointwiseKernel *portable_pointwise_kernel(const char *name);
#ifdef STRIDEWISE_AVX2
const PointwiseKernel *avx2_pointwise_kernel(const char *name);
const PointwiseKernel *avx512_pointwise_kernel(const char *name);
#endif

}  // namespace stridewise
