// Groups of 32 bytes, and the order of words that instructions widen them to.
//
// It includes no standard templates, for the reason in winograd/kernels.hpp.
#pragma once

#include <cstdint>

namespace stridewise {

// Bytes of a group. Instructions that interleave bytes do so within halves of a vector, which gives
// the words of a group an order of their own.
constexpr std::int64_t kGroup = 32;

// Where the word of a byte of a group is among those of its four vectors.
constexpr std::int64_t word_of(std::int64_t byte) {
    return byte % 16 / 4 * 8 + byte / 16 * 4 + byte % 4;
}

// What makes results of whole numbers, for vectors: an offset is added, then they are saturated as
// bytes without a sign and bounded, and some bits are inverted.
struct ByteBounds {
    std::int16_t offset[16];
    std::uint8_t low[kGroup], high[kGroup], flip[kGroup];
};

}  // namespace stridewise
