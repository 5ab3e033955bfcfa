// Transpositions of float32 that is converted on the way, for AVX2.
#include "reorder_avx2.hpp"
#include "reorder_avx2_lanes.hpp"
#include "reorder_avx2_squares.hpp"

namespace stridewise {
namespace {

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
            // They seldom begin at a line, so that they end in one more.
            prefetch(next + kLine * columns - 1);
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

}  // namespace

void add_avx2_converted_transpositions(ReorderKernels &kernels) {
    kernels.transpose_f32[static_cast<int>(Element::f16)] = &transpose_f32<F16>;
    kernels.transpose_f32[static_cast<int>(Element::bf16)] = &transpose_f32<Bf16>;
    kernels.transpose_f32[static_cast<int>(Element::s8)] = &transpose_f32<S8>;
    kernels.transpose_f32[static_cast<int>(Element::u8)] = &transpose_f32<U8>;
}

}  // namespace stridewise
