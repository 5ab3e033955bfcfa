// Scalar conversions between float32 and each element type.
//
// Everything here has internal linkage: the files that include it are compiled for different
// instruction sets and must not share template instances.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "reorder/kernels.hpp"

namespace stridewise {
namespace {

template <typename To, typename From>
inline To bits_as(From value) {
    static_assert(sizeof(To) == sizeof(From), "bits are only renamed");
    To result;
    std::memcpy(&result, &value, sizeof result);
    return result;
}

struct F32 {
    using Type = float;
    static constexpr bool kWhole = false;
    static float load(Type x) { return x; }
    static Type store(float x) { return x; }
};

// Rounds to nearest, ties to even; NaN stays NaN.
struct Bf16 {
    using Type = std::uint16_t;
    static constexpr bool kWhole = false;
    static float load(Type x) { return bits_as<float>(static_cast<std::uint32_t>(x) << 16); }
    static Type store(float x) {
        const auto bits = bits_as<std::uint32_t>(x);
        if (x != x) return static_cast<Type>((bits >> 16) | 0x40);
        return static_cast<Type>((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
    }
};

// Rounds to nearest, ties to even; overflows to infinity above 65504.
struct F16 {
    using Type = std::uint16_t;
    static constexpr bool kWhole = false;
    static float load(Type x) {
        const std::uint32_t sign = static_cast<std::uint32_t>(x & 0x8000) << 16;
        const std::uint32_t exponent = (x >> 10) & 0x1F;
        const std::uint32_t fraction = x & 0x3FF;
        if (exponent == 0) {
            const float value = static_cast<float>(fraction) * 0x1p-24F;
            return bits_as<float>(bits_as<std::uint32_t>(value) | sign);
        }
        if (exponent == 31) {
            const std::uint32_t quiet = fraction != 0 ? 0x400000 : 0;
            return bits_as<float>(sign | 0x7F800000 | quiet | fraction << 13);
        }
        return bits_as<float>(sign | (exponent + 112) << 23 | fraction << 13);
    }
    static Type store(float x) {
        const auto bits = bits_as<std::uint32_t>(x);
        const std::uint32_t sign = (bits >> 16) & 0x8000;
        const std::uint32_t magnitude = bits & 0x7FFFFFFF;
        if (magnitude > 0x7F800000) {
            return static_cast<Type>(sign | 0x7E00 | ((magnitude >> 13) & 0x3FF));
        }
        if (magnitude >= 0x477FF000) return static_cast<Type>(sign | 0x7C00);
        if (magnitude < 0x38800000) {
            // A subnormal result: adding 0.5 puts its last bit at the end of the sum's fraction.
            const float sum = bits_as<float>(magnitude) + 0.5F;
            return static_cast<Type>(sign | (bits_as<std::uint32_t>(sum) - 0x3F000000));
        }
        const std::uint32_t odd = (magnitude >> 13) & 1;
        return static_cast<Type>(sign | ((magnitude - 0x38000000 + 0xFFF + odd) >> 13));
    }
};

// Rounds to nearest, ties to even; saturates; NaN becomes 0.
template <typename Integer, std::int64_t kLow, std::int64_t kHigh>
struct Whole {
    using Type = Integer;
    static constexpr bool kWhole = true;
    static float load(Type x) { return static_cast<float>(x); }
    static Type store(float x) {
        if (x != x) return 0;
        // Both bounds are compared as floats. The upper bound of s32 rounds to 2**31, which is out
        // of range.
        if (x >= static_cast<float>(kHigh)) return static_cast<Type>(kHigh);
        if (x <= static_cast<float>(kLow)) return static_cast<Type>(kLow);
        return static_cast<Type>(std::nearbyint(x));
    }
};
using S8 = Whole<std::int8_t, -128, 127>;
using U8 = Whole<std::uint8_t, 0, 255>;
using S32 = Whole<std::int32_t, -2147483648LL, 2147483647LL>;

template <typename From, typename To>
inline void convert_one(const std::byte *src, std::byte *dst, std::int64_t i,
                        const Quantization *quantization, std::int64_t step) {
    typename From::Type from;
    std::memcpy(&from, src + i * static_cast<std::int64_t>(sizeof from), sizeof from);
    float x = From::load(from);
    if (quantization != nullptr) {
        const std::int64_t at = i * step;
        x = (x - quantization->src_zero[at]) * quantization->src_scale[at];
        x = x / quantization->dst_scale[at];
        if (To::kWhole) x = std::nearbyint(x);
        x = x + quantization->dst_zero[at];
    }
    const typename To::Type to = To::store(x);
    std::memcpy(dst + i * static_cast<std::int64_t>(sizeof to), &to, sizeof to);
}

// Fills a table with instances of a template for every pair of element types.
template <template <typename, typename> class Each>
inline void fill_conversions(Convert (&table)[kElements][kElements]) {
#define STRIDEWISE_ROW(row, From)                                                 \
    table[row][0] = &Each<From, F32>::run, table[row][1] = &Each<From, F16>::run, \
    table[row][2] = &Each<From, Bf16>::run, table[row][3] = &Each<From, S8>::run, \
    table[row][4] = &Each<From, U8>::run, table[row][5] = &Each<From, S32>::run
    STRIDEWISE_ROW(0, F32);
    STRIDEWISE_ROW(1, F16);
    STRIDEWISE_ROW(2, Bf16);
    STRIDEWISE_ROW(3, S8);
    STRIDEWISE_ROW(4, U8);
    STRIDEWISE_ROW(5, S32);
#undef STRIDEWISE_ROW
}

}  // namespace
}  // namespace stridewise
