// Transpositions of squares in registers.
#pragma once

#include "reorder/avx2_vectors.hpp"

namespace stridewise {
namespace {

template <typename T>
inline T load_as(const std::byte *src) {
    T found;
    std::memcpy(&found, src, sizeof found);
    return found;
}

struct RiffledBytes {
    static __m128i low(__m128i a, __m128i b) { return _mm_unpacklo_epi8(a, b); }
    static __m128i high(__m128i a, __m128i b) { return _mm_unpackhi_epi8(a, b); }
    static __m256i low(__m256i a, __m256i b) { return _mm256_unpacklo_epi8(a, b); }
    static __m256i high(__m256i a, __m256i b) { return _mm256_unpackhi_epi8(a, b); }
};

struct RiffledWords {
    static __m128i low(__m128i a, __m128i b) { return _mm_unpacklo_epi16(a, b); }
    static __m128i high(__m128i a, __m128i b) { return _mm_unpackhi_epi16(a, b); }
    static __m256i low(__m256i a, __m256i b) { return _mm256_unpacklo_epi16(a, b); }
    static __m256i high(__m256i a, __m256i b) { return _mm256_unpackhi_epi16(a, b); }
};

// Interleaves the elements of the first half of some vectors with those of the second half.
// log2(number of vectors) repetitions transpose the vectors within each 128-bit lane.
template <typename Riffled, typename V, int kCount>
[[gnu::always_inline]] inline void riffle(const V (&v)[kCount], V (&result)[kCount]) {
    for (int i = 0; i < kCount / 2; ++i) {
        result[2 * i] = Riffled::low(v[i], v[i + kCount / 2]);
        result[2 * i + 1] = Riffled::high(v[i], v[i + kCount / 2]);
    }
}

// A square: kSide vectors of kSide elements of kWidth bytes.
struct Square1 {
    using Register = Xmm;
    using Vector = __m128i;
    static constexpr std::int64_t kWidth = 1, kSide = 16;
    // One element from each of kSide places.
    static Vector gathered(const std::byte *src, const std::int64_t *rows) {
        const auto at = [&](int i) { return load_as<char>(src + rows[i]); };
        return _mm_setr_epi8(at(0), at(1), at(2), at(3), at(4), at(5), at(6), at(7), at(8), at(9),
                             at(10), at(11), at(12), at(13), at(14), at(15));
    }
    [[gnu::always_inline]] static void transpose(Vector (&v)[16]) { transpose_lanes(v); }
    // One square, or two side by side.
    template <typename V>
    [[gnu::always_inline]] static void transpose_lanes(V (&v)[16]) {
        V a[16];
        riffle<RiffledBytes>(v, a);
        riffle<RiffledBytes>(a, v);
        riffle<RiffledBytes>(v, a);
        riffle<RiffledBytes>(a, v);
    }
};

struct Square2 {
    using Register = Xmm;
    using Vector = __m128i;
    static constexpr std::int64_t kWidth = 2, kSide = 8;
    // One element from each of kSide places.
    static Vector gathered(const std::byte *src, const std::int64_t *rows) {
        const auto at = [&](int i) { return load_as<short>(src + rows[i]); };
        return _mm_setr_epi16(at(0), at(1), at(2), at(3), at(4), at(5), at(6), at(7));
    }
    [[gnu::always_inline]] static void transpose(Vector (&v)[8]) { transpose_lanes(v); }
    // One square, or two side by side.
    template <typename V>
    [[gnu::always_inline]] static void transpose_lanes(V (&v)[8]) {
        V a[8];
        riffle<RiffledWords>(v, a);
        riffle<RiffledWords>(a, v);
        riffle<RiffledWords>(v, a);
        for (int i = 0; i < 8; ++i) v[i] = a[i];
    }
};

struct Square4 {
    using Register = Ymm;
    using Vector = __m256i;
    static constexpr std::int64_t kWidth = 4, kSide = 8;
    // One element from each of kSide places.
    static Vector gathered(const std::byte *src, const std::int64_t *rows) {
        const auto at = [&](int i) { return load_as<int>(src + rows[i]); };
        return _mm256_setr_epi32(at(0), at(1), at(2), at(3), at(4), at(5), at(6), at(7));
    }
    static void transpose(Vector (&v)[8]) {
        Vector a[8], b[8];
        for (int i = 0; i < 4; ++i) {
            a[2 * i] = _mm256_unpacklo_epi32(v[2 * i], v[2 * i + 1]);
            a[2 * i + 1] = _mm256_unpackhi_epi32(v[2 * i], v[2 * i + 1]);
        }
        for (int i = 0; i < 2; ++i) {
            b[4 * i] = _mm256_unpacklo_epi64(a[4 * i], a[4 * i + 2]);
            b[4 * i + 1] = _mm256_unpackhi_epi64(a[4 * i], a[4 * i + 2]);
            b[4 * i + 2] = _mm256_unpacklo_epi64(a[4 * i + 1], a[4 * i + 3]);
            b[4 * i + 3] = _mm256_unpackhi_epi64(a[4 * i + 1], a[4 * i + 3]);
        }
        for (int i = 0; i < 4; ++i) {
            v[i] = _mm256_permute2x128_si256(b[i], b[i + 4], 0x20);
            v[i + 4] = _mm256_permute2x128_si256(b[i], b[i + 4], 0x31);
        }
    }
};

struct Square8 {
    using Register = Ymm;
    using Vector = __m256i;
    static constexpr std::int64_t kWidth = 8, kSide = 4;
    // One element from each of kSide places.
    static Vector gathered(const std::byte *src, const std::int64_t *rows) {
        const auto at = [&](int i) { return load_as<long long>(src + rows[i]); };
        return _mm256_setr_epi64x(at(0), at(1), at(2), at(3));
    }
    static void transpose(Vector (&v)[4]) {
        const Vector a = _mm256_unpacklo_epi64(v[0], v[1]), b = _mm256_unpackhi_epi64(v[0], v[1]);
        const Vector c = _mm256_unpacklo_epi64(v[2], v[3]), d = _mm256_unpackhi_epi64(v[2], v[3]);
        v[0] = _mm256_permute2x128_si256(a, c, 0x20);
        v[1] = _mm256_permute2x128_si256(b, d, 0x20);
        v[2] = _mm256_permute2x128_si256(a, c, 0x31);
        v[3] = _mm256_permute2x128_si256(b, d, 0x31);
    }
};

struct Square16 {
    using Register = Ymm;
    using Vector = __m256i;
    static constexpr std::int64_t kWidth = 16, kSide = 2;
    static Vector gathered(const std::byte *src, const std::int64_t *rows) {
        return _mm256_setr_m128i(Xmm::load(src + rows[0]), Xmm::load(src + rows[1]));
    }
    static void transpose(Vector (&v)[2]) {
        const Vector a = v[0], b = v[1];
        v[0] = _mm256_permute2x128_si256(a, b, 0x20);
        v[1] = _mm256_permute2x128_si256(a, b, 0x31);
    }
};

// Sixteen rows and columns of bytes, or of words.
[[gnu::always_inline]] inline void transpose_sixteen(__m128i (&v)[16]) {
    Square1::transpose(v);
}

[[gnu::always_inline]] inline void transpose_sixteen(__m256i (&v)[16]) {
    // Each half of the rows is transposed within lanes; columns 0 to 7 are in the low lanes.
    __m256i upper[8], lower[8];
    for (int i = 0; i < 8; ++i) upper[i] = v[i], lower[i] = v[i + 8];
    Square2::transpose_lanes(upper);
    Square2::transpose_lanes(lower);
    for (int i = 0; i < 8; ++i) {
        v[i] = _mm256_permute2x128_si256(upper[i], lower[i], 0x20);
        v[i + 8] = _mm256_permute2x128_si256(upper[i], lower[i], 0x31);
    }
}

}  // namespace
}  // namespace stridewise
