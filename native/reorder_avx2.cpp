// The inner loops of a reorder for processors with AVX2 and F16C.
#include <immintrin.h>

#include "reorder_avx2_lanes.hpp"
#include "reorder_elements.hpp"

namespace stridewise {
namespace {

constexpr std::int64_t kLine = 64;

inline std::int64_t least(std::int64_t a, std::int64_t b) {
    return a < b ? a : b;
}

inline void prefetch(const std::byte *p) {
    _mm_prefetch(reinterpret_cast<const char *>(p), _MM_HINT_T0);
}

// Copies up to 32 bytes, both ends by moves that may overlap.
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

// Fetches what the transposition to come reads at an offset; what is converted lies there already.
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

template <bool kStream>
inline void copy_runs(const Runs &runs) {
    const std::int64_t vectors = runs.nbytes / 32 * 32, rest = runs.nbytes - vectors;
    // Long runs are a stream that the hardware prefetches by itself.
    const std::int64_t ahead = least(runs.nbytes, 2 * kLine);
    for (std::int64_t i = 0; i < runs.count; ++i) {
        const std::byte *src = runs.src + runs.from[i];
        std::byte *dst = runs.dst + runs.to[i];
        for (std::int64_t at = 0; at < ahead; at += kLine) prefetch(runs.next + runs.from[i] + at);
        if (vectors == 32) {
            copy_vectors<kStream>(src, dst, 32);
        } else if (vectors == 64) {
            copy_vectors<kStream>(src, dst, 64);
        } else {
            copy_vectors<kStream>(src, dst, vectors);
        }
        if (rest != 0) copy_short(src + vectors, dst + vectors, rest);
    }
}

void copy(const Runs &runs) {
    bool aligned = reinterpret_cast<std::uintptr_t>(runs.dst) % 32 == 0;
    for (std::int64_t i = 0; runs.stream && i < runs.count; ++i) {
        aligned = aligned && runs.to[i] % 32 == 0;
    }
    if (runs.stream && aligned) {
        copy_runs<true>(runs);
    } else {
        copy_runs<false>(runs);
    }
}

void fence() {
    _mm_sfence();
}

// A square of vectors: kSide of them with kSide elements of kWidth bytes each.
struct Square1 {
    using Register = Xmm;
    using Vector = __m128i;
    static constexpr std::int64_t kWidth = 1, kSide = 16;
    [[gnu::always_inline]] static void transpose(Vector (&v)[16]) {
        Vector a[16];
        for (int i = 0; i < 8; ++i) {
            a[2 * i] = _mm_unpacklo_epi8(v[i], v[i + 8]);
            a[2 * i + 1] = _mm_unpackhi_epi8(v[i], v[i + 8]);
        }
        for (int i = 0; i < 8; ++i) {
            v[2 * i] = _mm_unpacklo_epi8(a[i], a[i + 8]);
            v[2 * i + 1] = _mm_unpackhi_epi8(a[i], a[i + 8]);
        }
        for (int i = 0; i < 8; ++i) {
            a[2 * i] = _mm_unpacklo_epi8(v[i], v[i + 8]);
            a[2 * i + 1] = _mm_unpackhi_epi8(v[i], v[i + 8]);
        }
        for (int i = 0; i < 8; ++i) {
            v[2 * i] = _mm_unpacklo_epi8(a[i], a[i + 8]);
            v[2 * i + 1] = _mm_unpackhi_epi8(a[i], a[i + 8]);
        }
    }
};

struct Square2 {
    using Register = Xmm;
    using Vector = __m128i;
    static constexpr std::int64_t kWidth = 2, kSide = 8;
    static void transpose(Vector (&v)[8]) {
        Vector a[8];
        for (int i = 0; i < 4; ++i) {
            a[2 * i] = _mm_unpacklo_epi16(v[i], v[i + 4]);
            a[2 * i + 1] = _mm_unpackhi_epi16(v[i], v[i + 4]);
        }
        for (int i = 0; i < 4; ++i) {
            v[2 * i] = _mm_unpacklo_epi16(a[i], a[i + 4]);
            v[2 * i + 1] = _mm_unpackhi_epi16(a[i], a[i + 4]);
        }
        for (int i = 0; i < 4; ++i) {
            a[2 * i] = _mm_unpacklo_epi16(v[i], v[i + 4]);
            a[2 * i + 1] = _mm_unpackhi_epi16(v[i], v[i + 4]);
        }
        for (int i = 0; i < 8; ++i) v[i] = a[i];
    }
};

struct Square4 {
    using Register = Ymm;
    using Vector = __m256i;
    static constexpr std::int64_t kWidth = 4, kSide = 8;
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
    static void transpose(Vector (&v)[2]) {
        const Vector a = v[0], b = v[1];
        v[0] = _mm256_permute2x128_si256(a, b, 0x20);
        v[1] = _mm256_permute2x128_si256(a, b, 0x31);
    }
};

// The first `nbytes` (fewer than 8) bytes, by reads that may overlap but stay inside.
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

// The first `nbytes` bytes of a vector, zeros behind.
inline void load_part(const std::byte *src, std::int64_t nbytes, __m128i &v) {
    v = load_sixteen(src, nbytes);
}

inline void load_part(const std::byte *src, std::int64_t nbytes, __m256i &v) {
    // Elements of this width are at least four bytes, so whole lanes of four are left out.
    const __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    const __m256i mask = _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(nbytes / 4)), lanes);
    v = _mm256_maskload_epi32(reinterpret_cast<const int *>(src), mask);
}

// Loads and transposes the square whose first row is r and first column c, of which `rows` and
// `columns` exist.
template <typename S>
inline void load_square(const Transposition &t, std::int64_t r, std::int64_t c, std::int64_t rows,
                        std::int64_t columns, typename S::Vector (&v)[S::kSide]) {
    const std::byte *src = t.src + c * S::kWidth;
    if (rows >= S::kSide && columns >= S::kSide) {
        for (std::int64_t i = 0; i < S::kSide; ++i) v[i] = S::Register::load(src + t.rows[r + i]);
    } else {
        const std::int64_t nbytes = least(columns, S::kSide) * S::kWidth;
        for (std::int64_t i = 0; i < S::kSide; ++i) {
            if (i < rows) {
                load_part(src + t.rows[r + i], nbytes, v[i]);
            } else {
                v[i] = S::Register::zero();
            }
        }
    }
    S::transpose(v);
}

// A block that is one cache line wide and high: each line of the source is read at once, as rows
// far apart often fall into one set of the caches and push each other out; each line of the
// destination is written at once, as streaming stores demand.
template <typename S>
inline void transpose_block(const Transposition &t, std::int64_t r, std::int64_t c) {
    constexpr std::int64_t kBytes = S::kSide * S::kWidth;
    constexpr std::int64_t kParts = kLine / kBytes;
    typename S::Vector lines[kParts * S::kSide][kParts];
    for (std::int64_t p = 0; p < kParts; ++p) {
        for (std::int64_t q = 0; q < kParts; ++q) {
            const std::byte *src = t.src + (c + q * S::kSide) * S::kWidth;
            const std::int64_t *rows = t.rows + r + p * S::kSide;
            typename S::Vector v[S::kSide];
            for (std::int64_t i = 0; i < S::kSide; ++i) {
                v[i] = S::Register::load(src + rows[i]);
                if (q == 0) fetch_next(t, rows[i] + (src - t.src));
            }
            S::transpose(v);
            for (std::int64_t j = 0; j < S::kSide; ++j) lines[q * S::kSide + j][p] = v[j];
        }
    }
    for (std::int64_t j = 0; j < kParts * S::kSide; ++j) {
        std::byte *dst = t.dst + t.columns[c + j] + r * S::kWidth;
        for (std::int64_t p = 0; p < kParts; ++p) {
            if (t.stream) {
                S::Register::stream(dst + p * kBytes, lines[j][p]);
            } else {
                S::Register::store(dst + p * kBytes, lines[j][p]);
            }
        }
    }
}

// Gathers rows of a column, element by element.
template <typename S>
inline void gather(const Transposition &t, std::int64_t r, std::int64_t c, std::int64_t count,
                   std::byte *to) {
    const std::byte *src = t.src + c * S::kWidth;
    for (std::int64_t i = 0; i < count; ++i) {
        std::memcpy(to + i * S::kWidth, src + t.rows[r + i], S::kWidth);
    }
}

// Some columns, and kDepth whole lines of each. Streaming stores that are far apart cost DRAM a
// new row each, so that a column had better get several lines in a row.
template <typename S, std::int64_t kDepth>
inline void transpose_lines(const Transposition &t, std::int64_t r, std::int64_t c,
                            std::int64_t columns) {
    constexpr std::int64_t kBytes = S::kSide * S::kWidth;
    constexpr std::int64_t kRows = kDepth * kLine / S::kWidth;
    constexpr std::int64_t kFew = 2;  // columns that are not worth a square of their own
    alignas(kLine) std::byte lines[kLine / S::kWidth][kDepth * kLine];
    for (std::int64_t i = 0; i < kRows; ++i) fetch_next(t, t.rows[r + i] + c * S::kWidth);
    std::int64_t done = 0;
    while (columns - done > kFew) {
        const std::int64_t count = least(S::kSide, columns - done);
        for (std::int64_t at = 0; at < kRows; at += S::kSide) {
            typename S::Vector v[S::kSide];
            load_square<S>(t, r + at, c + done, S::kSide, count, v);
            for (std::int64_t j = 0; j < count; ++j) {
                S::Register::store(lines[done + j] + at * S::kWidth, v[j]);
            }
        }
        done += count;
    }
    for (; done < columns; ++done) gather<S>(t, r, c + done, kRows, lines[done]);
    for (std::int64_t j = 0; j < columns; ++j) {
        std::byte *dst = t.dst + t.columns[c + j] + r * S::kWidth;
        for (std::int64_t at = 0; at < kDepth * kLine; at += kBytes) {
            const auto v = S::Register::load(lines[j] + at);
            if (t.stream) {
                S::Register::stream(dst + at, v);
            } else {
                S::Register::store(dst + at, v);
            }
        }
    }
}

// The same where rows or columns end, one square after the other.
template <typename S>
void transpose_edge(const Transposition &t, std::int64_t first_row, std::int64_t first_column,
                    std::int64_t rows, std::int64_t columns) {
    for (std::int64_t c = first_column; c < first_column + columns; c += S::kSide) {
        for (std::int64_t r = first_row; r < first_row + rows; r += S::kSide) {
            for (std::int64_t i = r; i < least(r + S::kSide, t.row_count); ++i) {
                fetch_next(t, t.rows[i] + c * S::kWidth);
            }
            typename S::Vector v[S::kSide];
            load_square<S>(t, r, c, t.row_count - r, t.column_count - c, v);
            const std::int64_t stored = least(S::kSide, first_row + rows - r);
            for (std::int64_t j = 0; j < least(S::kSide, first_column + columns - c); ++j) {
                std::byte *dst = t.dst + t.columns[c + j] + r * S::kWidth;
                if (stored == S::kSide && t.stream) {
                    S::Register::stream(dst, v[j]);
                } else if (stored == S::kSide) {
                    S::Register::store(dst, v[j]);
                } else if (2 * stored == S::kSide) {
                    S::Register::store_half(dst, v[j]);
                } else {
                    alignas(32) std::byte last[S::kSide * S::kWidth];
                    S::Register::store(last, v[j]);
                    copy_short(last, dst, stored * S::kWidth);
                }
            }
        }
    }
}

// A block of a few columns and four lines of each: streaming stores that are far apart cost DRAM
// a new row each, so a column gets as many in a row as the stack holds.
template <typename S>
inline void transpose_tall(const Transposition &t, std::int64_t r, std::int64_t c) {
    constexpr std::int64_t kBytes = S::kSide * S::kWidth;
    constexpr std::int64_t kParts = 4 * kLine / kBytes;
    typename S::Vector lines[S::kSide][kParts];
    const std::byte *src = t.src + c * S::kWidth;
    for (std::int64_t p = 0; p < kParts; ++p) {
        const std::int64_t *rows = t.rows + r + p * S::kSide;
        typename S::Vector v[S::kSide];
        for (std::int64_t i = 0; i < S::kSide; ++i) {
            v[i] = S::Register::load(src + rows[i]);
            fetch_next(t, rows[i] + (src - t.src));
        }
        S::transpose(v);
        for (std::int64_t j = 0; j < S::kSide; ++j) lines[j][p] = v[j];
    }
    for (std::int64_t j = 0; j < S::kSide; ++j) {
        std::byte *dst = t.dst + t.columns[c + j] + r * S::kWidth;
        for (std::int64_t p = 0; p < kParts; ++p)
            S::Register::stream(dst + p * kBytes, lines[j][p]);
    }
}

template <typename S>
void transpose(const Transposition &t) {
    constexpr std::int64_t kSide = kLine / S::kWidth;
    const std::int64_t rows = t.row_count + t.zero_rows;
    const auto block = [&](std::int64_t r, std::int64_t c) {
        if (r + kSide <= t.row_count && c + kSide <= t.column_count) {
            transpose_block<S>(t, r, c);
        } else if (r + kSide <= t.row_count) {
            transpose_lines<S, 1>(t, r, c, t.column_count - c);
        } else {
            transpose_edge<S>(t, r, c, least(kSide, rows - r), least(kSide, t.column_count - c));
        }
    };
    if (!t.by_columns) {
        for (std::int64_t r = 0; r < rows; r += kSide) {
            for (std::int64_t c = 0; c < t.column_count; c += kSide) block(r, c);
        }
        return;
    }
    for (std::int64_t c = 0; c < t.column_count; c += kSide) {
        const std::int64_t columns = least(kSide, t.column_count - c);
        std::int64_t r = 0;
        for (; t.stream && r + 4 * kSide <= t.row_count; r += 4 * kSide) {
            if (columns < kSide) {
                transpose_lines<S, 4>(t, r, c, columns);
                continue;
            }
            for (std::int64_t q = 0; q < kSide; q += S::kSide) transpose_tall<S>(t, r, c + q);
        }
        for (; r < rows; r += kSide) block(r, c);
    }
}

// Elements of two vectors in turn.
template <std::int64_t kWidth>
inline void shuffle(__m128i a, __m128i b, __m128i &low, __m128i &high) {
    if constexpr (kWidth == 1) {
        low = _mm_unpacklo_epi8(a, b), high = _mm_unpackhi_epi8(a, b);
    } else if constexpr (kWidth == 2) {
        low = _mm_unpacklo_epi16(a, b), high = _mm_unpackhi_epi16(a, b);
    } else if constexpr (kWidth == 4) {
        low = _mm_unpacklo_epi32(a, b), high = _mm_unpackhi_epi32(a, b);
    } else {
        low = _mm_unpacklo_epi64(a, b), high = _mm_unpackhi_epi64(a, b);
    }
}

template <std::int64_t kWidth>
void interleave(const Transposition &t) {
    constexpr std::int64_t kColumns = 16 / kWidth;
    for (std::int64_t c = 0; c < t.column_count; c += kColumns) {
        const std::byte *src = t.src + c * kWidth;
        std::byte *dst = t.dst + t.columns[c];
        for (std::int64_t i = 0; i < t.row_count; ++i) fetch_next(t, t.rows[i] + (src - t.src));
        const __m128i a = Xmm::load(src + t.rows[0]), b = Xmm::load(src + t.rows[1]);
        if (t.row_count == 2) {
            __m128i low, high;
            shuffle<kWidth>(a, b, low, high);
            Xmm::store(dst, low);
            Xmm::store(dst + 16, high);
            continue;
        }
        __m128i even[2], odd[2], lines[4];
        shuffle<kWidth>(a, Xmm::load(src + t.rows[2]), even[0], even[1]);
        shuffle<kWidth>(b, Xmm::load(src + t.rows[3]), odd[0], odd[1]);
        shuffle<kWidth>(even[0], odd[0], lines[0], lines[1]);
        shuffle<kWidth>(even[1], odd[1], lines[2], lines[3]);
        for (int i = 0; i < 4; ++i) Xmm::store(dst + 16 * i, lines[i]);
    }
}

// Sixteen rows and columns of bytes, or of words.
[[gnu::always_inline]] inline void transpose_sixteen(__m128i (&v)[16]) {
    Square1::transpose(v);
}

[[gnu::always_inline]] inline void transpose_sixteen(__m256i (&v)[16]) {
    // Each half of the rows, the lanes by themselves: columns 0 to 7 in the low ones.
    const auto eight = [](__m256i *w) {
        __m256i a[8], b[8];
        for (int i = 0; i < 4; ++i) {
            a[2 * i] = _mm256_unpacklo_epi16(w[i], w[i + 4]);
            a[2 * i + 1] = _mm256_unpackhi_epi16(w[i], w[i + 4]);
        }
        for (int i = 0; i < 4; ++i) {
            b[2 * i] = _mm256_unpacklo_epi16(a[i], a[i + 4]);
            b[2 * i + 1] = _mm256_unpackhi_epi16(a[i], a[i + 4]);
        }
        for (int i = 0; i < 4; ++i) {
            w[2 * i] = _mm256_unpacklo_epi16(b[i], b[i + 4]);
            w[2 * i + 1] = _mm256_unpackhi_epi16(b[i], b[i + 4]);
        }
    };
    eight(v);
    eight(v + 8);
    for (int i = 0; i < 8; ++i) {
        const __m256i low = v[i], high = v[i + 8];
        v[i] = _mm256_permute2x128_si256(low, high, 0x20);
        v[i + 8] = _mm256_permute2x128_si256(low, high, 0x31);
    }
}

// Up to sixteen float32, converted.
template <typename To>
inline auto load_row(const std::byte *row, std::int64_t columns) {
    __m256i low, high;
    if (columns >= 16) {
        low = Ymm::load(row), high = Ymm::load(row + 32);
    } else {
        load_part(row, 4 * least(columns, 8), low);
        load_part(row + 32, 4 * (columns > 8 ? columns - 8 : 0), high);
    }
    return Lanes<To>::packed(_mm256_castsi256_ps(low), _mm256_castsi256_ps(high));
}

// Sixteen rows that will be read soon.
struct Ahead {
    const std::byte *src;
    const std::int64_t *rows;
};

// Sixteen rows and up to as many columns of float32, converted and then transposed: each whole line
// of the source is read at once, and one of each of the rows to `fetch`. `put` takes a column and
// what it consists of, also for those of the sixteen that do not exist.
template <typename To, typename Put>
inline void convert_block(const Transposition &t, std::int64_t r, std::int64_t c,
                          const Ahead &fetch, const Put &put) {
    typename Lanes<To>::Vector::Vector v[16];
    for (std::int64_t i = 0; i < 16; ++i) prefetch(fetch.src + fetch.rows[i]);
    const std::byte *src = t.src + 4 * c;
    for (std::int64_t i = 0; i < 16; ++i) {
        v[i] = load_row<To>(src + t.rows[r + i], t.column_count - c);
    }
    transpose_sixteen(v);
    for (std::int64_t j = 0; j < 16; ++j) put(j, v[j]);
}

// Columns that are shorter than a line each.
template <typename To, bool kStream>
inline void convert_short(const Transposition &t, std::int64_t r, std::int64_t c) {
    constexpr auto kTo = static_cast<std::int64_t>(sizeof(typename To::Type));
    using Vector = typename Lanes<To>::Vector;
    const std::int64_t columns = t.column_count - c, *to = t.columns + c;
    std::byte *dst = t.dst + r * kTo;
    const Ahead fetch{t.next + 4 * c, t.rows + r};
    if (columns >= 16) {
        convert_block<To>(t, r, c, fetch, [&](std::int64_t j, auto v) {
            Vector::template put<kStream>(dst + to[j], v);
        });
        return;
    }
    alignas(kLine) std::byte found[16][16 * kTo];
    convert_block<To>(t, r, c, fetch, [&](std::int64_t j, auto v) { Vector::store(found[j], v); });
    for (std::int64_t j = 0; j < columns; ++j) {
        Vector::template put<kStream>(dst + to[j], Vector::load(found[j]));
    }
}

constexpr std::int64_t kDepth = 4;  // lines of a column that are written together

// Columns of whole lines, up to four of each at a time: streaming stores that are far apart cost
// DRAM a new row each. Rows are read in long stretches, for the same reason.
template <typename To>
inline void convert_tall(const Transposition &t) {
    constexpr auto kTo = static_cast<std::int64_t>(sizeof(typename To::Type));
    constexpr std::int64_t kColumns = 64, kRows = kLine / kTo, kInFlight = 4096, kPage = 4096;
    using Vector = typename Lanes<To>::Vector;
    alignas(kLine) std::byte lines[kColumns][kDepth * kLine];
    const bool is_far = t.rows[1] - t.rows[0] >= kPage;
    for (std::int64_t c = 0; c < t.column_count; c += kColumns) {
        const std::int64_t columns = least(kColumns, t.column_count - c);
        // A tile may be larger than the caches. Of rows that are near each other no more is fetched
        // than is in flight.
        const std::int64_t ahead = kInFlight / (4 * kColumns);
        const auto fetch = [&](std::int64_t row) -> Ahead {
            if (is_far || row + ahead >= t.row_count) return {t.next + 4 * c, t.rows + row};
            return {t.src + 4 * c, t.rows + row + ahead};
        };
        for (std::int64_t r = 0; r < t.row_count; r += kDepth * kRows) {
            const std::int64_t rows = least(kDepth * kRows, t.row_count - r);
            for (std::int64_t i = 0; i < rows; i += 16) {
                const Ahead near = fetch(r + i);
                for (std::int64_t k = 0; k < columns; k += 16) {
                    const Ahead here{near.src + 4 * k, near.rows};
                    convert_block<To>(t, r + i, c + k, here, [&](std::int64_t j, auto v) {
                        Vector::store(lines[k + j] + i * kTo, v);
                    });
                }
            }
            for (std::int64_t j = 0; j < columns; ++j) {
                copy_vectors<true>(lines[j], t.dst + t.columns[c + j] + r * kTo, rows * kTo);
            }
        }
    }
}

// The same for short rows that follow one another, as where the columns are those of a 3x3 kernel:
// they are converted without gaps, and then transposed.
template <typename To>
inline void convert_packed(const Transposition &t) {
    constexpr auto kTo = static_cast<std::int64_t>(sizeof(typename To::Type));
    constexpr std::int64_t kRows = kDepth * kLine / kTo, kAhead = 8 * 16;
    using Vector = typename Lanes<To>::Vector;
    const std::int64_t columns = t.column_count, pitch = columns * kTo;
    alignas(kLine) std::byte lines[16][kDepth * kLine];
    std::byte packed[(kRows + 1) * 16 * kTo];  // the last row is read beyond its end
    for (std::int64_t r = 0; r < t.row_count; r += kRows) {
        const std::int64_t rows = least(kRows, t.row_count - r);
        for (std::int64_t i = 0; i < rows; i += 16) {
            const std::byte *src = t.src + t.rows[r + i];
            const std::int64_t later = r + i + kAhead;
            const std::byte *next =
                later < t.row_count ? t.src + t.rows[later] : t.next + t.rows[later % t.row_count];
            for (std::int64_t k = 0; k < columns; ++k) {
                prefetch(next + kLine * k);
                Vector::store(packed + i * pitch + 16 * kTo * k, load_row<To>(src + 64 * k, 16));
            }
        }
        for (std::int64_t i = 0; i < rows; i += 16) {
            typename Vector::Vector v[16];
            for (std::int64_t k = 0; k < 16; ++k) v[k] = Vector::load(packed + (i + k) * pitch);
            transpose_sixteen(v);
            for (std::int64_t j = 0; j < 16; ++j) Vector::store(lines[j] + i * kTo, v[j]);
        }
        for (std::int64_t j = 0; j < columns; ++j) {
            std::byte *dst = t.dst + t.columns[j] + r * kTo;
            if (t.stream) {
                copy_vectors<true>(lines[j], dst, rows * kTo);
            } else {
                copy_vectors<false>(lines[j], dst, rows * kTo);
            }
        }
    }
}

template <typename To>
void transpose_f32(const Transposition &t) {
    constexpr std::int64_t kRows = kLine / static_cast<std::int64_t>(sizeof(typename To::Type));
    if (t.is_packed && t.column_count < 16 && t.row_count % 32 == 0) return convert_packed<To>(t);
    if (t.stream && t.row_count % kRows == 0) return convert_tall<To>(t);
    const auto block = [&](std::int64_t r, std::int64_t c) {
        t.stream ? convert_short<To, true>(t, r, c) : convert_short<To, false>(t, r, c);
    };
    if (t.by_columns) {
        for (std::int64_t c = 0; c < t.column_count; c += 16) {
            for (std::int64_t r = 0; r < t.row_count; r += 16) block(r, c);
        }
    } else {
        for (std::int64_t r = 0; r < t.row_count; r += 16) {
            for (std::int64_t c = 0; c < t.column_count; c += 16) block(r, c);
        }
    }
}

template <typename To, bool kStream>
inline void convert_sixteen(const std::byte *low, const std::byte *high, std::byte *dst) {
    Lanes<To>::Vector::template put<kStream>(
        dst, Lanes<To>::packed(Lanes<F32>::load(low), Lanes<F32>::load(high)));
}

// Runs of eight elements, two at a time.
template <typename To>
inline void convert_eights(const Runs &runs) {
    constexpr auto kHalf = 8 * static_cast<std::int64_t>(sizeof(typename To::Type));
    std::byte unused[kHalf];
    for (std::int64_t i = 0; i < runs.count; i += 2) {
        const bool is_last = i + 1 == runs.count;
        const std::byte *low = runs.src + runs.from[i];
        const std::byte *high = is_last ? low : runs.src + runs.from[i + 1];
        prefetch(runs.next + runs.from[i]);
        split_vector(runs.dst + runs.to[i], is_last ? unused : runs.dst + runs.to[i + 1],
                     Lanes<To>::packed(Lanes<F32>::load(low), Lanes<F32>::load(high)));
    }
}

template <typename To, bool kStream>
inline void convert_runs(const ConvertedRuns &job) {
    constexpr auto kTo = static_cast<std::int64_t>(sizeof(typename To::Type));
    const Runs &runs = job.runs;
    const std::int64_t width = runs.nbytes / kTo;
    if (job.is_paired) {
        for (std::int64_t i = 0; i + 2 <= runs.count; i += 2) {
            prefetch(runs.next + runs.from[i]);
            convert_sixteen<To, kStream>(runs.src + runs.from[i], runs.src + runs.from[i + 1],
                                         runs.dst + runs.to[i]);
        }
        return;
    }
    if (width == 8) return convert_eights<To>(runs);
    for (std::int64_t i = 0; i < runs.count; ++i) {
        const std::byte *src = runs.src + runs.from[i], *next = runs.next + runs.from[i];
        std::byte *dst = runs.dst + runs.to[i];
        for (std::int64_t at = 0; at + 16 <= width; at += 16) {
            prefetch(next + 4 * at);
            convert_sixteen<To, kStream>(src + 4 * at, src + 4 * at + 32, dst + at * kTo);
        }
        if (width % 16 != 0) {
            // The last sixteen overlap those before them.
            const std::int64_t at = width - 16;
            convert_sixteen<To, false>(src + 4 * at, src + 4 * at + 32, dst + at * kTo);
        }
    }
}

template <typename To>
void convert_f32(const ConvertedRuns &job) {
    job.runs.stream ? convert_runs<To, true>(job) : convert_runs<To, false>(job);
}

ReorderKernels make() {
    ReorderKernels kernels{};
    kernels.transpose[0] = &transpose<Square1>;
    kernels.transpose[1] = &transpose<Square2>;
    kernels.transpose[2] = &transpose<Square4>;
    kernels.transpose[3] = &transpose<Square8>;
    kernels.transpose[4] = &transpose<Square16>;
    kernels.interleave[0] = &interleave<1>;
    kernels.interleave[1] = &interleave<2>;
    kernels.interleave[2] = &interleave<4>;
    kernels.interleave[3] = &interleave<8>;
    kernels.copy = &copy;
    kernels.fence = &fence;
    fill_conversions<Each>(kernels.convert);
    kernels.transpose_f32[static_cast<int>(Element::f16)] = &transpose_f32<F16>;
    kernels.transpose_f32[static_cast<int>(Element::bf16)] = &transpose_f32<Bf16>;
    kernels.transpose_f32[static_cast<int>(Element::s8)] = &transpose_f32<S8>;
    kernels.transpose_f32[static_cast<int>(Element::u8)] = &transpose_f32<U8>;
    kernels.convert_f32[static_cast<int>(Element::f16)] = &convert_f32<F16>;
    kernels.convert_f32[static_cast<int>(Element::bf16)] = &convert_f32<Bf16>;
    kernels.convert_f32[static_cast<int>(Element::s8)] = &convert_f32<S8>;
    kernels.convert_f32[static_cast<int>(Element::u8)] = &convert_f32<U8>;
    return kernels;
}

}  // namespace

const ReorderKernels &avx2_reorder_kernels() {
    static const ReorderKernels kernels = make();
    return kernels;
}

}  // namespace stridewise
