// Reductions in vectors of any width.
//
// It includes no standard templates, for the reason in winograd/kernels.hpp.
#pragma once

#include "reduction/kernels.hpp"
#include "support/functions.hpp"

namespace stridewise {
namespace {

// How two partial results become one, in vectors and in numbers.
struct Sum {
    static constexpr float kNeutral = 0.0F;
    template <class T>
    static inline T join(T a, T b) {
        return a + b;
    }
};
struct Product {
    static constexpr float kNeutral = 1.0F;
    template <class T>
    static inline T join(T a, T b) {
        return a * b;
    }
};
// NaN is no larger than anything, and stays where it is.
struct Greatest {
    static constexpr float kNeutral = -__builtin_inff();
    template <class T>
    static inline T join(T a, T b) {
        return b > a ? b : (b != b ? b : a);
    }
};
struct Least {
    static constexpr float kNeutral = __builtin_inff();
    template <class T>
    static inline T join(T a, T b) {
        return b < a ? b : (b != b ? b : a);
    }
};

// What is made of an element before it is taken in.
struct Itself {
    template <int N, class V>
    static inline V of(V x, V) {
        return x;
    }
};
struct Size {
    template <int N, class V>
    static inline V of(V x, V) {
        return x < 0.0F ? -x : x;
    }
};
struct Square {
    template <int N, class V>
    static inline V of(V x, V) {
        return x * x;
    }
};
struct Deviation {
    template <int N, class V>
    static inline V of(V x, V shift) {
        return (x - shift) * (x - shift);
    }
};
struct Power {
    template <int N, class V>
    static inline V of(V x, V shift) {
        return Functions<N>::exponential(x - shift);
    }
};

// Vectors of N lanes from neighbor `at` on, or the first `Used` lanes of one.
template <class Join, class Of, class T, int N, int Vectors, int Used = N>
inline void reduce_columns(const ReductionLoop &loop, std::int64_t at) {
    using L = Lanes<N>;
    typename L::V found[Vectors], shift[Vectors];
    for (int k = 0; k < Vectors; ++k) {
        found[k] = L::load_some(loop.found + at + k * N, Used);
        shift[k] = L::load_some(loop.shift + at + k * N, Used);
    }
    const T *from = static_cast<const T *>(loop.from) + at;
    for (std::int64_t row = 0; row < loop.rows; ++row, from += loop.stride) {
        for (int k = 0; k < Vectors; ++k) {
            const auto x = Used == N ? L::load(from + k * N) : L::load_some(from, Used);
            found[k] = Join::join(found[k], Of::template of<N>(x, shift[k]));
        }
    }
    for (int k = 0; k < Vectors; ++k) L::store_some(loop.found + at + k * N, found[k], Used);
}

template <class Join, class Of, class T, int N>
void reduce_rows(const ReductionLoop &loop) {
    std::int64_t at = 0;
    for (; at + 4 * N <= loop.count; at += 4 * N) reduce_columns<Join, Of, T, N, 4>(loop, at);
    for (; at + N <= loop.count; at += N) reduce_columns<Join, Of, T, N, 1>(loop, at);
    for (; at + 4 <= loop.count; at += 4) reduce_columns<Join, Of, T, 4, 1>(loop, at);
    switch (loop.count - at) {
        case 3:
            return reduce_columns<Join, Of, T, 4, 1, 3>(loop, at);
        case 2:
            return reduce_columns<Join, Of, T, 4, 1, 2>(loop, at);
        case 1:
            return reduce_columns<Join, Of, T, 4, 1, 1>(loop, at);
        default:
            return;
    }
}

// In vectors to the end: branches of single comparisons would be guessed wrong half of the time.
template <class Join>
float join_all(float *found, std::int64_t count) {
    using L = Lanes<4>;
    for (std::int64_t half = count / 2; half >= 4; half /= 2) {
        for (std::int64_t i = 0; i < half; i += 4) {
            L::store(found + i, Join::join(L::load(found + i), L::load(found + half + i)));
        }
    }
    typename L::V all = L::load(found), other = all;
    other[0] = all[2];
    other[1] = all[3];
    all = Join::join(all, other);
    other[0] = all[1];
    return Join::join(all, other)[0];
}

template <class Join>
double combine_two(double a, double b) {
    return Join::join(a, b);
}

template <class Join, class Of, class T, int N>
constexpr ReductionKernel reduction_entry(const char *name) {
    return {name,           sizeof(T),        Join::kNeutral, reduce_rows<Join, Of, T, N>,
            join_all<Join>, combine_two<Join>};
}

template <class T, int N>
const ReductionKernel *find_reduction_of(const char *name) {
    static constexpr ReductionKernel kTable[] = {
        reduction_entry<Sum, Itself, T, N>("sum"),
        reduction_entry<Sum, Size, T, N>("abs"),
        reduction_entry<Sum, Square, T, N>("square"),
        reduction_entry<Sum, Deviation, T, N>("deviation"),
        reduction_entry<Sum, Power, T, N>("exp"),
        reduction_entry<Product, Itself, T, N>("mul"),
        reduction_entry<Greatest, Itself, T, N>("max"),
        reduction_entry<Least, Itself, T, N>("min"),
    };
    for (const auto &entry : kTable) {
        if (__builtin_strcmp(entry.name, name) == 0) return &entry;
    }
    return nullptr;
}

template <int N>
const ReductionKernel *find_reduction(const char *name, bool halves) {
    return halves ? find_reduction_of<Bfloat16, N>(name) : find_reduction_of<float, N>(name);
}

}  // namespace
}  // namespace stridewise
