// Conversions between vectors of float32 and elements of every type.
#pragma once

#include "reorder/avx2_vectors.hpp"
#include "reorder/elements.hpp"

namespace stridewise {
namespace {

// Loads eight elements as float32, and stores sixteen: to one place, or with `split` eight to each
// of two places.
template <typename E>
struct Lanes;

template <>
struct Lanes<F32> {
    static __m256 load(const std::byte *p) {
        return _mm256_loadu_ps(reinterpret_cast<const float *>(p));
    }
    static void store(std::byte *p, __m256 low, __m256 high) {
        _mm256_storeu_ps(reinterpret_cast<float *>(p), low);
        _mm256_storeu_ps(reinterpret_cast<float *>(p) + 8, high);
    }
    static void store_eight(std::byte *p, __m256 x) {
        _mm256_storeu_ps(reinterpret_cast<float *>(p), x);
    }
};

template <>
struct Lanes<F16> {
    static __m256 load(const std::byte *p) { return _mm256_cvtph_ps(Xmm::load(p)); }
    using Vector = Ymm;
    static __m128i halves(__m256 x) {
        return _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    }
    static __m256i packed(__m256 low, __m256 high) {
        return _mm256_setr_m128i(halves(low), halves(high));
    }
    static void store(std::byte *p, __m256 low, __m256 high) {
        Vector::store(p, packed(low, high));
    }
    static void store_eight(std::byte *p, __m256 x) { Vector::store_half(p, packed(x, x)); }
};

template <>
struct Lanes<Bf16> {
    static __m256 load(const std::byte *p) {
        return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(Xmm::load(p)), 16));
    }
    // Rounds. The result is in the upper half of each word; the lower half is undefined.
    static __m256i raised(__m256 x) {
        const __m256i bits = _mm256_castps_si256(x);
        const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
        return _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7FFF)), odd);
    }
    static __m256i rounded(__m256 x) { return _mm256_srli_epi32(raised(x), 16); }
    // The carry of rounding would turn some NaNs into infinity.
    static __m256i quieted(__m256 x, __m256i result) {
        const __m256i bits = _mm256_castps_si256(x);
        const __m256i quiet =
            _mm256_srli_epi32(_mm256_or_si256(bits, _mm256_set1_epi32(0x400000)), 16);
        const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
        return _mm256_blendv_epi8(result, quiet, nan);
    }
    using Vector = Ymm;
    static __m256i packed(__m256 low, __m256 high) {
        __m256i a = rounded(low), b = rounded(high);
        if (_mm256_movemask_ps(_mm256_cmp_ps(low, high, _CMP_UNORD_Q)) != 0) {
            a = quieted(low, a);
            b = quieted(high, b);
        }
        return narrowed(a, b);
    }
    static __m256i narrowed(__m256i low, __m256i high) {
        return _mm256_permute4x64_epi64(_mm256_packus_epi32(low, high), 0xD8);
    }
    static void store(std::byte *p, __m256 low, __m256 high) {
        Vector::store(p, packed(low, high));
    }
    static void store_eight(std::byte *p, __m256 x) { Vector::store_half(p, packed(x, x)); }
};

// Replaces NaN by 0, as in Whole::store.
inline __m256 without_nan(__m256 x) {
    return _mm256_and_ps(x, _mm256_cmp_ps(x, x, _CMP_ORD_Q));
}

// Converts to sixteen 16-bit words. Results are correct for values between `low` and `high`.
inline __m256i words(__m256 a, __m256 b, float low, float high) {
    const auto whole = [&](__m256 x) {
        const __m256 known = _mm256_max_ps(without_nan(x), _mm256_set1_ps(low));
        return _mm256_cvtps_epi32(_mm256_min_ps(known, _mm256_set1_ps(high)));
    };
    return _mm256_permute4x64_epi64(_mm256_packs_epi32(whole(a), whole(b)), 0xD8);
}

template <>
struct Lanes<S8> {
    static __m256 load(const std::byte *p) {
        const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i *>(p));
        return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes));
    }
    using Vector = Xmm;
    static __m128i packed(__m256 low, __m256 high) {
        const __m256i both = words(low, high, -128.0F, 127.0F);
        return _mm_packs_epi16(_mm256_castsi256_si128(both), _mm256_extracti128_si256(both, 1));
    }
    static void store(std::byte *p, __m256 low, __m256 high) {
        Vector::store(p, packed(low, high));
    }
    static void store_eight(std::byte *p, __m256 x) { Vector::store_half(p, packed(x, x)); }
};

template <>
struct Lanes<U8> {
    static __m256 load(const std::byte *p) {
        const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i *>(p));
        return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes));
    }
    using Vector = Xmm;
    static __m128i packed(__m256 low, __m256 high) {
        const __m256i both = words(low, high, 0.0F, 255.0F);
        return _mm_packus_epi16(_mm256_castsi256_si128(both), _mm256_extracti128_si256(both, 1));
    }
    static void store(std::byte *p, __m256 low, __m256 high) {
        Vector::store(p, packed(low, high));
    }
    static void store_eight(std::byte *p, __m256 x) { Vector::store_half(p, packed(x, x)); }
};

template <>
struct Lanes<S32> {
    static __m256 load(const std::byte *p) { return _mm256_cvtepi32_ps(Ymm::load(p)); }
    static __m256i whole(__m256 x) {
        // Out of range, the conversion returns the lowest number, which is wrong only above the
        // range.
        const __m256 known = without_nan(x);
        const __m256i above =
            _mm256_castps_si256(_mm256_cmp_ps(known, _mm256_set1_ps(2147483648.0F), _CMP_GE_OQ));
        return _mm256_blendv_epi8(_mm256_cvtps_epi32(known), _mm256_set1_epi32(2147483647), above);
    }
    static void store(std::byte *p, __m256 low, __m256 high) {
        Ymm::store(p, whole(low));
        Ymm::store(p + 32, whole(high));
    }
    static void store_eight(std::byte *p, __m256 x) { Ymm::store(p, whole(x)); }
};

}  // namespace
}  // namespace stridewise
