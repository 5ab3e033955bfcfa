// Groups of bytes as vectors of 8 words of 32 bits.
//
// It includes no standard templates, for the reason in winograd/kernels.hpp.
#pragma once

#include <cstdint>

#include "support/byte_groups.hpp"
#include "support/vectors.hpp"

namespace stridewise {

namespace {

struct ByteGroup {
    using V = typename VectorOf<8>::Type;
    using Integers = typename VectorOf<8>::Mask;
    using Words = typename VectorOf<8>::Words;
    typedef std::uint32_t UnalignedWords __attribute__((vector_size(32), aligned(4), may_alias));

    static inline Words load(const std::uint32_t *from) {
        return *reinterpret_cast<const UnalignedWords *>(from);
    }
    static inline void store(std::uint32_t *to, Words value) {
        *reinterpret_cast<UnalignedWords *>(to) = value;
    }

    // Files for instruction sets define these functions. Their definitions in portable.hpp say what
    // they do.

    // Stores quads of the bytes of four groups, the bits of `flip` inverted.
    static inline void interleave(const std::uint8_t *const *from, std::uint8_t flip,
                                  std::uint32_t *to);
    // Adds the products of the four bytes of each word, without a sign, with those of another one,
    // which have a sign.
    static inline Integers add_products(Integers sum, Words bytes, Words weights);
    // Rounds numbers to the nearest, ties to even, and stores what bounds make of the first `count`
    // in the order of bytes.
    static inline void narrow(const V *values, const ByteBounds &bounds, std::uint8_t *to,
                              std::int64_t count);
};

}  // namespace
}  // namespace stridewise
