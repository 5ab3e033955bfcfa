// Functions of vectors whose intermediate results need float64: powers and trigonometric functions.
//
// It includes no standard templates, for the reason in winograd/kernels.hpp.
#pragma once

#include "support/functions.hpp"

namespace stridewise {
namespace {

// Half of N lanes.
template <int N>
struct HalfOf {
    typedef float Type __attribute__((vector_size(N / 2 * sizeof(float))));
    typedef std::int32_t Mask __attribute__((vector_size(N / 2 * sizeof(float))));
    typedef double Wide __attribute__((vector_size(N / 2 * sizeof(double))));
    typedef std::int64_t Bits __attribute__((vector_size(N / 2 * sizeof(double))));
};

// A vector of N floats is two vectors of float64 here.
template <int N>
struct WideFunctions {
    using L = Lanes<N>;
    using V = typename L::V;
    using Mask = typename L::Mask;
    using F = Functions<N>;
    using Half = typename HalfOf<N>::Type;
    using HalfMask = typename HalfOf<N>::Mask;
    using Wide = typename HalfOf<N>::Wide;
    using Bits = typename HalfOf<N>::Bits;

    // x^y as IEEE 754 has it, within 1 unit in the last place.
    static V power(V x, V y) {
        const V size = F::floats(F::bits(x) & 0x7FFFFFFF);
        Wide bases[2], exponents[2], found[2];
        widen(size, bases);
        widen(y, exponents);
        for (int i = 0; i < 2; ++i) found[i] = power_of_two(exponents[i] * logarithm(bases[i]));
        V result = narrow(found);
        constexpr float kInfinity = __builtin_inff();
        const V half = y * 0.5F;
        const Mask is_whole = L::whole(y) == y;
        const Mask is_odd = is_whole & (L::whole(half) != half);
        result = (F::bits(x) < 0) & is_odd ? -result : result;
        result = (x < 0.0F) & (size < kInfinity) & ~is_whole ? L::all(__builtin_nanf("")) : result;
        result = x != x ? x : result;
        const Mask is_endless = F::bits(y) << 1 == F::bits(L::all(kInfinity)) << 1;
        const Mask is_one = (y == 0.0F) | (x == 1.0F) | ((size == 1.0F) & is_endless);
        return is_one ? L::all(1.0F) : result;
    }

    static V sine(V x) { return turned(x, 0); }
    static V cosine(V x) { return turned(x, 1); }

  private:
    // Sums with it have no fractions, and the low bits of a whole number.
    static constexpr double kWhole = 6755399441055744.0;  // 1.5 * 2^52

    static inline Wide all(double value) { return value - Wide{}; }

    static inline void widen(V x, Wide *to) {
        Half halves[2];
        __builtin_memcpy(halves, &x, sizeof x);
        for (int i = 0; i < 2; ++i) {
            const Half half = halves[i];
            to[i] = __builtin_convertvector(half, Wide);
        }
    }
    static inline V narrow(const Wide *from) {
        Half halves[2];
        for (int i = 0; i < 2; ++i) {
            const Wide half = from[i];
            halves[i] = __builtin_convertvector(half, Half);
        }
        V x;
        __builtin_memcpy(&x, halves, sizeof x);
        return x;
    }

    // log2(x) for x >= 0: of the exponent, and of a mantissa m between sqrt(1/2) and sqrt(2) by
    // 2 atanh((m - 1) / (m + 1)) / ln(2), a polynomial of least relative error (4e-12).
    static inline Wide logarithm(Wide x) {
        // Instructions convert no 64-bit integers before AVX-512: these are the low bits of a sum.
        constexpr std::int64_t kExponents = 0x4330000000000000;  // 2^52
        constexpr std::int64_t kMantissa = 0x000FFFFFFFFFFFFF, kOne = 0x3FF0000000000000;
        const Bits raw = bit_cast<Bits>(x);
        Wide exponent =
            bit_cast<Wide>(((raw >> 52) & 0x7FF) | kExponents) - (4503599627370496.0 + 1023);
        Wide m = bit_cast<Wide>((raw & kMantissa) | kOne);
        const Bits is_large = m > 1.4142135623730951;
        m = is_large ? m * 0.5 : m;
        exponent = is_large ? exponent + 1.0 : exponent;
        const Wide s = (m - 1.0) / (m + 1.0), square = s * s;
        Wide p = all(0.34072731065529666);
        p = p * square + 0.41167288351222275;
        p = p * square + 0.57708358194230969;
        p = p * square + 0.96179667335954533;
        p = p * square + 2.8853900817900717;
        const Wide found = exponent + s * p;
        constexpr double kInfinity = __builtin_inf();
        return x == 0.0 ? all(-kInfinity) : (x == kInfinity ? x : found);
    }

    // 2^x, of least relative error (3e-9). Beyond the exponents of float32 it is infinite or zero
    // once it is rounded.
    static inline Wide power_of_two(Wide x) {
        x = x > 1000.0 ? all(1000.0) : (x < -1000.0 ? all(-1000.0) : x);
        const Wide shifted = x + kWhole, r = x - (shifted - kWhole);
        Wide p = all(0.00015469731982445519);
        p = p * r + 0.0013400432165251623;
        p = p * r + 0.0096180256029416503;
        p = p * r + 0.055503272142095349;
        p = p * r + 0.24022651213595259;
        p = p * r + 0.69314720671062002;
        p = p * r + 0.9999999999595488;
        return p * bit_cast<Wide>((bit_cast<Bits>(shifted) + 1023) << 52);
    }

    // The sine of x and of `quarters` quarters of a turn.
    static inline V turned(V x, int quarters) {
        // Multiples of pi / 2 up to 2^20 have a product with its first 33 bits that is exact.
        constexpr float kLargest = 1.0e6F;
        constexpr double kInverse = 0.63661977236758138, kFirst = 1.5707963267341256,
                         kRest = 6.0771005065061922e-11;
        Wide wide[2], rests[2];
        HalfMask counts[2];
        widen(x, wide);
        for (int i = 0; i < 2; ++i) {
            const Wide shifted = wide[i] * kInverse + kWhole, count = shifted - kWhole;
            rests[i] = (wide[i] - count * kFirst) - count * kRest;
            const Bits low = bit_cast<Bits>(shifted);
            counts[i] = __builtin_convertvector(low, HalfMask);
        }
        Mask count;
        __builtin_memcpy(&count, counts, sizeof count);
        count += quarters;
        const V r = narrow(rests), square = r * r;
        // Source: Cephes, sinf and cosf; |r| <= pi / 4.
        V p = L::all(-1.9515295891e-4F), q = L::all(2.443315711809948e-5F);
        p = p * square + 8.3321608736e-3F;
        q = q * square - 1.388731625493765e-3F;
        p = p * square - 1.6666654611e-1F;
        q = q * square + 4.166664568298827e-2F;
        const V sine = r + r * square * p, cosine = 1.0F - 0.5F * square + square * square * q;
        V found = (count & 1) != 0 ? cosine : sine;
        found = (count & 2) != 0 ? -found : found;
        found = (x == 0.0F) & ((count & 1) == 0) ? x : found;  // keeps the sign of zero
        return has_any(~(L::absolute(x) <= kLargest)) ? exact(x, found, quarters, kLargest) : found;
    }

    static inline bool has_any(Mask mask) {
        std::int32_t found = 0;
        for (int lane = 0; lane < N; ++lane) found |= mask[lane];
        return found != 0;
    }

    // Replaces the results of large numbers, infinities and NaN.
    __attribute__((noinline)) static V exact(V x, V found, int quarters, float largest) {
        for (int lane = 0; lane < N; ++lane) {
            if (__builtin_fabsf(x[lane]) <= largest) continue;
            found[lane] = quarters == 0 ? __builtin_sinf(x[lane]) : __builtin_cosf(x[lane]);
        }
        return found;
    }
};

}  // namespace
}  // namespace stridewise
