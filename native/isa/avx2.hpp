// Vectors of 8 lanes with the instructions of AVX2, for the files that are compiled for it.
#pragma once

#include <immintrin.h>

#include "isa/totals.hpp"
#include "support/byte_vectors.hpp"
#include "support/vectors.hpp"

namespace stridewise {
namespace {

template <>
inline Lanes<8>::V Lanes<8>::spread(const float *from) {
    return _mm256_broadcast_ss(from);
}

template <>
inline float Lanes<8>::total(V value) {
    return total_of(value);
}

// GCC compiles comparisons and selections to two instructions.
template <>
inline Lanes<8>::V Lanes<8>::larger(V a, V b) {
    return _mm256_max_ps(a, b);
}

template <>
inline Lanes<8>::V Lanes<8>::smaller(V a, V b) {
    return _mm256_min_ps(a, b);
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

template <>
inline Lanes<8>::V Lanes<8>::picked(V value, Mask from) {
    return _mm256_permutevar8x32_ps(value, reinterpret_cast<__m256i>(from));
}

template <>
inline Lanes<8>::V Lanes<8>::whole(V x) {
    return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

// Each half of a vector holds 16 bytes of a group, so interleaving within halves takes the order of
// word_of(), and packing within halves takes it back.
inline void ByteGroup::interleave(const std::uint8_t *const *from, std::uint8_t flip,
                                  std::uint32_t *to) {
    __m256i bytes[4];
    for (int i = 0; i < 4; ++i) {
        bytes[i] = _mm256_loadu_si256(reinterpret_cast<const __m256i_u *>(from[i]));
    }
    const __m256i low[2] = {_mm256_unpacklo_epi8(bytes[0], bytes[1]),
                            _mm256_unpacklo_epi8(bytes[2], bytes[3])};
    const __m256i high[2] = {_mm256_unpackhi_epi8(bytes[0], bytes[1]),
                             _mm256_unpackhi_epi8(bytes[2], bytes[3])};
    const __m256i quads[4] = {
        _mm256_unpacklo_epi16(low[0], low[1]), _mm256_unpackhi_epi16(low[0], low[1]),
        _mm256_unpacklo_epi16(high[0], high[1]), _mm256_unpackhi_epi16(high[0], high[1])};
    const __m256i flips = _mm256_set1_epi8(static_cast<char>(flip));
    for (int i = 0; i < 4; ++i) {
        store(to + 8 * i, reinterpret_cast<Words>(_mm256_xor_si256(quads[i], flips)));
    }
}

#ifdef __AVX512VNNI__
inline ByteGroup::Integers ByteGroup::add_products(Integers sum, Words bytes, Words weights) {
    return reinterpret_cast<Integers>(_mm256_dpbusd_epi32(reinterpret_cast<__m256i>(sum),
                                                          reinterpret_cast<__m256i>(bytes),
                                                          reinterpret_cast<__m256i>(weights)));
}
#else
// Even and odd bytes by themselves, because sums of two products exceed 16 bits.
inline ByteGroup::Integers ByteGroup::add_products(Integers sum, Words bytes, Words weights) {
    const auto w = reinterpret_cast<__m256i>(weights);
    const __m256i even = _mm256_srai_epi16(_mm256_slli_epi16(w, 8), 8);
    const __m256i odd = _mm256_srai_epi16(w, 8);
    const auto a = _mm256_madd_epi16(reinterpret_cast<__m256i>(bytes & 0x00FF00FF), even);
    const auto b = _mm256_madd_epi16(reinterpret_cast<__m256i>((bytes >> 8) & 0x00FF00FF), odd);
    return sum + reinterpret_cast<Integers>(a) + reinterpret_cast<Integers>(b);
}
#endif

inline void ByteGroup::narrow(const V *values, const ByteBounds &bounds, std::uint8_t *to,
                              std::int64_t count) {
    const auto of = [](const void *from) {
        return _mm256_loadu_si256(static_cast<const __m256i_u *>(from));
    };
    __m256i whole[4];
    for (int i = 0; i < 4; ++i) {
        // Greater ones would become the least integer.
        whole[i] = _mm256_cvtps_epi32(_mm256_min_ps(values[i], _mm256_set1_ps(1e9F)));
    }
    const __m256i offset = of(bounds.offset);
    const __m256i a = _mm256_adds_epi16(_mm256_packs_epi32(whole[0], whole[1]), offset);
    const __m256i b = _mm256_adds_epi16(_mm256_packs_epi32(whole[2], whole[3]), offset);
    const __m256i least = _mm256_max_epu8(_mm256_packus_epi16(a, b), of(bounds.low));
    const __m256i found =
        _mm256_xor_si256(_mm256_min_epu8(least, of(bounds.high)), of(bounds.flip));
    if (count >= kGroup) return _mm256_storeu_si256(reinterpret_cast<__m256i_u *>(to), found);
#ifdef __AVX512BW__
    _mm256_mask_storeu_epi8(to, (1U << count) - 1, found);
#else
    std::uint8_t copy[kGroup];
    __builtin_memcpy(copy, &found, sizeof copy);
    for (std::int64_t byte = 0; byte < count; ++byte) to[byte] = copy[byte];
#endif
}

}  // namespace
}  // namespace stridewise
