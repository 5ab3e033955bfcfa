// Vectors for the files that are compiled without instructions of one set.
#pragma once

#include "support/byte_vectors.hpp"
#include "support/vectors.hpp"

namespace stridewise {
namespace {

template <>
inline Lanes<8>::V Lanes<8>::spread(const float *from) {
    return all(*from);
}

template <>
inline Lanes<16>::V Lanes<16>::spread(const float *from) {
    return all(*from);
}

inline void ByteGroup::interleave(const std::uint8_t *const *from, std::uint8_t flip,
                                  std::uint32_t *to) {
    for (std::int64_t byte = 0; byte < kGroup; ++byte) {
        std::uint32_t quad = 0;
        for (int i = 3; i >= 0; --i) quad = quad << 8 | (from[i][byte] ^ flip);
        to[word_of(byte)] = quad;
    }
}

inline ByteGroup::Integers ByteGroup::add_products(Integers sum, Words bytes, Words weights) {
    for (int at = 0; at < 4; ++at) {
        const auto byte = reinterpret_cast<Integers>((bytes >> (8 * at)) & 0xFF);
        sum += byte * (reinterpret_cast<Integers>(weights << (24 - 8 * at)) >> 24);
    }
    return sum;
}

inline void ByteGroup::narrow(const V *values, const ByteBounds &bounds, std::uint8_t *to,
                              std::int64_t count) {
    constexpr float kWhole = 12582912.0F;  // 1.5 * 2^23: sums with it have no fractions
    constexpr float kMost = 4096.0F;       // beyond all integers and offsets
    const int least = bounds.low[0], most = bounds.high[0];
    for (std::int64_t byte = 0; byte < kGroup && byte < count; ++byte) {
        float x = values[word_of(byte) / 8][word_of(byte) % 8];
        x = x < kMost ? x : kMost;
        x = x > -kMost ? x : -kMost;
        const int found = static_cast<int>(x + kWhole - kWhole) + bounds.offset[0];
        const int bound = found > least ? found : least;
        to[byte] = static_cast<std::uint8_t>((bound < most ? bound : most) ^ bounds.flip[0]);
    }
}

}  // namespace
}  // namespace stridewise
