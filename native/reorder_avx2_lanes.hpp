// Vectors of AVX2, and the conversion of their elements. One file includes it.
#pragma once

#include <immintrin.h>

#include "reorder_elements.hpp"

namespace stridewise {
namespace {

struct Ymm {
    using Vector = __m256i;
    static __m256i load(const std::byte *p) {
        return _mm256_loadu_si256(reinterpret_cast<const __m256i *>(p));
    }
    static void store(std::byte *p, __m256i v) {
        _mm256_storeu_si256(reinterpret_cast<__m256i *>(p), v);
    }
    static void store_half(std::byte *p, __m256i v) {
        _mm_storeu_si128(reinterpret_cast<__m128i *>(p), _mm256_castsi256_si128(v));
    }
    static void stream(std::byte *p, __m256i v) {
        _mm256_stream_si256(reinterpret_cast<__m256i *>(p), v);
    }
    template <bool kStream>
    static void put(std::byte *p, __m256i v) {
        kStream ? stream(p, v) : store(p, v);
    }
    static __m256i zero() { return _mm256_setzero_si256(); }
};

struct Xmm {
    using Vector = __m128i;
    static __m128i load(const std::byte *p) {
        return _mm_loadu_si128(reinterpret_cast<const __m128i *>(p));
    }
    static void store(std::byte *p, __m128i v) {
        _mm_storeu_si128(reinterpret_cast<__m128i *>(p), v);
    }
    static void store_half(std::byte *p, __m128i v) {
        _mm_storel_epi64(reinterpret_cast<__m128i *>(p), v);
    }
    static void store_upper(std::byte *p, __m128i v) {
        _mm_storeh_pd(reinterpret_cast<double *>(p), _mm_castsi128_pd(v));
    }
    static void stream(std::byte *p, __m128i v) {
        _mm_stream_si128(reinterpret_cast<__m128i *>(p), v);
    }
    template <bool kStream>
    static void put(std::byte *p, __m128i v) {
        kStream ? stream(p, v) : store(p, v);
    }
    static __m128i zero() { return _mm_setzero_si128(); }
};

// Eight elements as float32, and sixteen back: to one place, or, by `split`, eight to each of two.
template <typename E>
struct Lanes;

// The two halves of sixteen elements, to places of their own.
inline void split_vector(std::byte *p, std::byte *q, __m256i v) {
    Xmm::store(p, _mm256_castsi256_si128(v));
    Xmm::store(q, _mm256_extracti128_si256(v, 1));
}
inline void split_vector(std::byte *p, std::byte *q, __m128i v) {
    Xmm::store_half(p, v);
    Xmm::store_upper(q, v);
}

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
    static __m256i packed(__m256 low, __m256 high) {
        constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
        return _mm256_setr_m128i(_mm256_cvtps_ph(low, kNearest), _mm256_cvtps_ph(high, kNearest));
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
    static __m256i rounded(__m256 x) {
        const __m256i bits = _mm256_castps_si256(x);
        const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
        const __m256i half = _mm256_add_epi32(odd, _mm256_set1_epi32(0x7FFF));
        return _mm256_srli_epi32(_mm256_add_epi32(bits, half), 16);
    }
    // The carry of rounding would make infinity of some NaNs.
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
        return _mm256_permute4x64_epi64(_mm256_packus_epi32(a, b), 0xD8);
    }
    static void store(std::byte *p, __m256 low, __m256 high) {
        Vector::store(p, packed(low, high));
    }
    static void store_eight(std::byte *p, __m256 x) { Vector::store_half(p, packed(x, x)); }
};

// NaN becomes 0, as in Whole::store.
inline __m256 without_nan(__m256 x) {
    return _mm256_and_ps(x, _mm256_cmp_ps(x, x, _CMP_ORD_Q));
}

// Sixteen words of sixteen bits that are right for values between `low` and `high`.
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
        // Out of range the conversion gives the lowest number, which is wrong above only.
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

template <typename From, typename To>
struct Each {
    static constexpr std::int64_t kStep = 16;
    static constexpr auto kFrom = static_cast<std::int64_t>(sizeof(typename From::Type));
    static constexpr auto kTo = static_cast<std::int64_t>(sizeof(typename To::Type));

    static __m256 parameter(const float *values, std::int64_t i, std::int64_t step) {
        return step == 0 ? _mm256_set1_ps(values[0]) : _mm256_loadu_ps(values + i);
    }
    static __m256 scaled(__m256 x, const Quantization &q, std::int64_t i, std::int64_t step) {
        x = _mm256_mul_ps(_mm256_sub_ps(x, parameter(q.src_zero, i, step)),
                          parameter(q.src_scale, i, step));
        x = _mm256_div_ps(x, parameter(q.dst_scale, i, step));
        if (To::kWhole) x = _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
        return _mm256_add_ps(x, parameter(q.dst_zero, i, step));
    }
    static void sixteen(const std::byte *src, std::byte *dst, std::int64_t i,
                        const Quantization *quantization, std::int64_t step) {
        __m256 low = Lanes<From>::load(src + i * kFrom);
        __m256 high = Lanes<From>::load(src + (i + 8) * kFrom);
        if (quantization != nullptr) {
            low = scaled(low, *quantization, i, step);
            high = scaled(high, *quantization, i + 8, step);
        }
        Lanes<To>::store(dst + i * kTo, low, high);
    }
    static void eight(const std::byte *src, std::byte *dst, std::int64_t i,
                      const Quantization *quantization, std::int64_t step) {
        __m256 x = Lanes<From>::load(src + i * kFrom);
        if (quantization != nullptr) x = scaled(x, *quantization, i, step);
        Lanes<To>::store_eight(dst + i * kTo, x);
    }
    static void run(const std::byte *src, std::byte *dst, std::int64_t count,
                    const Quantization *quantization, std::int64_t step) {
        if (count < kStep / 2) {
            for (std::int64_t i = 0; i < count; ++i) {
                convert_one<From, To>(src, dst, i, quantization, step);
            }
            return;
        }
        if (count < kStep) {
            // The last eight overlap the first.
            eight(src, dst, 0, quantization, step);
            eight(src, dst, count - kStep / 2, quantization, step);
            return;
        }
        std::int64_t i = 0;
        for (; i + kStep <= count; i += kStep) sixteen(src, dst, i, quantization, step);
        // The last ones overlap those before them.
        if (i < count) sixteen(src, dst, count - kStep, quantization, step);
    }
};

}  // namespace
}  // namespace stridewise
