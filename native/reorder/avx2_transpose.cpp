// Transpositions without a conversion, for AVX2.
#include "reorder/avx2.hpp"
#include "reorder/avx2_squares.hpp"

namespace stridewise {
namespace {

// Approximate bytes of a piece that is transposed through a copy, and of each of its columns.
constexpr std::int64_t kCopy = 64 << 10, kTall = 512;

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

// A block that is one cache line wide and high. Each line of the source is read completely at once,
// because rows that are far apart often map to one cache set and evict each other. Each line of the
// destination is written at once, as streaming stores require.
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

// Gathers rows of a column element by element into a vector register. Going through memory would
// fail store-to-load forwarding: narrow stores cannot be read by one wide load until they retire.
template <typename S>
inline void gather(const Transposition &t, std::int64_t r, std::int64_t c, std::int64_t count,
                   std::byte *to) {
    const std::byte *src = t.src + c * S::kWidth;
    for (std::int64_t i = 0; i < count; i += S::kSide) {
        const std::int64_t *rows = t.rows + r + i;
        S::Register::store(to + i * S::kWidth, S::gathered(src, rows));
    }
}

// Some columns, and kDepth whole cache lines of each. Streaming stores that are far apart each open
// a new DRAM row, so several lines of a column are written in a row.
template <typename S, std::int64_t kDepth>
inline void transpose_lines(const Transposition &t, std::int64_t r, std::int64_t c,
                            std::int64_t columns) {
    constexpr std::int64_t kBytes = S::kSide * S::kWidth;
    constexpr std::int64_t kRows = kDepth * kLine / S::kWidth;
    constexpr std::int64_t kFew = 2;  // so few columns are copied without a square
    alignas(kLine) std::byte lines[kLine / S::kWidth][kDepth * kLine];
    for (std::int64_t i = 0; i < kRows; ++i) {
        const std::int64_t row = t.rows[r + i] + c * S::kWidth;
        fetch_next(t, row);
        // If the next row is not contiguous, nothing else prefetches the last line of this one.
        if (!t.is_packed || i % 16 == 15) fetch_next(t, row + columns * S::kWidth - 1);
    }
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

// The same for the remainder of rows or columns, one square at a time.
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

// A block of a few columns and four cache lines of each. Streaming stores that are far apart each
// open a new DRAM row, so as many lines of a column as the stack holds are written in a row.
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

// Transposes some rows and columns into a copy and streams the copy, column by column. Rows are
// prefetched one after the other, each as a whole. After the last row the prefetch continues with
// the rows at `behind`, which may be null.
template <typename S>
inline void transpose_piece(const Transposition &t, std::int64_t first, std::int64_t last,
                            std::int64_t c, std::int64_t columns, const std::byte *behind,
                            std::byte *lines) {
    constexpr std::int64_t kBytes = S::kSide * S::kWidth, kNear = 4096;
    constexpr std::int64_t kFetches =
        S::kSide * kBytes / kLine;  // for each square, one of its size
    const std::byte *here = t.src + c * S::kWidth;
    const std::int64_t height = (last - first) * S::kWidth, width = columns * S::kWidth;
    const std::int64_t ahead = (kNear + S::kSide * width - 1) / (S::kSide * width) * S::kSide;
    for (std::int64_t r = first; r < last; r += S::kSide) {
        const std::byte *from = r + ahead < last ? here : behind;
        const std::int64_t *row = t.rows + (r + ahead) % t.row_count;
        std::int64_t offset = 0;
        std::byte *to = lines + (r - first) * S::kWidth;
        for (std::int64_t k = 0; k < columns; k += S::kSide) {
            for (std::int64_t i = 0; from != nullptr && i < kFetches; ++i) {
                prefetch(from + *row + offset);
                offset += kLine;
                if (offset >= width) ++row, offset = 0;
            }
            typename S::Vector v[S::kSide];
            for (std::int64_t i = 0; i < S::kSide; ++i) {
                v[i] = S::Register::load(here + t.rows[r + i] + k * S::kWidth);
            }
            S::transpose(v);
            for (std::int64_t j = 0; j < S::kSide; ++j) {
                S::Register::store(to + (k + j) * height, v[j]);
            }
        }
    }
    for (std::int64_t j = 0; j < columns; ++j) {
        std::byte *dst = t.dst + t.columns[c + j] + first * S::kWidth;
        copy_vectors<true>(lines + j * height, dst, height);
    }
}

// Many long rows that are far apart, in pieces whose copy fits the second-level cache. DRAM opens a
// page once per piece of a row. Reading one line of each row in turn would open a page per line.
template <typename S>
void transpose_by_rows(const Transposition &t) {
    alignas(kLine) std::byte lines[kCopy];
    constexpr std::int64_t kElements = kLine / S::kWidth;
    const std::int64_t parts = t.row_count * S::kWidth / kTall;
    const std::int64_t part =
        ((t.row_count + parts - 1) / parts + kElements - 1) / kElements * kElements;
    const std::int64_t strip = kCopy / (part * S::kWidth) / S::kSide * S::kSide;
    for (std::int64_t c = 0; c < t.column_count; c += strip) {
        const std::int64_t columns = least(strip, t.column_count - c);
        const std::byte *here = t.src + c * S::kWidth;
        const std::byte *behind =
            c + columns == t.column_count ? t.next : here + columns * S::kWidth;
        for (std::int64_t r = 0; r < t.row_count; r += part) {
            const std::int64_t end = least(r + part, t.row_count);
            transpose_piece<S>(t, r, end, c, columns, end < t.row_count ? here : behind, lines);
        }
    }
}

// Four rows, and columns in multiples of eight.
inline void transpose_four(const Transposition &t) {
    for (std::int64_t c = 0; c < t.column_count; c += 8) {
        const std::int64_t offset = c * Square4::kWidth;
        const std::int64_t *to = t.columns + c;
        __m256i v[4];
        for (std::int64_t i = 0; i < 4; ++i) {
            v[i] = Ymm::load(t.src + offset + t.rows[i]);
            if (c % 16 == 0) fetch_next(t, t.rows[i] + offset);
        }
        // Each lane is a square of its own.
        const __m256i a = _mm256_unpacklo_epi32(v[0], v[1]), b = _mm256_unpackhi_epi32(v[0], v[1]);
        const __m256i d = _mm256_unpacklo_epi32(v[2], v[3]), e = _mm256_unpackhi_epi32(v[2], v[3]);
        split_vector(t.dst + to[0], t.dst + to[4], _mm256_unpacklo_epi64(a, d));
        split_vector(t.dst + to[1], t.dst + to[5], _mm256_unpackhi_epi64(a, d));
        split_vector(t.dst + to[2], t.dst + to[6], _mm256_unpacklo_epi64(b, e));
        split_vector(t.dst + to[3], t.dst + to[7], _mm256_unpackhi_epi64(b, e));
    }
}

// Two rows of pairs of words, and columns in multiples of four.
inline void transpose_two(const Transposition &t) {
    for (std::int64_t c = 0; c < t.column_count; c += 4) {
        const std::int64_t offset = c * Square8::kWidth;
        const std::int64_t *to = t.columns + c;
        __m256i v[2];
        for (std::int64_t i = 0; i < 2; ++i) {
            v[i] = Ymm::load(t.src + offset + t.rows[i]);
            if (c % 8 == 0) fetch_next(t, t.rows[i] + offset);
        }
        split_vector(t.dst + to[0], t.dst + to[2], _mm256_unpacklo_epi64(v[0], v[1]));
        split_vector(t.dst + to[1], t.dst + to[3], _mm256_unpackhi_epi64(v[0], v[1]));
    }
}

// Whether rows are numerous, long and far apart, so that each should be prefetched as a whole.
inline bool is_far(const Transposition &t, std::int64_t width) {
    constexpr std::int64_t kLong = 256;
    return t.stream && !t.is_packed && t.zero_rows == 0 && t.column_count * width >= kLong &&
           t.row_count * width >= kTall && t.row_count * width <= kCopy / kLine;
}

template <typename S>
void transpose(const Transposition &t) {
    constexpr std::int64_t kSide = kLine / S::kWidth;
    const std::int64_t rows = t.row_count + t.zero_rows;
    if constexpr (S::kWidth == 4) {
        if (rows == 4 && t.zero_rows == 0 && t.column_count % 8 == 0) return transpose_four(t);
    }
    if constexpr (S::kWidth == 8) {
        if (rows == 2 && t.zero_rows == 0 && t.column_count % 4 == 0) return transpose_two(t);
    }
    const auto block = [&](std::int64_t r, std::int64_t c) {
        if (r + kSide <= t.row_count && c + kSide <= t.column_count) {
            transpose_block<S>(t, r, c);
        } else if (r + kSide <= t.row_count) {
            transpose_lines<S, 1>(t, r, c, t.column_count - c);
        } else {
            transpose_edge<S>(t, r, c, least(kSide, rows - r), least(kSide, t.column_count - c));
        }
    };
    if (is_far(t, S::kWidth) && t.column_count % S::kSide == 0) return transpose_by_rows<S>(t);
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

// Interleaves the elements of two vectors.
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

// The bytes of each row that one of three adjacent vectors has, as places in the row; those of
// other rows are negative, which a byte shuffle turns into zeros.
template <std::int64_t kWidth>
struct Thirds {
    alignas(16) std::int8_t from[3][3][16];  // by vector and row

    constexpr Thirds() : from{} {
        for (std::int64_t i = 0; i < 3 * 16; ++i) {
            const std::int64_t element = i / kWidth, at = element / 3 * kWidth + i % kWidth;
            for (std::int64_t row = 0; row < 3; ++row) {
                from[i / 16][row][i % 16] = static_cast<std::int8_t>(element % 3 == row ? at : -1);
            }
        }
    }
};

// Three rows, such as the channels of an image.
template <std::int64_t kWidth>
inline void interleave_three(const Transposition &t) {
    static constexpr Thirds<kWidth> kThirds;
    constexpr std::int64_t kColumns = 16 / kWidth;
    for (std::int64_t c = 0; c < t.column_count; c += kColumns) {
        const std::byte *src = t.src + c * kWidth;
        std::byte *dst = t.dst + t.columns[c];
        __m128i rows[3];
        for (int i = 0; i < 3; ++i) {
            rows[i] = Xmm::load(src + t.rows[i]);
            fetch_next(t, t.rows[i] + (src - t.src));
        }
        for (int k = 0; k < 3; ++k) {
            const auto part = [&](int i) {
                const auto *from = reinterpret_cast<const __m128i *>(kThirds.from[k][i]);
                return _mm_shuffle_epi8(rows[i], _mm_load_si128(from));
            };
            Xmm::store(dst + 16 * k, _mm_or_si128(_mm_or_si128(part(0), part(1)), part(2)));
        }
    }
}

template <std::int64_t kWidth>
void interleave(const Transposition &t) {
    if (t.row_count == 3) return interleave_three<kWidth>(t);
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

// Two columns, and rows that are contiguous for 32 bytes.
template <std::int64_t kWidth>
void separate(const Transposition &t) {
    constexpr std::int64_t kRows = 16 / kWidth;
    const auto pair = [&](std::int64_t r, __m128i &low, __m128i &high) {
        const std::byte *src = t.src + t.rows[r];
        low = Xmm::load(src), high = Xmm::load(src + 16);
        // Each round halves the distance between adjacent elements of a row.
        for (std::int64_t i = 1; i < kRows; i *= 2) {
            const __m128i a = low, b = high;
            shuffle<kWidth>(a, b, low, high);
        }
    };
    std::byte *first = t.dst + t.columns[0], *second = t.dst + t.columns[1];
    std::int64_t r = 0;
    for (; r + 2 * kRows <= t.row_count; r += 2 * kRows) {
        __m128i low[2], high[2];
        fetch_next(t, t.rows[r]);
        fetch_next(t, t.rows[r + kRows] + 31);
        pair(r, low[0], high[0]);
        pair(r + kRows, low[1], high[1]);
        const __m256i a = _mm256_setr_m128i(low[0], low[1]);
        const __m256i b = _mm256_setr_m128i(high[0], high[1]);
        if (t.stream) {
            Ymm::stream(first + r * kWidth, a);
            Ymm::stream(second + r * kWidth, b);
        } else {
            Ymm::store(first + r * kWidth, a);
            Ymm::store(second + r * kWidth, b);
        }
    }
    for (; r < t.row_count; r += kRows) {
        __m128i low, high;
        fetch_next(t, t.rows[r]);
        pair(r, low, high);
        Xmm::store(first + r * kWidth, low);
        Xmm::store(second + r * kWidth, high);
    }
}

}  // namespace

void add_avx2_transpositions(ReorderKernels &kernels) {
    kernels.transpose[0] = &transpose<Square1>;
    kernels.transpose[1] = &transpose<Square2>;
    kernels.transpose[2] = &transpose<Square4>;
    kernels.transpose[3] = &transpose<Square8>;
    kernels.transpose[4] = &transpose<Square16>;
    kernels.interleave[0] = &interleave<1>;
    kernels.interleave[1] = &interleave<2>;
    kernels.interleave[2] = &interleave<4>;
    kernels.interleave[3] = &interleave<8>;
    kernels.separate[0] = &separate<1>;
    kernels.separate[1] = &separate<2>;
    kernels.separate[2] = &separate<4>;
    kernels.separate[3] = &separate<8>;
}

}  // namespace stridewise
