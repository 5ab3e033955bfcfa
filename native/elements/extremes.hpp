// The greater and the lesser of two elements, or of two vectors of them. NaN of either one is the
// result, as in NumPy. Without branches, so that loops are vectorized.
#pragma once

namespace stridewise {

struct Maximum {
    template <class T>
    static T of(T x, T y) {
        return (x > y) | (x != x) ? x : y;
    }
};

struct Minimum {
    template <class T>
    static T of(T x, T y) {
        return (x < y) | (x != x) ? x : y;
    }
};

}  // namespace stridewise
