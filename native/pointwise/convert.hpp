// Loops over elements that are stored in other types than float32, in vectors of any width.
//
// It includes no standard templates, for the reason in winograd/kernels.hpp.
#pragma once

#include "pointwise/kernels.hpp"
#include "support/vectors.hpp"

namespace stridewise {
namespace {

template <int N, class From, class To>
void convert(const From *from, To *to, std::int64_t count) {
    using L = Lanes<N>;
    for (; count >= N; count -= N, from += N, to += N) L::store(to, L::load(from));
    L::store_some(to, L::load_some(from, count), count);
}

template <int N>
constexpr Bfloat16Loops kBfloat16Loops{convert<N, Bfloat16, float>, convert<N, float, Bfloat16>};

template <class Byte>
void widen_bytes(const Byte *from, float *to, std::int64_t count, Grid grid) {
#pragma GCC ivdep
    for (std::int64_t i = 0; i < count; ++i) {
        to[i] = (static_cast<float>(from[i]) - grid.zero) * grid.scale;
    }
}

template <class Byte>
void multiply_bytes(const Byte *from, const float *other, float *to, std::int64_t count,
                    Grid grid) {
#pragma GCC ivdep
    for (std::int64_t i = 0; i < count; ++i) {
        to[i] = (static_cast<float>(from[i]) - grid.zero) * grid.scale * other[i];
    }
}

// Return x / scale as it is rounded, without a division, which takes longer.
//
// Source: Markstein 1990, Computation of elementary functions on the IBM RISC System/6000
// processor, theorem 7. The reciprocal is rounded to the nearest, and no intermediate result
// underflows.
inline float quotient(float x, float scale, float reciprocal) {
#ifdef __FMA__
    const float near = x * reciprocal;
    return __builtin_fmaf(__builtin_fmaf(-near, scale, x), reciprocal, near);
#else
    (void)reciprocal;
    return x / scale;
#endif
}

// Whether results of a scale can be computed by its reciprocal.
inline bool is_moderate(float scale) {
    constexpr float kMost = 1152921504606846976.0F;  // 2^60
    return scale >= 1.0F / kMost && scale <= kMost;
}

// Numbers to integers. The zero point comes after the rounding, as in ONNX: of odd ones halves go
// the other way.
template <class Byte, bool kDivides>
struct ToBytes {
    // Sums with it have no fractions, and the number in their last bits.
    static constexpr float kWhole = 12582912.0F;  // 1.5 * 2^23
    static constexpr float kLow = static_cast<Byte>(-1) < 0 ? -128.0F : 0.0F;
    float scale, reciprocal, low, high;
    std::int32_t zero;

    ToBytes(Grid grid, bool is_rectified)
        : scale(grid.scale),
          reciprocal(1.0F / grid.scale),
          zero(static_cast<std::int32_t>(grid.zero)) {
        const float least = kLow - grid.zero, unit = kDivides ? 1.0F : scale;
        low = unit * (is_rectified && least < 0.0F ? 0.0F : least);
        high = unit * (least + 255.0F);
    }

    inline Byte operator()(float x) const {
        if (kDivides) x /= scale;
        return stored(x == x ? x : 0.0F);
    }

    // Of a number that is no NaN, and in units of the scale where that is divided by.
    inline Byte stored(float x) const {
        x = low > x ? low : x;
        x = high < x ? high : x;
        const float shifted = (kDivides ? x : quotient(x, scale, reciprocal)) + kWhole;
        std::int32_t bits;
        __builtin_memcpy(&bits, &shifted, sizeof bits);
        return static_cast<Byte>(bits + zero);
    }
};

template <class Byte, StoredOperation::Kind kKind, bool kDivides>
void round_results(const float *from, const float *other, Byte *to, std::int64_t count,
                   ToBytes<Byte, kDivides> rounded) {
#pragma GCC ivdep
    for (std::int64_t i = 0; i < count; ++i) {
        float x = from[i];
        if (kKind == StoredOperation::sum) x += other[i];
        if (kKind == StoredOperation::product) x *= other[i];
        to[i] = rounded(x);
    }
}

template <class Byte, bool kDivides>
void round_some(const float *from, const float *other, Byte *to, std::int64_t count,
                ToBytes<Byte, kDivides> rounded, StoredOperation::Kind kind) {
    constexpr decltype(&round_results<Byte, StoredOperation::none, kDivides>) kLoops[] = {
        round_results<Byte, StoredOperation::none, kDivides>,
        round_results<Byte, StoredOperation::sum, kDivides>,
        round_results<Byte, StoredOperation::product, kDivides>};
    kLoops[kind](from, other, to, count, rounded);
}

template <class Byte>
void round_bytes(const float *from, const float *other, Byte *to, std::int64_t count, Grid grid,
                 StoredOperation operation) {
    const bool rectifies = operation.is_rectified;
    if (is_moderate(grid.scale)) {
        const ToBytes<Byte, false> rounded(grid, rectifies);
        round_some(from, other, to, count, rounded, operation.kind);
    } else {
        const ToBytes<Byte, true> rounded(grid, rectifies);
        round_some(from, other, to, count, rounded, operation.kind);
    }
}

bool fold_affine(const float *factors, const float *terms, float *to_factors, float *to_terms,
                 std::int64_t count, Grid from, Grid to) {
    const float factor = from.scale / to.scale, term = 1.0F / to.scale;
    std::int32_t beyond = 0;
#pragma GCC ivdep
    for (std::int64_t i = 0; i < count; ++i) {
        const float scaled = factors[i] * factor, shifted = terms[i] * term - from.zero * scaled;
        to_factors[i] = scaled;
        to_terms[i] = shifted;
        // Differences of infinities and of NaN are NaN.
        beyond |= static_cast<std::int32_t>(scaled - scaled != 0.0F) |
                  static_cast<std::int32_t>(shifted - shifted != 0.0F);
    }
    return beyond == 0;
}

template <class From, class To>
void affine_bytes(const From *from, To *to, std::int64_t count, const ByteAffine &affine) {
    const float *factors = affine.factors, *terms = affine.terms;
    const ToBytes<To, true> rounded({1.0F, affine.to.zero}, affine.is_rectified);
#pragma GCC ivdep
    for (std::int64_t i = 0; i < count; ++i) {
        to[i] = rounded.stored(static_cast<float>(from[i]) * factors[i] + terms[i]);
    }
}

template <class Byte>
constexpr ByteLoopsOf<Byte> kByteLoopsOf{widen_bytes<Byte>, multiply_bytes<Byte>, round_bytes<Byte>,
                                         affine_bytes<Byte, std::int8_t>,
                                         affine_bytes<Byte, std::uint8_t>};

constexpr ByteLoops kByteLoops{kByteLoopsOf<std::int8_t>, kByteLoopsOf<std::uint8_t>, fold_affine};

}  // namespace
}  // namespace stridewise
