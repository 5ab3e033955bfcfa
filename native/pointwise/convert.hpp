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

// The zero point comes after the rounding, as in ONNX: of odd ones halves go the other way.
template <class Byte, int kLow, StoredOperation::Kind kKind>
void round_results(const float *from, const float *other, Byte *to, std::int64_t count, Grid grid,
                   bool is_rectified) {
    // Sums with it have no fractions, and the number in their last bits.
    constexpr float kWhole = 12582912.0F;  // 1.5 * 2^23
    const float least = kLow - grid.zero, high = least + 255.0F;
    const float low = is_rectified && least < 0.0F ? 0.0F : least;
    const auto zero = static_cast<std::int32_t>(grid.zero);
#pragma GCC ivdep
    for (std::int64_t i = 0; i < count; ++i) {
        float x = from[i];
        if (kKind == StoredOperation::sum) x += other[i];
        if (kKind == StoredOperation::product) x *= other[i];
        x /= grid.scale;
        x = x == x ? x : 0.0F;
        x = low > x ? low : x;
        const float shifted = (high < x ? high : x) + kWhole;
        std::int32_t bits;
        __builtin_memcpy(&bits, &shifted, sizeof bits);
        to[i] = static_cast<Byte>(bits + zero);
    }
}

template <class Byte, int kLow>
void round_bytes(const float *from, const float *other, Byte *to, std::int64_t count, Grid grid,
                 StoredOperation operation) {
    constexpr decltype(&round_results<Byte, kLow, StoredOperation::none>) kLoops[] = {
        round_results<Byte, kLow, StoredOperation::none>,
        round_results<Byte, kLow, StoredOperation::sum>,
        round_results<Byte, kLow, StoredOperation::product>};
    kLoops[operation.kind](from, other, to, count, grid, operation.is_rectified);
}

constexpr ByteLoops kByteLoops{
    {widen_bytes<std::int8_t>, multiply_bytes<std::int8_t>, round_bytes<std::int8_t, -128>},
    {widen_bytes<std::uint8_t>, multiply_bytes<std::uint8_t>, round_bytes<std::uint8_t, 0>}};

}  // namespace
}  // namespace stridewise
