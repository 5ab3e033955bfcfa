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

// The zero point comes after the rounding, as in ONNX: of odd ones halves go the other way.
template <class Byte, int kLow>
void round_bytes(const float *from, Byte *to, std::int64_t count, Grid grid) {
    // Sums with it have no fractions, and the number in their last bits.
    constexpr float kWhole = 12582912.0F;  // 1.5 * 2^23
    const float low = kLow - grid.zero, high = low + 255.0F;
    const auto zero = static_cast<std::int32_t>(grid.zero);
#pragma GCC ivdep
    for (std::int64_t i = 0; i < count; ++i) {
        float x = from[i] / grid.scale;
        x = x == x ? x : 0.0F;
        x = low > x ? low : x;
        const float shifted = (high < x ? high : x) + kWhole;
        std::int32_t bits;
        __builtin_memcpy(&bits, &shifted, sizeof bits);
        to[i] = static_cast<Byte>(bits + zero);
    }
}

constexpr ByteLoops kByteLoops{widen_bytes<std::int8_t>, widen_bytes<std::uint8_t>,
                               round_bytes<std::int8_t, -128>, round_bytes<std::uint8_t, 0>};

}  // namespace
}  // namespace stridewise
