// The inner loops of elementwise operators, once for each instruction set, behind one table. Files
// that implement it include no standard templates, for the reason in winograd/kernels.hpp.
#pragma once

#include <cstdint>

#include "support/bfloat16.hpp"

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

// Loops over elements that are stored in bfloat16 and computed in float32.
struct Bfloat16Loops {
    void (*widen)(const Bfloat16 *from, float *to, std::int64_t count);
    void (*round)(const float *from, Bfloat16 *to, std::int64_t count);
};

// What stored integers stand for: (stored - zero) * scale.
struct Grid {
    float scale, zero;
};

// The last operation of an expression, which the loop that stores its results computes.
struct StoredOperation {
    enum Kind { none, sum, product };
    Kind kind;
    bool is_rectified;  // negative results are stored as the number 0
};

// Stored integers times factors plus terms, in units of the result's scale: a batch norm, for
// instance. Both are finite, and there is one of each element.
struct ByteAffine {
    const float *factors, *terms;
    Grid to;
    bool is_rectified;  // as in StoredOperation
};

// Loops over elements that are stored as integers of 8 bits and computed in float32. Numbers are
// rounded half to even and saturated; NaN is stored as the number 0.
template <class Byte>
struct ByteLoopsOf {
    void (*widen)(const Byte *from, float *to, std::int64_t count, Grid grid);
    // Products with other numbers.
    void (*multiply)(const Byte *from, const float *other, float *to, std::int64_t count,
                     Grid grid);
    // `other` is the second operand of the operation, if it has one.
    void (*round)(const float *from, const float *other, Byte *to, std::int64_t count, Grid grid,
                  StoredOperation operation);
    // Of elements of the type to those of either type, in one pass.
    void (*affine_to_s8)(const Byte *from, std::int8_t *to, std::int64_t count,
                         const ByteAffine &affine);
    void (*affine_to_u8)(const Byte *from, std::uint8_t *to, std::int64_t count,
                         const ByteAffine &affine);
};

struct ByteLoops {
    ByteLoopsOf<std::int8_t> s8;
    ByteLoopsOf<std::uint8_t> u8;
    // From factors and terms of real numbers to those of ByteAffine; whether all are finite.
    bool (*fold)(const float *factors, const float *terms, float *to_factors, float *to_terms,
                 std::int64_t count, Grid from, Grid to);
};

// By the name of the operation; null for one that does not exist.
const PointwiseKernel *portable_pointwise_kernel(const char *name);
const Bfloat16Loops &portable_bfloat16_loops();
const ByteLoops &portable_byte_loops();
#ifdef STRIDEWISE_AVX2
const PointwiseKernel *avx2_pointwise_kernel(const char *name);
const PointwiseKernel *avx512_pointwise_kernel(const char *name);
const Bfloat16Loops &avx2_bfloat16_loops();
const Bfloat16Loops &avx512_bfloat16_loops();
const Bfloat16Loops &avx512_bf16_bfloat16_loops();
const ByteLoops &avx2_byte_loops();
const ByteLoops &avx512_byte_loops();
#endif

}  // namespace stridewise
