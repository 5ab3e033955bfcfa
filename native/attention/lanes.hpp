// Attention in vectors of any width; each file that includes it compiles one width.
//
// Each lane is a query, so that softmax adds and compares whole vectors. Keys and values are read
// word by word where they lie. The softmax of blocks of keys is joined by their maxima (Milakov and
// Gimelshein, arXiv:1805.02867).
//
// It includes no standard templates, for the reason in winograd/kernels.hpp.
#pragma once

#include "attention/kernels.hpp"
#include "support/functions.hpp"
#include "support/transpose.hpp"

namespace stridewise {
namespace {

// Products of float32.
template <int N>
struct SingleWords {
    using L = Lanes<N>;
    using V = typename L::V;
    static constexpr int kElements = 1;  // in a word

    static inline V add(V sum, V a, V b) { return sum + a * b; }
    // 2^x for x <= 0. Very small powers are 0, as those of -inf must be. Files for instruction sets
    // with instructions for exponents define their own.
    static inline V power(V x) { return x < -125.0F ? V{} : L::power_of_two(x); }
    static inline V word(const V *elements) { return elements[0]; }
};

// Products of pairs of bfloat16.
template <int N>
struct PairWords {
    using L = Lanes<N>;
    using V = typename L::V;
    static constexpr int kElements = 2;

    static inline V add(V sum, V a, V b) { return L::add_pairs(sum, a, b); }
    static inline V power(V x) { return x < -125.0F ? V{} : L::power_of_two(x); }
    static inline V word(const V *elements) {
        using Bits = typename L::Words;
        const Bits low = __builtin_convertvector(L::rounded(elements[0]), Bits);
        const Bits high = __builtin_convertvector(L::rounded(elements[1]), Bits);
        return L::number(low | (high << 16));
    }
};

// Queries and results are of type T.
template <int N, int Vectors, class T, template <int> class Product>
struct AttentionLanes {
    using L = Lanes<N>;
    using V = typename L::V;
    using P = Product<N>;
    static constexpr int kLanes = N * Vectors, kElements = P::kElements;
    // Sums in registers, of which 16 vectors have 32, and others 16.
    static constexpr int kSums = (N == 16 ? 24 : 12) / kRegisters<N>;
    static constexpr int kRows = kSums / Vectors < 8 ? kSums / Vectors : 8;
    static constexpr float kLeast = -__builtin_inff();

    // --- operands, one query a lane ---

    // Calls store(column, vector) for up to N columns of a matrix of up to N rows; other lanes are
    // zero.
    template <class Row, class Store>
    static inline void turn(const Row &row, std::int64_t rows, std::int64_t columns,
                            const Store &store) {
        V square[N];
        for (int i = 0; i < N; ++i) square[i] = i < rows ? L::load_some(row(i), columns) : V{};
        FloatSquare<N>::transpose(square);
        for (int i = 0; i < N; ++i) {
            if (i < columns) store(i, square[i]);
        }
    }

    // Calls store(column, vector) for all columns of a matrix of up to N rows.
    template <class Element, class Store>
    static inline void turn_all(const Element *from, std::int64_t row, std::int64_t step,
                                std::int64_t rows, std::int64_t columns, const Store &store) {
        for (std::int64_t at = 0; at < columns;) {
            const Element *line = from + at * step;
            if (row == 1) {
                store(at, L::load_some(line, rows));
                ++at;
            } else if (step == 1) {
                turn([&](int i) { return line + i * row; }, rows, columns - at,
                     [&](int i, V found) { store(at + i, found); });
                at += N;
            } else {
                float some[N] = {};
                for (int i = 0; i < N && i < rows; ++i) some[i] = as_float(line[i * row]);
                store(at, L::load(some));
                ++at;
            }
        }
    }

    static inline void pack_queries(const AttentionGroup &g) {
        for (int v = 0; v < Vectors; ++v) {
            const std::int64_t rows = g.count - v * N;
            float *to = g.packed + v * N;
            const T *from = static_cast<const T *>(g.queries) + v * N * g.query_row;
            V held{};
            turn_all(from, g.query_row, g.query_step, rows, g.depth, [&](std::int64_t at, V found) {
                if constexpr (kElements == 1) {
                    L::store(to + at * kLanes, found * g.scale);
                } else {
                    const bool is_last = at % 2 == 1;
                    const V pair[] = {is_last ? held : found, is_last ? found : V{}};
                    held = found;
                    L::store(to + at / 2 * kLanes, P::word(pair));
                }
            });
        }
    }

    // The operand of a step at some of its columns: table[column - begin][lane].
    template <class Element>
    static inline void fill_table(const AttentionGroup &g, const ScoreTerm &term,
                                  std::int64_t begin, std::int64_t end) {
        const auto *from = static_cast<const Element *>(term.from);
        for (int v = 0; v < Vectors; ++v) {
            const std::int64_t rows = g.count - v * N, *offsets = term.rows + v * N;
            float *table = term.table + v * N;
            for (std::int64_t at = begin; at < end;) {
                const Element *line = from + term.columns[at];
                float *to = table + (at - begin) * kLanes;
                if (rows > 0 && term.row_spread == Spread::other &&
                    term.column_spread == Spread::dense) {
                    turn([&](int i) { return line + offsets[i]; }, rows, end - at,
                         [&](int i, V found) { L::store(to + i * kLanes, found); });
                    at += N;
                    continue;
                }
                V found{};
                if (rows > 0 && term.row_spread == Spread::equal) {
                    found = L::all(as_float(line[offsets[0]]));
                } else if (rows > 0 && term.row_spread == Spread::dense) {
                    found = L::load_some(line + offsets[0], rows);
                } else if (rows > 0) {
                    for (int i = 0; i < N && i < rows; ++i) found[i] = as_float(line[offsets[i]]);
                }
                L::store(to, found);
                ++at;
            }
        }
    }

    static inline void fill_table(const AttentionGroup &g, const ScoreTerm &term,
                                  std::int64_t begin, std::int64_t end) {
        term.is_half ? fill_table<Bfloat16>(g, term, begin, end)
                     : fill_table<float>(g, term, begin, end);
    }

    // --- scores and sums ---

    template <int Value>
    struct Constant {
        static constexpr int value = Value;
    };

    // Calls body(rows) with a constant.
    template <int Rows, class Body>
    static inline void with_constant(std::int64_t rows, const Body &body) {
        if (rows >= Rows) {
            body(Constant<Rows>{});
        } else if constexpr (Rows > 1) {
            with_constant<Rows - 1>(rows, body);
        }
    }

    // Calls body(first, rows) for tiles of about as many rows each.
    template <class Body>
    static inline void in_tiles(std::int64_t count, const Body &body) {
        for (std::int64_t at = 0; at < count;) {
            const std::int64_t left = count - at, tiles = (left + kRows - 1) / kRows;
            with_constant<kRows>((left + tiles - 1) / tiles, [&](auto rows) {
                body(at, rows);
                at += rows.value;
            });
        }
    }

    // Products of `Rows` rows of words with vectors of all lanes.
    template <int Rows>
    static inline void multiply(const float *words, std::int64_t row, std::int64_t step,
                                const float *vectors, std::int64_t count, V (*sums)[Vectors]) {
        for (std::int64_t at = 0; at < count; ++at, words += step, vectors += kLanes) {
            V factors[Vectors];
#pragma GCC unroll 3
            for (int v = 0; v < Vectors; ++v) factors[v] = L::load(vectors + v * N);
#pragma GCC unroll 8
            for (int r = 0; r < Rows; ++r) {
                const V word = L::spread(words + r * row);
#pragma GCC unroll 3
                for (int v = 0; v < Vectors; ++v) sums[r][v] = P::add(sums[r][v], word, factors[v]);
            }
        }
    }

    static inline V changed(V score, const ScoreTerm &term, const float *line) {
        const V x = L::load(line);
        if (term.step == ScoreStep::add) return score + x;
        if (term.step == ScoreStep::multiply) return score * x;
        const V fill = L::all(term.fill);
        const bool is_where = term.step == ScoreStep::where;
        return x != 0.0F ? (is_where ? fill : score) : (is_where ? score : fill);
    }

    // The scores of some keys, and the maxima so far.
    template <int Rows>
    static inline void score(const AttentionGroup &g, const AttentionKeys &k, std::int64_t at,
                             V *most) {
        V sums[Rows][Vectors] = {};
        multiply<Rows>(k.keys + at * k.key_row, k.key_row, k.key_step, g.packed,
                       (g.depth + kElements - 1) / kElements, sums);
#pragma GCC unroll 8
        for (int r = 0; r < Rows; ++r) {
            if constexpr (kElements > 1) {
#pragma GCC unroll 3
                for (int v = 0; v < Vectors; ++v) sums[r][v] *= g.scale;
            }
            for (std::int64_t i = 0; i < g.term_count; ++i) {
                const ScoreTerm &term = g.terms[i];
                const std::int64_t line =
                    term.places != nullptr ? term.places[k.begin + at + r] : at + r;
                const float *table = term.table + line * kLanes;
#pragma GCC unroll 3
                for (int v = 0; v < Vectors; ++v) {
                    sums[r][v] = changed(sums[r][v], term, table + v * N);
                }
            }
#pragma GCC unroll 3
            for (int v = 0; v < Vectors; ++v) {
                most[v] = L::larger(most[v], sums[r][v]);
                L::store(k.scores + (at + r) * kLanes + v * N, sums[r][v]);
            }
        }
    }

    // Replaces scores by words of their powers, and adds these to sums.
    static inline void raise(const AttentionKeys &k, const V *largest, V *sums) {
        for (std::int64_t n = 0; n < k.count; n += kElements) {
#pragma GCC unroll 3
            for (int v = 0; v < Vectors; ++v) {
                V powers[kElements] = {};
                for (int i = 0; i < kElements && (i == 0 || n + i < k.count); ++i) {
                    const float *line = k.scores + (n + i) * kLanes + v * N;
                    powers[i] = P::power((L::load(line) - largest[v]) * kLog2e);
                    sums[v] += powers[i];
                }
                L::store(k.scores + n / kElements * kLanes + v * N, P::word(powers));
            }
        }
    }

    // Adds the values of some columns, weighted by powers, to sums that are scaled first.
    template <int Rows>
    static inline void add_values(const AttentionGroup &g, const AttentionKeys &k, std::int64_t at,
                                  const V *factors) {
        V sums[Rows][Vectors] = {};
        multiply<Rows>(k.values + at * k.value_step, k.value_step, k.value_row, k.scores,
                       (k.count + kElements - 1) / kElements, sums);
#pragma GCC unroll 8
        for (int r = 0; r < Rows; ++r) {
#pragma GCC unroll 3
            for (int v = 0; v < Vectors; ++v) {
                float *to = g.sums + (at + r) * kLanes + v * N;
                L::store(to, k.begin > 0 ? L::load(to) * factors[v] + sums[r][v] : sums[r][v]);
            }
        }
    }

    static void begin(const AttentionGroup &g) {
        pack_queries(g);
        for (std::int64_t i = 0; i < g.term_count; ++i) {
            if (g.terms[i].places != nullptr) fill_table(g, g.terms[i], 0, g.terms[i].column_count);
        }
        for (int v = 0; v < Vectors; ++v) {
            L::store(g.most + v * N, L::all(kLeast));
            L::store(g.totals + v * N, V{});
        }
    }

    static void attend(const AttentionGroup &g, const AttentionKeys &k) {
        for (std::int64_t i = 0; i < g.term_count; ++i) {
            if (g.terms[i].places == nullptr) {
                fill_table(g, g.terms[i], k.begin, k.begin + k.count);
            }
        }
        V most[Vectors], largest[Vectors], factors[Vectors], sums[Vectors] = {};
        for (int v = 0; v < Vectors; ++v) most[v] = L::load(g.most + v * N);
        in_tiles(k.count, [&](std::int64_t at, auto rows) { score<rows.value>(g, k, at, most); });
        // Where all scores are -inf so far, their powers are 0, and so is their total.
        for (int v = 0; v < Vectors; ++v) {
            largest[v] = most[v] == kLeast ? V{} : most[v];
            factors[v] = P::power((L::load(g.most + v * N) - largest[v]) * kLog2e);
            L::store(g.most + v * N, most[v]);
        }
        raise(k, largest, sums);
        for (int v = 0; v < Vectors; ++v) {
            float *total = g.totals + v * N;
            L::store(total, L::load(total) * factors[v] + sums[v]);
        }
        in_tiles(g.width,
                 [&](std::int64_t at, auto rows) { add_values<rows.value>(g, k, at, factors); });
    }

    // --- results ---

    static inline void store_line(T *to, V line, std::int64_t count, std::int64_t step) {
        if (step == 1) {
            L::store_some(to, line, count);
            return;
        }
        T some[N];
        L::store(some, line);
        for (std::int64_t i = 0; i < count; ++i) to[i * step] = some[i];
    }

    static void end(const AttentionGroup &g) {
        for (int v = 0; v < Vectors; ++v) {
            const std::int64_t rows = g.count - v * N;
            if (rows <= 0) return;
            const V total = L::load(g.totals + v * N);
            V factor = 1.0F / total;
            // Sums of weights of 0 are 0, or NaN where values are infinite.
            if (g.zeroed != Zeroed::none) factor = total == 0.0F ? L::all(1.0F) : factor;
            const bool zeroes = g.zeroed == Zeroed::nan;
            const auto finished = [&](const float *sum) {
                const V found = L::load(sum) * factor;
                return zeroes ? (total == total ? found : V{}) : found;
            };
            const float *from = g.sums + v * N;
            T *result = static_cast<T *>(g.result) + v * N * g.result_row;
            for (std::int64_t d = 0; d < g.width;) {
                T *to = result + d * g.result_step;
                if (g.result_row == 1) {
                    L::store_some(to, finished(from + d * kLanes), rows);
                    ++d;
                    continue;
                }
                const std::int64_t count = g.width - d < N ? g.width - d : N;
                V square[N];
                for (int i = 0; i < N; ++i) {
                    square[i] = i < count ? finished(from + (d + i) * kLanes) : V{};
                }
                FloatSquare<N>::transpose(square);
                for (int i = 0; i < N && i < rows; ++i) {
                    store_line(to + i * g.result_row, square[i], count, g.result_step);
                }
                d += count;
            }
        }
    }

    static constexpr AttentionLoops kLoops = {begin, attend, end};
};

template <int N, class T>
void copy_words(const WordCopy &copy) {
    for (std::int64_t r = 0; r < copy.rows; ++r) {
        const T *from = static_cast<const T *>(copy.from) + r * copy.row;
        float *to = copy.to + r * copy.to_row;
        std::int64_t at = 0;
        if (copy.step == 1) {
            for (; at + N <= copy.columns; at += N) {
                Lanes<N>::store(to + at, Lanes<N>::load(from + at));
            }
        }
        for (; at < copy.columns; ++at) to[at] = as_float(from[at * copy.step]);
    }
}

// Pairs of elements of a row; the last one may be half empty.
inline void copy_pairs_of_columns(const WordCopy &copy) {
    for (std::int64_t r = 0; r < copy.rows; ++r) {
        const Bfloat16 *from = static_cast<const Bfloat16 *>(copy.from) + r * copy.row;
        float *to = copy.to + r * copy.to_row;
        for (std::int64_t at = 0; at < copy.columns; at += 2) {
            const Bfloat16 pair[] = {from[at * copy.step], at + 1 < copy.columns
                                                               ? from[(at + 1) * copy.step]
                                                               : Bfloat16{}};
            __builtin_memcpy(to + at / 2, pair, sizeof pair);
        }
    }
}

// Pairs of elements of two rows; the last row may be alone.
template <int N>
void copy_pairs_of_rows(const WordCopy &copy) {
    using L = Lanes<N>;
    using Bits = typename L::Words;
    for (std::int64_t r = 0; r < copy.rows; r += 2) {
        const Bfloat16 *first = static_cast<const Bfloat16 *>(copy.from) + r * copy.row;
        const Bfloat16 *second = r + 1 < copy.rows ? first + copy.row : nullptr;
        float *to = copy.to + r / 2 * copy.to_row;
        std::int64_t at = 0;
        if (copy.step == 1 && second != nullptr) {
            for (; at + N <= copy.columns; at += N) {
                const Bits low = bit_cast<Bits>(L::load(first + at));
                const Bits high = bit_cast<Bits>(L::load(second + at));
                L::store(to + at, L::number((low >> 16) | high));
            }
        }
        for (; at < copy.columns; ++at) {
            const Bfloat16 pair[] = {first[at * copy.step],
                                     second != nullptr ? second[at * copy.step] : Bfloat16{}};
            __builtin_memcpy(to + at, pair, sizeof pair);
        }
    }
}

template <int N, class T, template <int> class Product, int Vectors>
constexpr AttentionLoops kAttentionLoops = AttentionLanes<N, Vectors, T, Product>::kLoops;

template <int N>
constexpr AttentionKernels kAttentionKernels = {
    {kAttentionLoops<N, float, SingleWords, 1>, kAttentionLoops<N, float, SingleWords, 2>,
     kAttentionLoops<N, float, SingleWords, 3>},
    {kAttentionLoops<N, Bfloat16, SingleWords, 1>, kAttentionLoops<N, Bfloat16, SingleWords, 2>,
     kAttentionLoops<N, Bfloat16, SingleWords, 3>},
    copy_words<N, float>,
    copy_words<N, Bfloat16>,
    copy_words<N, Bfloat16>,
    false,
};

// With products of pairs of bfloat16; other kernels are those without.
template <int N>
constexpr AttentionKernels kPairAttentionKernels = {
    {},
    {kAttentionLoops<N, Bfloat16, PairWords, 1>, kAttentionLoops<N, Bfloat16, PairWords, 2>,
     kAttentionLoops<N, Bfloat16, PairWords, 3>},
    nullptr,
    copy_pairs_of_columns,
    copy_pairs_of_rows<N>,
    true,
};

}  // namespace
}  // namespace stridewise
