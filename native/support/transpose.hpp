// Transposition of squares of float32 in vectors.
//
// It includes no standard templates, for the reason in winograd/kernels.hpp.
#pragma once

#include "support/vectors.hpp"

namespace stridewise {
namespace {

template <int N>
struct FloatSquare {
    using V = typename Lanes<N>::V;

    // The elements of both halves of two vectors in turn: a0, b0, a1, b1, ...
    static inline V low(V a, V b);
    static inline V high(V a, V b);

    // Element i of vector j becomes element j of vector i: log2(N) rounds, each of which moves the
    // highest bit of a vector's number to the lowest of its elements' numbers.
    static inline void transpose(V (&rows)[N]) {
#pragma GCC unroll 4
        for (int round = 1; round < N; round *= 2) {
            V found[N];
#pragma GCC unroll 8
            for (int i = 0; i < N / 2; ++i) {
                found[2 * i] = low(rows[i], rows[i + N / 2]);
                found[2 * i + 1] = high(rows[i], rows[i + N / 2]);
            }
#pragma GCC unroll 16
            for (int i = 0; i < N; ++i) rows[i] = found[i];
        }
    }
};

template <>
inline FloatSquare<8>::V FloatSquare<8>::low(V a, V b) {
    return __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11);
}

template <>
inline FloatSquare<8>::V FloatSquare<8>::high(V a, V b) {
    return __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15);
}

template <>
inline FloatSquare<16>::V FloatSquare<16>::low(V a, V b) {
    return __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
}

template <>
inline FloatSquare<16>::V FloatSquare<16>::high(V a, V b) {
    return __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15,
                                   31);
}

}  // namespace
}  // namespace stridewise
