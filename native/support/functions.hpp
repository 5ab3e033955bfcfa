// Elementary functions of vectors, with NaN and infinities as IEEE 754 has them. Those of
// support/vectors.hpp, for frequent post-ops, are faster and bounded.
//
// It includes no standard templates, for the reason in winograd/kernels.hpp.
#pragma once

#include "support/vectors.hpp"

namespace stridewise {
namespace {

// The same bits as another type of the same size.
template <class To, class From>
inline To bit_cast(const From &from) {
    static_assert(sizeof(To) == sizeof(From));
    To to;
    __builtin_memcpy(&to, &from, sizeof to);
    return to;
}

// exp(r) for |r| <= ln(2) / 2. Source: Cephes, expf.
template <int N>
inline typename Lanes<N>::V near_exponential(typename Lanes<N>::V r) {
    typename Lanes<N>::V p = Lanes<N>::all(1.9875691500e-4F);
    p = p * r + 1.3981999507e-3F;
    p = p * r + 8.3334519073e-3F;
    p = p * r + 4.1665795894e-2F;
    p = p * r + 1.6666665459e-1F;
    p = p * r + 5.0000001201e-1F;
    return p * (r * r) + r + 1.0F;
}

template <int N>
struct Functions {
    using L = Lanes<N>;
    using V = typename L::V;
    using Mask = typename L::Mask;

    static inline V floats(Mask bits) { return bit_cast<V>(bits); }
    static inline Mask bits(V value) { return bit_cast<Mask>(value); }

    // Multiplication by two powers of 2 overflows and underflows as the exact result does.
    static inline V exponential(V x) {
        constexpr float kWhole = 12582912.0F;  // 1.5 * 2^23: sums with it have no fractions
        x = L::smaller(L::all(89.0F), L::larger(L::all(-104.0F), x));
        const V shifted = x * 1.44269504088896341F + kWhole;
        const V n = shifted - kWhole;
        const V r = (x - n * 0.693359375F) + n * 2.12194440e-4F;
        const V p = near_exponential<N>(r);
        const Mask power = bits(shifted) - bits(L::all(kWhole)), half = power >> 1;
        return p * floats((half + 127) << 23) * floats((power - half + 127) << 23);
    }

    // Source: Cephes, logf.
    static inline V logarithm(V x) {
        const auto tiny = x < 1.17549435e-38F;
        const V scaled = tiny ? x * 8388608.0F : x;
        const Mask raw = bits(scaled);
        Mask exponent = ((raw >> 23) & 0xFF) - 126;
        exponent = tiny ? exponent - 23 : exponent;
        V m = floats((raw & 0x007FFFFF) | 0x3F000000);  // 0.5 <= m < 1
        const auto low = m < 0.707106781186547524F;
        exponent = low ? exponent - 1 : exponent;
        m = (low ? m + m : m) - 1.0F;
        const V e = __builtin_convertvector(exponent, V), square = m * m;
        V p = L::all(7.0376836292e-2F);
        p = p * m - 1.1514610310e-1F;
        p = p * m + 1.1676998740e-1F;
        p = p * m - 1.2420140846e-1F;
        p = p * m + 1.4249322787e-1F;
        p = p * m - 1.6668057665e-1F;
        p = p * m + 2.0000714765e-1F;
        p = p * m - 2.4999993993e-1F;
        p = p * m + 3.3333331174e-1F;
        V found = m * square * p - e * 2.12194440e-4F - 0.5F * square + m + e * 0.693359375F;
        constexpr float kInfinity = __builtin_inff();
        found = x == kInfinity ? x : found;
        found = x == 0.0F ? L::all(-kInfinity) : found;
        return x >= 0.0F ? found : L::all(__builtin_nanf(""));
    }

    // log(1 + x) for x >= 0: the rounding of the sum cancels in the quotient.
    static inline V logarithm_of_next(V x) {
        const V next = 1.0F + x, less = next - 1.0F;
        return less == 0.0F ? x : logarithm(next) * (x / less);
    }

    // exp(x) - 1 for x <= 0; NaN for NaN.
    static inline V exponential_less_one(V x) {
        const V power = exponential(x), less = power - 1.0F;
        const V found = less * (x / logarithm(power));
        return less == 0.0F ? x : (less == -1.0F ? less : found);
    }

    static inline V logistic(V x) { return 1.0F / (1.0F + exponential(-x)); }

    static inline V tangent(V x) {
        const V square = x * x, size = x < 0.0F ? -x : x;
        // Source: Cephes, tanhf; |x| < 0.625.
        V p = L::all(-5.70498872745e-3F);
        p = p * square + 2.06390887954e-2F;
        p = p * square - 5.37397155531e-2F;
        p = p * square + 1.33314422036e-1F;
        p = p * square - 3.33332819422e-1F;
        const V near = x + x * square * p;
        const V far = 1.0F - 2.0F / (exponential(2.0F * size) + 1.0F);
        return size < 0.625F ? near : (x < 0.0F ? -far : far);
    }

    // Polynomials of least squares in Chebyshev's points: erf(x) / x in x * x below 1 (error 1e-9),
    // erfc(x) exp(x * x) in 1 / x from 1 to 4 (error 2e-7); erf(4) rounds to 1.
    static inline V error_function(V x) {
        const V square = x * x;
        V near = L::all(7.847259059e-05F);
        near = near * square - 8.008189304e-04F;
        near = near * square + 5.188098888e-03F;
        near = near * square - 2.685369110e-02F;
        near = near * square + 1.128358225e-01F;
        near = near * square - 3.761262557e-01F;
        near = near * square + 1.128379166e+00F;
        const V size = L::smaller(L::all(4.0F), x < 0.0F ? -x : x), inverse = 1.0F / size;
        V far = L::all(-1.770178906e-02F);
        far = far * inverse + 1.201240372e-01F;
        far = far * inverse - 3.533101480e-01F;
        far = far * inverse + 5.749339077e-01F;
        far = far * inverse - 5.054043274e-01F;
        far = far * inverse + 5.081663002e-02F;
        far = far * inverse + 5.577786110e-01F;
        far = far * inverse + 3.466814206e-04F;
        far = 1.0F - far * exponential(-size * size);
        return size < 1.0F ? near * x : (x < 0.0F ? -far : far);
    }
};

}  // namespace
}  // namespace stridewise
