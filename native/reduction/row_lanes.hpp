// Softmax and normalizations of rows in vectors of any width.
//
// It includes no standard templates, for the reason in winograd/kernels.hpp.
#pragma once

#include "reduction/lanes.hpp"
#include "reduction/row_kernels.hpp"
#include "reduction/side_lanes.hpp"

namespace stridewise {
namespace {

template <int N>
struct Rows {
    using L = Lanes<N>;
    using V = typename L::V;
    // Partial sums in flight: enough to hide the latency of additions.
    static constexpr int kParts = 4;

    // Calls body(part, at, lanes) for each vector of a row; only the last one may have fewer lanes.
    template <class Body>
    static inline void each(std::int64_t count, const Body &body) {
        std::int64_t at = 0;
        for (; at + kParts * N <= count; at += kParts * N) {
#pragma GCC unroll 4
            for (int part = 0; part < kParts; ++part) body(part, at + part * N, N);
        }
        for (; at + N <= count; at += N) body(0, at, N);
        if (at < count) body(1, at, count - at);
    }

    template <class T>
    static inline V load(const T *from, std::int64_t lanes) {
        return lanes == N ? L::load(from) : L::load_some(from, lanes);
    }

    template <class T>
    static inline void store(T *to, V value, std::int64_t lanes) {
        if (lanes == N) {
            L::store(to, value);
        } else {
            L::store_some(to, value, lanes);
        }
    }

    // Of a row with NaN any number: its sums are NaN in any case.
    template <class T>
    static inline float greatest(const T *from, std::int64_t count) {
        V parts[kParts];
        for (auto &part : parts) part = L::all(Greatest::kNeutral);
        each(count, [&](int part, std::int64_t at, std::int64_t lanes) {
            // The last element stands for lanes behind it.
            const V x = load(from + at, lanes), last = L::all(as_float(from[count - 1]));
            const V own =
                lanes == N ? x : (L::counted() < static_cast<std::int32_t>(lanes) ? x : last);
            parts[part] = L::larger(parts[part], own);
        });
        float found[N];
        L::store(found, L::larger(L::larger(parts[0], parts[1]), L::larger(parts[2], parts[3])));
        return join_all<Greatest>(found, N);
    }

    // The sum of function(x, lanes at which it stands) over a row.
    template <class Function>
    static inline float sum(std::int64_t count, const Function &function) {
        V parts[kParts] = {};
        each(count, [&](int part, std::int64_t at, std::int64_t lanes) {
            const V x = function(at, lanes);
            parts[part] += lanes == N ? x : L::without(x, lanes);
        });
        return L::total((parts[0] + parts[1]) + (parts[2] + parts[3]));
    }

    static constexpr std::int64_t kMostRows = 8;
    static constexpr std::int64_t kNear = 2048;  // elements in the nearest cache

    // Calls body(from, to, rows) for some rows at a time, which take several passes: the totals of
    // several rows are joined at once, because each takes as long as the vectors of a short row.
    template <class From, class To, class Body>
    static inline void in_groups(const DenseRows &rows, const Body &body) {
        const std::int64_t fitting = kNear / rows.count;
        const std::int64_t wanted = fitting < 1 ? 1 : (fitting < kMostRows ? fitting : kMostRows);
        for (std::int64_t row = 0; row < rows.rows; row += wanted) {
            const std::int64_t left = rows.rows - row, at = row * rows.count;
            body(static_cast<const From *>(rows.from) + at, static_cast<To *>(rows.to) + at,
                 left < wanted ? left : wanted);
        }
    }

    template <class From, class To>
    static void softmax(const DenseRows &rows) {
        static_assert(kNear <= kLongestRow);
        // Powers are stored in the result, or here where that would round them.
        constexpr bool kIsRounded = sizeof(To) < sizeof(float);
        alignas(64) float buffer[kIsRounded ? kLongestRow : 1];
        in_groups<From, To>(rows, [&](const From *from, To *to, std::int64_t some) {
            float numbers[kMostRows], *found = buffer;
            if constexpr (!kIsRounded) found = to;
            for (std::int64_t i = 0; i < some; ++i) {
                numbers[i] = greatest(from + i * rows.count, rows.count);
            }
            for (std::int64_t i = 0; i < some; ++i) {
                numbers[i] = powers(from + i * rows.count, found + i * rows.count, rows.count,
                                    L::all(numbers[i]));
            }
            for (std::int64_t i = 0; i < some; ++i) {
                const std::int64_t begin = i * rows.count;
                const V factor = L::all(1.0F / numbers[i]);
                each(rows.count, [&](int, std::int64_t at, std::int64_t lanes) {
                    store(to + begin + at, load(found + begin + at, lanes) * factor, lanes);
                });
            }
        });
    }

    // Stores exp(x - most), and returns the sum.
    template <class From>
    static inline float powers(const From *from, float *to, std::int64_t count, V most) {
        return sum(count, [&](std::int64_t at, std::int64_t lanes) {
            const V power = Functions<N>::exponential(load(from + at, lanes) - most);
            store(to + at, power, lanes);
            return power;
        });
    }

    template <class From, class To>
    static void log_softmax(const DenseRows &rows) {
        for (std::int64_t row = 0; row < rows.rows; ++row) {
            const From *from = static_cast<const From *>(rows.from) + row * rows.count;
            To *to = static_cast<To *>(rows.to) + row * rows.count;
            const V most = L::all(greatest(from, rows.count));
            const float total = sum(rows.count, [&](std::int64_t at, std::int64_t lanes) {
                return Functions<N>::exponential(load(from + at, lanes) - most);
            });
            const V logarithm = Functions<N>::logarithm(L::all(total));
            each(rows.count, [&](int, std::int64_t at, std::int64_t lanes) {
                store(to + at, load(from + at, lanes) - most - logarithm, lanes);
            });
        }
    }

    template <class From, class To>
    static void norm(const DenseRows &rows) {
        const double per_term = 1.0 / static_cast<double>(rows.count);
        in_groups<From, To>(rows, [&](const From *from, To *to, std::int64_t some) {
            V means[kMostRows], factors[kMostRows];
            for (std::int64_t i = 0; i < some; ++i) {
                const From *own = from + i * rows.count;
                const float total = sum(rows.count, [&](std::int64_t at, std::int64_t lanes) {
                    return load(own + at, lanes);
                });
                means[i] = L::all(static_cast<float>(total * per_term));
            }
            for (std::int64_t i = 0; i < some; ++i) {
                const From *own = from + i * rows.count;
                const float squares = sum(rows.count, [&](std::int64_t at, std::int64_t lanes) {
                    const V x = load(own + at, lanes) - means[i];
                    return x * x;
                });
                const double variance = squares * per_term + rows.epsilon;
                factors[i] = L::all(static_cast<float>(1.0 / __builtin_sqrt(variance)));
            }
            for (std::int64_t i = 0; i < some; ++i) {
                const std::int64_t begin = i * rows.count;
                each(rows.count, [&](int, std::int64_t at, std::int64_t lanes) {
                    V x = (load(from + begin + at, lanes) - means[i]) * factors[i];
                    if (rows.scale != nullptr) x *= load(rows.scale + at, lanes);
                    if (rows.shift != nullptr) x += load(rows.shift + at, lanes);
                    store(to + begin + at, x, lanes);
                });
            }
        });
    }

    template <class From, class To>
    static void columns(const ColumnRows &rows) {
        constexpr std::int64_t kSome = 4;  // rows that share what is loaded for each neighbor
        for (std::int64_t row = 0; row < rows.rows; row += kSome) {
            const std::int64_t some = rows.rows - row < kSome ? rows.rows - row : kSome;
            const From *from = static_cast<const From *>(rows.from) + row * rows.count;
            To *to = static_cast<To *>(rows.to) + row * rows.count;
            each(rows.count, [&](int, std::int64_t at, std::int64_t lanes) {
                const V mean = load(rows.mean + at, lanes), factor = load(rows.factor + at, lanes);
                const V shift = load(rows.shift + at, lanes);
                for (std::int64_t own = at; own < at + some * rows.count; own += rows.count) {
                    store(to + own, (load(from + own, lanes) - mean) * factor + shift, lanes);
                }
            });
        }
    }
};

template <int N, class From, class To>
constexpr RowKernels kRowKernels{Rows<N>::template softmax<From, To>,
                                 Rows<N>::template log_softmax<From, To>,
                                 Rows<N>::template norm<From, To>,
                                 side_softmax<N, false>,
                                 side_softmax<N, true>,
                                 Rows<N>::template columns<From, To>};

template <int N>
const RowKernels &find_row_kernels(HalfSides halves) {
    if (halves.source && halves.result) return kRowKernels<N, Bfloat16, Bfloat16>;
    if (halves.source) return kRowKernels<N, Bfloat16, float>;
    return halves.result ? kRowKernels<N, float, Bfloat16> : kRowKernels<N, float, float>;
}

}  // namespace
}  // namespace stridewise
