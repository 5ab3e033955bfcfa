// Elements of bfloat16: the upper half of the bits of a float32.
//
// It includes no standard templates, for the reason in winograd/kernels.hpp, and everything but the
// type has internal linkage for the same reason.
#pragma once

#include <cstdint>

namespace stridewise {

struct Bfloat16 {
    std::uint16_t bits;
};

// Which tensors of a kernel are bfloat16; others are float32.
struct HalfSides {
    bool source, result;
};

namespace {

inline std::int64_t element_nbytes(bool is_half) {
    return is_half ? sizeof(Bfloat16) : sizeof(float);
}

inline float as_float(float value) {
    return value;
}

inline float as_float(Bfloat16 value) {
    const std::uint32_t bits = std::uint32_t{value.bits} << 16;
    float found;
    __builtin_memcpy(&found, &bits, sizeof found);
    return found;
}

inline void put(float *to, float value) {
    *to = value;
}

// Rounds to the nearest, ties to even; NaN stays NaN.
inline void put(Bfloat16 *to, float value) {
    std::uint32_t bits;
    __builtin_memcpy(&bits, &value, sizeof bits);
    const std::uint32_t rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16;
    to->bits = static_cast<std::uint16_t>(value == value ? rounded : (bits >> 16) | 0x40);
}

}  // namespace
}  // namespace stridewise
