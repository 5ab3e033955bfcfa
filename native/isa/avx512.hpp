// Vectors of 16 lanes with the instructions of AVX-512, for the files that are compiled for it.
#pragma once

#include <immintrin.h>

#include "isa/totals.hpp"
#include "support/vectors.hpp"

namespace stridewise {
namespace {

// GCC 12 warns of uninitialized vectors in functions without a mask.
constexpr __mmask16 kAll = 0xFFFF;

template <>
inline Lanes<16>::V Lanes<16>::spread(const float *from) {
    return _mm512_set1_ps(*from);
}

template <>
inline float Lanes<16>::total(V value) {
    return total_of(_mm256_add_ps(_mm512_maskz_extractf32x8_ps(0xFF, value, 0),
                                  _mm512_maskz_extractf32x8_ps(0xFF, value, 1)));
}

inline __mmask16 first_lanes(std::int64_t count) {
    return static_cast<__mmask16>(count >= 16 ? 0xFFFF : (1 << (count > 0 ? count : 0)) - 1);
}

template <>
inline Lanes<16>::V Lanes<16>::load_some(const float *from, std::int64_t count) {
    return _mm512_maskz_loadu_ps(first_lanes(count), from);
}

template <>
inline Lanes<16>::V Lanes<16>::load_some(const Bfloat16 *from, std::int64_t count) {
    const __m256i halves = _mm256_maskz_loadu_epi16(first_lanes(count), from);
    return number(reinterpret_cast<Words>(_mm512_maskz_cvtepu16_epi32(kAll, halves)) << 16);
}

template <>
inline void Lanes<16>::store_some(float *to, V value, std::int64_t count) {
    _mm512_mask_storeu_ps(to, first_lanes(count), value);
}

template <>
inline void Lanes<16>::store_some(Bfloat16 *to, V value, std::int64_t count) {
    Bfloat16 some[16];
    store(some, value);
    const __m256i halves = _mm256_loadu_si256(reinterpret_cast<const __m256i_u *>(some));
    _mm256_mask_storeu_epi16(to, first_lanes(count), halves);
}

template <>
inline Lanes<16>::V Lanes<16>::without(V value, std::int64_t count) {
    return _mm512_maskz_mov_ps(first_lanes(count), value);
}

// GCC compiles comparisons and selections to two instructions.
template <>
inline Lanes<16>::V Lanes<16>::larger(V a, V b) {
    return _mm512_maskz_max_ps(kAll, a, b);
}

template <>
inline Lanes<16>::V Lanes<16>::smaller(V a, V b) {
    return _mm512_maskz_min_ps(kAll, a, b);
}

template <>
inline Lanes<16>::V Lanes<16>::whole(V x) {
    return _mm512_maskz_roundscale_ps(kAll, x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

template <>
inline Lanes<16>::V Lanes<16>::picked(V value, Mask from) {
    return _mm512_maskz_permutexvar_ps(kAll, reinterpret_cast<__m512i>(from), value);
}

// GCC converts a vector extension of this width in two halves.
template <>
inline Lanes<16>::V Lanes<16>::load(const Bfloat16 *from) {
    const __m256i halves = _mm256_loadu_si256(reinterpret_cast<const __m256i_u *>(from));
    return number(reinterpret_cast<Words>(_mm512_maskz_cvtepu16_epi32(kAll, halves)) << 16);
}

}  // namespace
}  // namespace stridewise
