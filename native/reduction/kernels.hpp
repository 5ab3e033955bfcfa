// The inner loops of reductions, once for each instruction set, behind one table. Files that
// implement it include no standard templates, for the reason in winograd/kernels.hpp.
#pragma once

#include <cstdint>

namespace stridewise {

// Partial results that a loop works on at a time; they stay in registers.
constexpr std::int64_t kReductionLanes = 64;

// Takes in `rows` rows of `count` neighbors each, up to kReductionLanes.
struct ReductionLoop {
    const void *from;  // of the kernel's element type
    std::int64_t count, rows;
    std::int64_t stride;  // elements from one row to the next
    const float *shift;   // for each neighbor, what is subtracted first, where the function does
    float *found;         // for each neighbor, the partial result
};

struct ReductionKernel {
    const char *name;
    std::int64_t nbytes;  // of an element
    float neutral;
    void (*run)(const ReductionLoop &loop);
    // Combines `count` partial results, a power of 2 from 4 on, and overwrites them.
    float (*join)(float *found, std::int64_t count);
    double (*combine)(double a, double b);
};

// By the name of the function, of elements of float32 or of bfloat16; null for one that does not
// exist.
const ReductionKernel *portable_reduction_kernel(const char *name, bool halves);
#ifdef STRIDEWISE_AVX2
const ReductionKernel *avx2_reduction_kernel(const char *name, bool halves);
const ReductionKernel *avx512_reduction_kernel(const char *name, bool halves);
#endif

}  // namespace stridewise
