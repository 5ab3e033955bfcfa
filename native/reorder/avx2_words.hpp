// Transposition of float32 rows into columns of a narrower type.
//
// Conversion and transposition share their shuffles: rows are narrowed together with the rows below
// them, so that a 32-bit word holds four 1-byte or two 2-byte elements of one column. Then only
// words are transposed. This takes a third of the instructions of conversion followed by a
// transposition of bytes.
#pragma once

#include "reorder/avx2_lanes.hpp"
#include "reorder/avx2_squares.hpp"

namespace stridewise {
namespace {

// Converts eight columns of kRows rows to words, or kNeighbors columns of one row to a vector. It
// records values whose result may be wrong; the caller then repeats the block with Lanes.
template <typename To>
class Words;

// For bytes, results are uncertain for NaN and for values beyond 16-bit words: both become the
// lowest word.
template <typename To, bool kSigned>
class ByteWords {
  public:
    static constexpr std::int64_t kRows = 4, kNeighbors = 32;

    // Neighbors of one row.
    __m256i in_order(const std::byte *src) {
        const __m256 x[kRows] = {Lanes<F32>::load(src), Lanes<F32>::load(src + 32),
                                 Lanes<F32>::load(src + 64), Lanes<F32>::load(src + 96)};
        return _mm256_permutevar8x32_epi32(bytes(x), _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    }
    __m256i join(const __m256 (&x)[kRows]) {
        const __m256i turn = _mm256_broadcastsi128_si256(
            _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
        return _mm256_shuffle_epi8(bytes(x), turn);
    }
    bool is_certain() const {
        const __m256i lowest = _mm256_set1_epi16(-32768);
        return _mm256_movemask_epi8(_mm256_cmpeq_epi16(least_, lowest)) == 0;
    }
    // Sixteen rows of eight columns; each half of a vector is a square of its own.
    template <typename Put>
    static void transpose(__m256i (&w)[4], const Put &put) {
        const __m256i a = _mm256_unpacklo_epi32(w[0], w[1]), b = _mm256_unpackhi_epi32(w[0], w[1]);
        const __m256i d = _mm256_unpacklo_epi32(w[2], w[3]), e = _mm256_unpackhi_epi32(w[2], w[3]);
        const auto both = [&](std::int64_t j, __m256i v) {
            put(j, _mm256_castsi256_si128(v));
            put(j + 4, _mm256_extracti128_si256(v, 1));
        };
        both(0, _mm256_unpacklo_epi64(a, d));
        both(1, _mm256_unpackhi_epi64(a, d));
        both(2, _mm256_unpacklo_epi64(b, e));
        both(3, _mm256_unpackhi_epi64(b, e));
    }
    // Sixteen rows of neighbors.
    template <typename Put>
    static void transpose_rows(__m256i (&v)[16], const Put &put) {
        Square1::transpose_lanes(v);
        for (std::int64_t j = 0; j < 16; ++j) {
            put(j, _mm256_castsi256_si128(v[j]));
            put(j + 16, _mm256_extracti128_si256(v[j], 1));
        }
    }

  private:
    // Groups of four elements of each vector, those of the low lanes first.
    __m256i bytes(const __m256 (&x)[kRows]) {
        const __m256i a = _mm256_packs_epi32(whole(x[0]), whole(x[1]));
        const __m256i b = _mm256_packs_epi32(whole(x[2]), whole(x[3]));
        least_ = _mm256_min_epi16(least_, _mm256_min_epi16(a, b));
        return kSigned ? _mm256_packs_epi16(a, b) : _mm256_packus_epi16(a, b);
    }
    // The order of operands preserves NaN. Low values need no bound, because the packs saturate.
    static __m256i whole(__m256 x) {
        return _mm256_cvtps_epi32(_mm256_min_ps(_mm256_set1_ps(kSigned ? 127.0F : 255.0F), x));
    }

    __m256i least_ = _mm256_setzero_si256();
};

template <>
class Words<S8> : public ByteWords<S8, true> {};
template <>
class Words<U8> : public ByteWords<U8, false> {};

struct WordPairs {
    static constexpr std::int64_t kRows = 2, kNeighbors = 16;

    // Sixteen rows of eight columns.
    template <typename Put>
    static void transpose(__m256i (&w)[8], const Put &put) {
        Square4::transpose(w);
        for (std::int64_t j = 0; j < 8; ++j) put(j, w[j]);
    }
    // Sixteen rows of neighbors.
    template <typename Put>
    static void transpose_rows(__m256i (&v)[16], const Put &put) {
        transpose_sixteen(v);
        for (std::int64_t j = 0; j < 16; ++j) put(j, v[j]);
    }
};

template <>
class Words<Bf16> : public WordPairs {
  public:
    // Neighbors of one row.
    __m256i in_order(const std::byte *src) {
        const __m256 low = Lanes<F32>::load(src), high = Lanes<F32>::load(src + 32);
        nan_ = _mm256_or_ps(nan_, _mm256_cmp_ps(low, high, _CMP_UNORD_Q));
        return Lanes<Bf16>::narrowed(Lanes<Bf16>::rounded(low), Lanes<Bf16>::rounded(high));
    }
    __m256i join(const __m256 (&x)[kRows]) {
        nan_ = _mm256_or_ps(nan_, _mm256_cmp_ps(x[0], x[1], _CMP_UNORD_Q));
        const __m256i low = _mm256_srli_epi32(Lanes<Bf16>::raised(x[0]), 16);
        return _mm256_blend_epi16(low, Lanes<Bf16>::raised(x[1]), 0xAA);
    }
    bool is_certain() const { return _mm256_movemask_ps(nan_) == 0; }

  private:
    __m256 nan_ = _mm256_setzero_ps();
};

template <>
class Words<F16> : public WordPairs {
  public:
    // Neighbors of one row.
    static __m256i in_order(const std::byte *src) {
        return Lanes<F16>::packed(Lanes<F32>::load(src), Lanes<F32>::load(src + 32));
    }
    static __m256i join(const __m256 (&x)[kRows]) {
        const __m128i a = Lanes<F16>::halves(x[0]), b = Lanes<F16>::halves(x[1]);
        return _mm256_setr_m128i(_mm_unpacklo_epi16(a, b), _mm_unpackhi_epi16(a, b));
    }
    static bool is_certain() { return true; }
};

}  // namespace
}  // namespace stridewise
