// AVX2 vectors: loads and stores of whole vectors and of parts, and streaming stores.
//
// Everything here has internal linkage, so that files for other instruction sets cannot link to it.
#pragma once

#include <immintrin.h>

#include <cstring>

#include "reorder/kernels.hpp"

namespace stridewise {
namespace {

constexpr std::int64_t kLine = 64;

inline std::int64_t least(std::int64_t a, std::int64_t b) {
    return a < b ? a : b;
}

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

inline void prefetch(const std::byte *p) {
    _mm_prefetch(reinterpret_cast<const char *>(p), _MM_HINT_T0);
}

// Prefetches the source of the next transposition at an offset. Converted data is in the cache and
// needs no prefetch.
inline void fetch_next(const Transposition &t, std::int64_t offset) {
    if (t.next != nullptr) prefetch(t.next + offset);
}

template <bool kStream>
inline void copy_vectors(const std::byte *src, std::byte *dst, std::int64_t nbytes) {
    for (std::int64_t i = 0; i < nbytes; i += 32) {
        if (kStream) {
            Ymm::stream(dst + i, Ymm::load(src + i));
        } else {
            Ymm::store(dst + i, Ymm::load(src + i));
        }
    }
}

// Stores the two halves of a vector to two places.
inline void split_vector(std::byte *p, std::byte *q, __m256i v) {
    Xmm::store(p, _mm256_castsi256_si128(v));
    Xmm::store(q, _mm256_extracti128_si256(v, 1));
}
inline void split_vector(std::byte *p, std::byte *q, __m128i v) {
    Xmm::store_half(p, v);
    Xmm::store_upper(q, v);
}

// Copies up to 32 bytes by two moves that may overlap.
inline void copy_short(const std::byte *src, std::byte *dst, std::int64_t nbytes) {
    const auto ends = [&](auto sample) {
        const auto last = nbytes - static_cast<std::int64_t>(sizeof sample);
        auto tail = sample;
        std::memcpy(&sample, src, sizeof sample);
        std::memcpy(&tail, src + last, sizeof tail);
        std::memcpy(dst, &sample, sizeof sample);
        std::memcpy(dst + last, &tail, sizeof tail);
    };
    if (nbytes >= 16) return ends(__m128i());
    if (nbytes >= 8) return ends(std::uint64_t());
    if (nbytes >= 4) return ends(std::uint32_t());
    if (nbytes >= 2) return ends(std::uint16_t());
    if (nbytes == 1) *dst = *src;
}

// Loads the first `nbytes` (fewer than 8) bytes by reads that may overlap but stay inside them.
inline std::uint64_t load_few(const std::byte *src, std::int64_t nbytes) {
    const auto both = [&](auto low) {
        const auto size = static_cast<std::int64_t>(sizeof low);
        auto high = low;
        std::memcpy(&low, src, sizeof low);
        std::memcpy(&high, src + nbytes - size, sizeof high);
        return low | static_cast<std::uint64_t>(high) << (8 * (nbytes - size));
    };
    if (nbytes >= 4) return both(std::uint32_t());
    if (nbytes >= 2) return both(std::uint16_t());
    return nbytes == 1 ? std::to_integer<std::uint64_t>(*src) : 0;
}

inline __m128i load_sixteen(const std::byte *src, std::int64_t nbytes) {
    if (nbytes >= 16) return Xmm::load(src);
    if (nbytes < 8) return _mm_cvtsi64_si128(static_cast<long long>(load_few(src, nbytes)));
    std::uint64_t low;
    std::memcpy(&low, src, sizeof low);
    return _mm_set_epi64x(static_cast<long long>(load_few(src + 8, nbytes - 8)),
                          static_cast<long long>(low));
}

// Loads the first `nbytes` bytes of a vector; the rest is zero.
inline void load_part(const std::byte *src, std::int64_t nbytes, __m128i &v) {
    v = load_sixteen(src, nbytes);
}

inline void load_part(const std::byte *src, std::int64_t nbytes, __m256i &v) {
    // Elements of this width have at least four bytes, so the mask has whole 4-byte lanes.
    const __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    const __m256i mask = _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(nbytes / 4)), lanes);
    v = _mm256_maskload_epi32(reinterpret_cast<const int *>(src), mask);
}

}  // namespace
}  // namespace stridewise
