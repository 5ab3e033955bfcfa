// Transpositions of float32 with a conversion, for AVX2.
//
// All calls in kernels are inlined (gnu::flatten): an out-of-line lambda that stores a column would
// follow a chain of pointers to its captures for every store.
#include "reorder/avx2.hpp"
#include "reorder/avx2_words.hpp"

namespace stridewise {
namespace {

// Converts up to sixteen float32 elements.
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

// Software prefetcher: it fetches sixteen cache lines per block that is read. Rows that are near
// each other are fetched in memory order, at a fixed distance ahead. For rows that are far apart,
// the rows of the next transposition are fetched in the order in which they will be read, one line
// each, so that many DRAM pages are accessed in parallel.
class Scout {
  public:
    Scout(const Transposition &t, bool is_near) : t_(t) {
        if (!is_near) return;
        constexpr std::int64_t kAhead = 1 << 14;
        nbytes_ = (t.column_count + 15) / 16 * kLine;
        row_ = (kAhead + nbytes_ - 1) / nbytes_;
        from_ = row_ < t.row_count ? t.src : t.next;
        row_ %= t.row_count;
        seek();
    }

    // Prefetches for the block that starts at row `r` and column `c`.
    void fetch(std::int64_t r, std::int64_t c) {
        if (from_ == nullptr) {
            for (std::int64_t i = 0; i < 16; ++i) prefetch(t_.next + t_.rows[r + i] + 4 * c);
            return;
        }
        for (std::int64_t i = 0; i < 16; ++i) {
            prefetch(line_);
            line_ += kLine;
            if (line_ < end_) continue;
            if (++row_ == t_.row_count) row_ = 0, from_ = t_.next;
            seek();
        }
    }

  private:
    void seek() {
        line_ = from_ + t_.rows[row_];
        end_ = line_ + nbytes_;
    }

    const Transposition &t_;
    const std::byte *from_ = nullptr, *line_ = nullptr, *end_ = nullptr;
    std::int64_t row_ = 0, nbytes_ = 0;
};

// Converts and then transposes sixteen rows and up to sixteen columns of float32. `put` takes the
// index and the content of a column. It is called for all sixteen, including missing columns.
template <typename To, typename Put>
[[gnu::noinline]] void convert_carefully(const Transposition &t, std::int64_t r, std::int64_t c,
                                         const Put &put) {
    typename Lanes<To>::Vector::Vector v[16];
    const std::byte *src = t.src + 4 * c;
    for (std::int64_t i = 0; i < 16; ++i) {
        v[i] = load_row<To>(src + t.rows[r + i], t.column_count - c);
    }
    transpose_sixteen(v);
    for (std::int64_t j = 0; j < 16; ++j) put(j, v[j]);
}

// The same with fewer instructions in most cases. Each cache line of the source is read completely
// at once, because rows that are far apart often map to one cache set and evict each other.
template <typename To, typename Put>
inline void convert_block(const Transposition &t, std::int64_t r, std::int64_t c, Scout &scout,
                          const Put &put) {
    constexpr std::int64_t kRows = Words<To>::kRows;
    scout.fetch(r, c);
    if (t.column_count - c < 16) return convert_carefully<To>(t, r, c, put);
    const std::byte *src = t.src + 4 * c;
    Words<To> words;
    __m256i low[16 / kRows], high[16 / kRows];
    for (std::int64_t k = 0; k < 16 / kRows; ++k) {
        __m256 a[kRows], b[kRows];
        for (std::int64_t i = 0; i < kRows; ++i) {
            const std::byte *row = src + t.rows[r + k * kRows + i];
            a[i] = Lanes<F32>::load(row);
            b[i] = Lanes<F32>::load(row + 32);
        }
        low[k] = words.join(a);
        high[k] = words.join(b);
    }
    if (!words.is_certain()) return convert_carefully<To>(t, r, c, put);
    Words<To>::transpose(low, put);
    Words<To>::transpose(high, [&](std::int64_t j, auto v) { put(j + 8, v); });
}

// Columns that are shorter than a cache line.
template <typename To, bool kStream>
inline void convert_short(const Transposition &t, std::int64_t r, std::int64_t c, Scout &scout) {
    constexpr auto kTo = static_cast<std::int64_t>(sizeof(typename To::Type));
    using Vector = typename Lanes<To>::Vector;
    const std::int64_t columns = t.column_count - c, *to = t.columns + c;
    std::byte *dst = t.dst + r * kTo;
    if (columns >= 16) {
        convert_block<To>(t, r, c, scout, [&](std::int64_t j, auto v) {
            Vector::template put<kStream>(dst + to[j], v);
        });
        return;
    }
    alignas(kLine) std::byte found[16][16 * kTo];
    convert_block<To>(t, r, c, scout, [&](std::int64_t j, auto v) { Vector::store(found[j], v); });
    for (std::int64_t j = 0; j < columns; ++j) {
        Vector::template put<kStream>(dst + to[j], Vector::load(found[j]));
    }
}

constexpr std::int64_t kDepth = 4;  // lines of a column that are written together

// Columns of whole cache lines, up to four lines of each at a time, because streaming stores that
// are far apart each open a new DRAM row. For the same reason, rows are read to the end of the
// tile.
template <typename To>
[[gnu::flatten]] inline void convert_tall(const Transposition &t) {
    constexpr auto kTo = static_cast<std::int64_t>(sizeof(typename To::Type));
    constexpr std::int64_t kColumns = 256, kRows = kDepth * kLine / kTo, kPage = 4096;
    using Vector = typename Lanes<To>::Vector;
    alignas(kLine) std::byte lines[kColumns * kDepth * kLine];
    Scout scout(t, t.rows[1] - t.rows[0] < kPage);
    for (std::int64_t r = 0; r < t.row_count; r += kRows) {
        const std::int64_t rows = least(kRows, t.row_count - r), pitch = rows * kTo;
        for (std::int64_t c = 0; c < t.column_count; c += kColumns) {
            const std::int64_t columns = least(kColumns, t.column_count - c);
            for (std::int64_t i = 0; i < rows; i += 16) {
                for (std::int64_t k = 0; k < columns; k += 16) {
                    std::byte *to = lines + k * pitch + i * kTo;
                    // The last block may have fewer than sixteen columns; the buffer holds sixteen.
                    convert_block<To>(t, r + i, c + k, scout, [&](std::int64_t j, auto v) {
                        Vector::store(to + j * pitch, v);
                    });
                }
            }
            for (std::int64_t j = 0; j < columns; ++j) {
                copy_vectors<true>(lines + j * pitch, t.dst + t.columns[c + j] + r * kTo, pitch);
            }
        }
    }
}

// Converts sixteen rows of one column.
template <typename To>
inline auto gather_column(const std::byte *src, const std::int64_t *rows) {
    return Lanes<To>::packed(_mm256_castsi256_ps(Square4::gathered(src, rows)),
                             _mm256_castsi256_ps(Square4::gathered(src, rows + 8)));
}

// Converts and then transposes sixteen rows of eight to fifteen columns.
template <typename To, typename Put>
inline void convert_narrow(const Transposition &t, std::int64_t r, const Put &put) {
    constexpr std::int64_t kRows = Words<To>::kRows, kFew = 2;
    Words<To> words;
    const auto eight = [&](std::int64_t c) {
        __m256i found[16 / kRows];
        for (std::int64_t k = 0; k < 16 / kRows; ++k) {
            __m256 x[kRows];
            for (std::int64_t i = 0; i < kRows; ++i) {
                x[i] = Lanes<F32>::load(t.src + t.rows[r + k * kRows + i] + 4 * c);
            }
            found[k] = words.join(x);
        }
        Words<To>::transpose(found, [&](std::int64_t j, auto v) { put(c + j, v); });
    };
    eight(0);
    if (t.column_count > 8 + kFew) {
        eight(t.column_count - 8);
    } else {
        for (std::int64_t c = 8; c < t.column_count; ++c) {
            put(c, gather_column<To>(t.src + 4 * c, t.rows + r));
        }
    }
    if (!words.is_certain()) convert_carefully<To>(t, r, 0, put);
}

// The same for fewer columns whose rows are contiguous: they are converted as one run and then
// transposed.
template <typename To, typename Put>
inline void convert_packed(const Transposition &t, std::int64_t r, const Put &put) {
    constexpr auto kTo = static_cast<std::int64_t>(sizeof(typename To::Type));
    using Vector = typename Lanes<To>::Vector;
    const std::int64_t pitch = t.column_count * kTo;
    std::byte packed[(7 + 1) * 16 * kTo];  // the last row is read beyond its end
    for (std::int64_t k = 0; k < t.column_count; ++k) {
        Vector::store(packed + 16 * kTo * k, load_row<To>(t.src + t.rows[r] + 64 * k, 16));
    }
    typename Vector::Vector v[16];
    for (std::int64_t k = 0; k < 16; ++k) v[k] = Vector::load(packed + k * pitch);
    transpose_sixteen(v);
    for (std::int64_t j = 0; j < t.column_count; ++j) put(j, v[j]);
}

// Short contiguous rows, such as those whose columns are the taps of a 3x3 kernel.
template <typename To>
[[gnu::flatten]] inline void convert_short_rows(const Transposition &t) {
    constexpr auto kTo = static_cast<std::int64_t>(sizeof(typename To::Type));
    constexpr std::int64_t kRows = kDepth * kLine / kTo, kAhead = 8 * 16;
    const std::int64_t columns = t.column_count;
    alignas(kLine) std::byte lines[16][kDepth * kLine];
    for (std::int64_t r = 0; r < t.row_count; r += kRows) {
        const std::int64_t rows = least(kRows, t.row_count - r);
        for (std::int64_t i = 0; i < rows; i += 16) {
            const std::int64_t later = r + i + kAhead;
            const std::byte *next =
                later < t.row_count ? t.src + t.rows[later] : t.next + t.rows[later % t.row_count];
            for (std::int64_t k = 0; k < columns; ++k) prefetch(next + kLine * k);
            // Rows are rarely aligned to cache lines, so they end in one more line.
            prefetch(next + kLine * columns - 1);
            const auto put = [&](std::int64_t j, auto v) {
                Lanes<To>::Vector::store(lines[j] + i * kTo, v);
            };
            columns < 8 ? convert_packed<To>(t, r + i, put) : convert_narrow<To>(t, r + i, put);
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

// Prefetches rows one after the other, each as a whole, so that each DRAM page is opened once.
class Fetcher {
  public:
    Fetcher(const std::byte *src, const std::int64_t *rows, std::int64_t count, std::int64_t nbytes)
        : src_(src), row_(rows), end_(rows + count), nbytes_(nbytes) {}

    void fetch(std::int64_t lines) {
        for (; lines > 0 && row_ != end_; --lines) {
            prefetch(src_ + *row_ + offset_);
            offset_ += kLine;
            if (offset_ >= nbytes_) ++row_, offset_ = 0;
        }
    }

  private:
    const std::byte *src_;
    const std::int64_t *row_, *end_;
    std::int64_t nbytes_, offset_ = 0;
};

// Sixteen long rows that are far apart: each row is converted as a whole into a copy that fits the
// first-level cache, and the copy is transposed. The next rows are prefetched meanwhile, half of
// them during the conversion and half during the transposition. Rows at a distance of a multiple of
// 4 KB would evict each other from the caches if they were read together.
template <typename To, bool kStream>
[[gnu::flatten]] void convert_long(const Transposition &t) {
    constexpr auto kTo = static_cast<std::int64_t>(sizeof(typename To::Type));
    constexpr std::int64_t kRow = 1280;  // bytes of a row of the copy: two thirds of 32 KB in all
    constexpr std::int64_t kColumns = kRow / kTo, kStep = Words<To>::kNeighbors;
    alignas(kLine) std::byte copy[16][kRow + kLine];
    for (std::int64_t c = 0; c < t.column_count; c += kColumns) {
        const std::int64_t columns = least(kColumns, t.column_count - c);
        const std::int64_t whole = columns / kStep * kStep;
        const std::int64_t behind = t.column_count - c - columns;
        const std::byte *src = t.src + 4 * c;
        Fetcher next(behind == 0 ? t.next : src + 4 * columns, t.rows, 16,
                     4 * least(kColumns, behind == 0 ? t.column_count : behind));
        Words<To> words;
        for (std::int64_t i = 0; i < 16; ++i) {
            for (std::int64_t j = 0; j < whole; j += kStep) {
                Ymm::store(copy[i] + j * kTo, words.in_order(src + t.rows[i] + 4 * j));
                if (j % 32 == 0) next.fetch(1);
            }
        }
        const std::int64_t *to = t.columns + c;
        const auto put = [&](std::int64_t j, auto v) {
            Lanes<To>::Vector::template put<kStream>(t.dst + to[j], v);
        };
        std::int64_t done = words.is_certain() ? whole : 0;
        for (std::int64_t j = 0; j < done; j += kStep) {
            next.fetch(kStep / 2);
            __m256i v[16];
            for (std::int64_t i = 0; i < 16; ++i) v[i] = Ymm::load(copy[i] + j * kTo);
            Words<To>::transpose_rows(v, [&](std::int64_t k, auto column) { put(j + k, column); });
        }
        for (; done < columns; done += 16) {
            convert_carefully<To>(t, 0, c + done, [&](std::int64_t j, auto v) {
                if (done + j < columns) put(done + j, v);
            });
        }
    }
}

template <typename To>
[[gnu::flatten]] void transpose_f32(const Transposition &t) {
    constexpr std::int64_t kRows = kLine / static_cast<std::int64_t>(sizeof(typename To::Type));
    constexpr std::int64_t kLong = 256;
    if (t.is_packed && t.column_count < 16 && t.row_count % 32 == 0) {
        return convert_short_rows<To>(t);
    }
    if (t.row_count == 16 && t.column_count >= kLong) {
        return t.stream ? convert_long<To, true>(t) : convert_long<To, false>(t);
    }
    if (t.stream && t.row_count % kRows == 0) return convert_tall<To>(t);
    Scout scout(t, false);
    const auto block = [&](std::int64_t r, std::int64_t c) {
        t.stream ? convert_short<To, true>(t, r, c, scout)
                 : convert_short<To, false>(t, r, c, scout);
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

}  // namespace

void add_avx2_converted_transpositions(ReorderKernels &kernels) {
    kernels.transpose_f32[static_cast<int>(Element::f16)] = &transpose_f32<F16>;
    kernels.transpose_f32[static_cast<int>(Element::bf16)] = &transpose_f32<Bf16>;
    kernels.transpose_f32[static_cast<int>(Element::s8)] = &transpose_f32<S8>;
    kernels.transpose_f32[static_cast<int>(Element::u8)] = &transpose_f32<U8>;
}

}  // namespace stridewise
