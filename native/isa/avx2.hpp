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

inline __m256i first_lanes(std::int64_t count) {
    const __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    const int least = count >= 8 ? 8 : static_cast<int>(count);
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(least), lanes);
}

template <>
inline Lanes<8>::V Lanes<8>::load_some(const float *from, std::int64_t count) {
    return _mm256_maskload_ps(from, first_lanes(count));
}

template <>
inline void Lanes<8>::store_some(float *to, V value, std::int64_t count) {
    _mm256_maskstore_ps(to, first_lanes(count), value);
}

template <>
inline Lanes<8>::V Lanes<8>::without(V value, std::int64_t count) {
    return _mm256_and_ps(value, _mm256_castsi256_ps(first_lanes(count)));
}

}  // namespace
}  // namespace stridewise
