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

// Registers that a vector of N lanes takes, with the instructions of this file.
#if defined(__AVX512F__)
constexpr int kRegisterLanes = 16;
#elif defined(__AVX__)
constexpr int kRegisterLanes = 8;
#else
constexpr int kRegisterLanes = 4;
#endif
template <int N>
constexpr int kRegisters = N > kRegisterLanes ? N / kRegisterLanes : 1;

constexpr float kLog2e = 1.44269504088896341F;

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
    // NaN in either argument is propagated.
    static inline V larger_or_nan(V a, V b) {
        const V found = larger(a, b);
        return a == a ? found : a;
    }
    static inline V smaller_or_nan(V a, V b) {
        const V found = smaller(a, b);
        return a == a ? found : a;
    }
    static inline V without(V value, std::int64_t count) {
        for (int lane = 0; lane < N; ++lane) {
            if (lane >= count) value[lane] = 0.0F;
        }
        return value;
    }
    // The sum of all lanes, of one half and the other first. Files for instruction sets that
    // shuffle define their own.
    static inline float total(V value) {
        for (int half = N / 2; half > 0; half /= 2) {
            for (int lane = 0; lane < half; ++lane) value[lane] += value[lane + half];
        }
        return value[0];
    }
    // The nearest whole numbers, ties to even. Files for instruction sets that round define their
    // own.
    static inline V whole(V x) {
        constexpr float kWhole = 8388608.0F;  // 2^23: from it on, there are no fractions
        const V sign = x < 0.0F ? all(-kWhole) : all(kWhole);
        const V found = (x + sign) - sign;
        return absolute(x) < kWhole ? found : x;
    }
    // Files for instruction sets with instructions for exponents define their own.
    static inline V power_of_two(V x);
    // Files for results of fewer bits define their own.
    static inline V quotient(V a, V b) { return a / b; }
    static inline V logistic(V x) { return quotient(all(1.0F), 1.0F + power_of_two(x * -kLog2e)); }
    // x logistic(alpha x)
    static inline V swish(V x, V alpha) {
        return quotient(x, 1.0F + power_of_two(x * (alpha * -kLog2e)));
    }
    // The same for results that are stored as bytes. Files that define their own are within 7e-5 of
    // it, which is 0.02 steps of 255 at most.
    static inline V coarse_swish(V x, V alpha) { return swish(x, alpha); }
    static inline V absolute(V x) { return x < 0.0F ? -x : x; }
    static V tangent(V x);
    // x times the normal distribution function of x
    static V gelu(V x);
    // The numbers of the lanes.
    static inline Mask counted() {
        Mask found;
        for (int lane = 0; lane < N; ++lane) found[lane] = lane;
        return found;
    }
    // In each lane, the element of another one. Files for instruction sets that permute define
    // their own, which are inlined.
    static V picked(V value, Mask from);
    // For functions without a fast vector implementation.
    template <typename Function>
    static inline V each(V x, const Function &function) {
        for (int lane = 0; lane < N; ++lane) x[lane] = function(x[lane]);
        return x;
    }
};

// 2^r for |r| <= 1/2, relative error 9.2e-8: exact at zero, else the least error in float32.
constexpr float kPowerOfTwo[] = {
    1.0F, 6.931469776e-1F, 2.402224209e-1F, 5.550733743e-2F, 9.671512640e-3F, 1.326472719e-3F};

// The same within 3e-6, exact at zero.
constexpr float kCoarsePowerOfTwo[] = {1.0F, 6.9312419e-1F, 2.4024099e-1F, 5.5906425e-2F,
                                       9.5828530e-3F};

// A polynomial of coefficients, the constant one first.
template <int N, int Count>
inline typename Lanes<N>::V polynomial(const float (&coefficients)[Count], typename Lanes<N>::V r) {
    typename Lanes<N>::V p = Lanes<N>::all(coefficients[Count - 1]);
#pragma GCC unroll 5
    for (int i = Count - 2; i >= 0; --i) p = p * r + coefficients[i];
    return p;
}

template <int N>
inline typename Lanes<N>::V near_power_of_two(typename Lanes<N>::V r) {
    return polynomial<N>(kPowerOfTwo, r);
}

template <int N>
inline typename Lanes<N>::V coarse_power_of_two(typename Lanes<N>::V r) {
    return polynomial<N>(kCoarsePowerOfTwo, r);
}

// 2^x = 2^n 2^r, with n the nearest whole number. Infinite from 128, and 2^-125 below -125.
template <int N>
inline typename Lanes<N>::V Lanes<N>::power_of_two(V x) {
    // Adding it leaves no fraction bits and puts n + 126 into the low bits, which become the bits
    // of 2^(n - 1). A product with it keeps NaN, whose bits would not survive a sum with n.
    constexpr float kWhole = 12582912.0F + 126.0F;  // 1.5 * 2^23
    x = smaller(all(128.0F), larger(all(-125.0F), x));
    const V shifted = x + kWhole;
    const V p = near_power_of_two<N>(x - (shifted - kWhole));
    Words power;
    __builtin_memcpy(&power, &shifted, sizeof power);
    return (p + p) * number(power << 23);
}

template <int N>
__attribute__((noinline)) typename Lanes<N>::V Lanes<N>::picked(V value, Mask from) {
    V found;
    for (int lane = 0; lane < N; ++lane) found[lane] = value[from[lane]];
    return found;
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
    const V far = 1.0F - 2.0F / (power_of_two(size * (2.0F * kLog2e)) + 1.0F);
    return size < 0.625F ? near : (x < 0.0F ? -far : far);
}

// Rational approximation of the distribution function less 1/2, over x, in x * x: error 7e-9 below
// 5.5. There it is above 1/2, and clipped, so that large negative values give zero.
constexpr float kNormal[] = {3.989422358e-1F, 3.378611352e-2F, 4.674393100e-3F,
                             1.682626593e-4F, 6.361105308e-6F, 2.290277632e-8F};
constexpr float kNormalDivisor[] = {
    1.0F, 2.513551655e-1F, 2.861085491e-2F, 1.881397248e-3F, 7.352639565e-5F, 1.202474822e-6F};

template <int N>
inline typename Lanes<N>::V Lanes<N>::gelu(V x) {
    const V near = smaller(all(5.5F), larger(all(-5.5F), x)), square = near * near;
    V p = all(kNormal[5]), q = all(kNormalDivisor[5]);
#pragma GCC unroll 5
    for (int i = 4; i >= 0; --i) {
        p = p * square + kNormal[i];
        q = q * square + kNormalDivisor[i];
    }
    const V found = smaller(all(0.5F), larger(all(-0.5F), near * p / q));
    return x * (found + 0.5F);
}

}  // namespace
}  // namespace stridewise
