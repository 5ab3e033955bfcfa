// Vectors of 16 bytes, which every x86-64 and AArch64 processor has, for loops that the compiler
// does not make vectors of.
#pragma once

#include <cstdint>
#include <cstring>

namespace stridewise {

template <class T>
struct SmallVector {
    static constexpr std::int64_t kLanes = 16 / sizeof(T);
    typedef T V [[gnu::vector_size(16)]];

    // Elements at any address.
    static V load(const T *from) {
        V found;
        std::memcpy(&found, from, sizeof found);
        return found;
    }
};

}  // namespace stridewise
