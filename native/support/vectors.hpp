// Vectors of any width by compiler extensions, and the vector functions of post-ops.
//
// It includes no standard templates, for the reason in winograd/kernels.hpp.
#pragma once

#include <cstdint>

#include "support/bfloat16.hpp"

namespace stridewise {
namespace {

template <int N>
struct VectorOf {
    typedef float Type __attribute__((vector_size(N * sizeof(float))));
    typedef float Unaligned
        __attribute__((vector_size(N * sizeof(float)), aligned(sizeof(float)), may_alias));
    typedef std::int32_t Mask __attribute__((vector_size(N * sizeof(float))));
    typedef std::uint32_t Words __attribute__((vector_size(N * sizeof(float))));
    typedef std::uint16_t Halves __attribute__((vector_size(N * sizeof(Bfloat16))));
    typedef std::uint16_t UnalignedHalves
        __attribute__((vector_size(N * sizeof(Bfloat16)), aligned(sizeof(Bfloat16)), may_alias));
};

template <int N>
struct Lanes {
    using V = typename VectorOf<N>::Type;
    using Unaligned = typename VectorOf<N>::Unaligned;
    using Mask = typename VectorOf<N>::Mask;
    using Words = typename VectorOf<N>::Words;
    using Halves = typename VectorOf<N>::Halves;
    using UnalignedHalves = typename VectorOf<N>::UnalignedHalves;

    static inline V load(const float *from) { return *reinterpret_cast<const Unaligned *>(from); }
    static inline void store(float *to, V value) { *reinterpret_cast<Unaligned *>(to) = value; }
    static inline V load(const Bfloat16 *from) {
        const Halves halves = *reinterpret_cast<const UnalignedHalves *>(from);
        return number(__builtin_convertvector(halves, Words) << 16);
    }
    static inline void store(Bfloat16 *to, V value) {
        *reinterpret_cast<UnalignedHalves *>(to) = rounded(value);
    }
    // To the nearest, ties to even. Files for instruction sets that round define their own.
    static inline Halves rounded(V value) {
        Words bits;
        __builtin_memcpy(&bits, &value, sizeof bits);
        const Words nearest = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16;
        return __builtin_convertvector(value == value ? nearest : (bits >> 16) | 0x40, Halves);
    }
    static inline V all(float value) { return value - V{}; }
    // Adds the products of pairs of bfloat16: of both halves of each element, even ones first.
    static inline V add_pairs(V sum, V a, V b) {
        Words x, y;
        __builtin_memcpy(&x, &a, sizeof x);
        __builtin_memcpy(&y, &b, sizeof y);
        sum += number(x << 16) * number(y << 16);
        return sum + number(x & 0xFFFF0000U) * number(y & 0xFFFF0000U);
    }
    static inline V number(Words bits) {
        V value;
        __builtin_memcpy(&value, &bits, sizeof value);
        return value;
    }
    // Broadcasts one element from memory. Each file defines it for its instruction set.
    static inline V spread(const float *from);
    static inline V load_some(const float *from, std::int64_t count) {
        V value{};
        for (int lane = 0; lane < N; ++lane) {
            if (lane < count) value[lane] = from[lane];
        }
        return value;
    }
    static inline void store_some(float *to, V value, std::int64_t count) {
        for (int lane = 0; lane < N; ++lane) {
            if (lane < count) to[lane] = value[lane];
        }
    }
    static inline V load_some(const Bfloat16 *from, std::int64_t count) {
        Bfloat16 some[N] = {};
        for (int lane = 0; lane < N; ++lane) {
            if (lane < count) some[lane] = from[lane];
        }
        return load(some);
    }
    static inline void store_some(Bfloat16 *to, V value, std::int64_t count) {
        Bfloat16 some[N];
        store(some, value);
        for (int lane = 0; lane < N; ++lane) {
            if (lane < count) to[lane] = some[lane];
        }
    }
    // Comparisons with NaN are false, so a NaN in the second argument is propagated.
    static inline V larger(V a, V b) { return a > b ? a : b; }
    static inline V smaller(V a, V b) { return a < b ? a : b; }
    static inline V without(V value, std::int64_t count) {
        for (int lane = 0; lane < N; ++lane) {
            if (lane >= count) value[lane] = 0.0F;
        }
        return value;
    }
    static inline V exponential(V x);
    static inline V logistic(V x) {
        // The exponential is bounded, so results for very small x would not be zero, which would be
        // visible in the product with x.
        return x < -87.0F ? V{} : 1.0F / (1.0F + exponential(-x));
    }
    static inline V absolute(V x) { return x < 0.0F ? -x : x; }
    static V tangent(V x);
    // For functions without a fast vector implementation.
    template <typename Function>
    static inline V each(V x, const Function &function) {
        for (int lane = 0; lane < N; ++lane) x[lane] = function(x[lane]);
        return x;
    }
};

// exp(x) = 2^n exp(r), |r| <= ln(2) / 2, by a polynomial with the least relative error in float32;
// relative error 4e-7.
template <int N>
inline typename Lanes<N>::V Lanes<N>::exponential(V x) {
    // Adding it leaves no fraction bits and puts n into the low bits.
    constexpr float kWhole = 12582912.0F;  // 1.5 * 2^23
    x = smaller(all(88.0F), larger(all(-87.0F), x));
    const V shifted = x * 1.44269504088896341F + kWhole;
    const V n = shifted - kWhole;
    const V r = x - n * 0.69314718055994531F;
    V p = all(8.297647350e-3F);
    p = p * r + 4.191543162e-2F;
    p = p * r + 1.666757464e-1F;
    p = p * r + 4.999889433e-1F;
    p = p * r + 9.999997020e-1F;
    p = p * r + 1.000000119F;
    // Adds n to the exponent of p, which is 0 or -1.
    Mask bits, power;
    __builtin_memcpy(&bits, &p, sizeof bits);
    __builtin_memcpy(&power, &shifted, sizeof power);
    bits += power << 23;
    __builtin_memcpy(&p, &bits, sizeof p);
    return p;
}

// tanh(x) = 1 - 2 / (exp(2x) + 1), which cancels near zero; there by a polynomial.
template <int N>
typename Lanes<N>::V Lanes<N>::tangent(V x) {
    // Cephes' tanhf, |x| < 0.625: relative error 1e-7.
    const V square = x * x;
    V p = all(-5.70498872745e-3F);
    p = p * square + 2.06390887954e-2F;
    p = p * square - 5.37397155531e-2F;
    p = p * square + 1.33314422036e-1F;
    p = p * square - 3.33332819422e-1F;
    const V near = x + x * square * p;
    const V size = absolute(x);
    const V far = 1.0F - 2.0F / (exponential(2.0F * size) + 1.0F);
    return size < 0.625F ? near : (x < 0.0F ? -far : far);
}

}  // namespace
}  // namespace stridewise
