// Vectors of 8 lanes with the instructions of AVX2, for the files that are compiled for it.
#pragma once

#include <immintrin.h>

#include "support/vectors.hpp"

namespace stridewise {
namespace {

template <>
inline Lanes<8>::V Lanes<8>::spread(const float *from) {
    return _mm256_broadcast_ss(from);
}

}  // namespace
}  // namespace stridewise
