// The interpolation points of Winograd's algorithm, and the polynomials of its transforms.
//
// F(m, r): m results of a window of r taps from n = m + r - 1 pixels and as many products (Lavin
// and Gray, arXiv:1509.09308), by polynomials that are interpolated at n points: zero, pairs of
// numbers of both signs, and infinity. The points determine the rounding error: 1/sqrt(2) and
// sqrt(2) have half the error of the usual 1 and 2, at the same cost. The points of 8 places have
// the least error of a search with steps of 0.05. The points of 10 places have similar ratios and
// were not searched for.
//
// With M(x) = x P(x^2), P(y) = (y - p1^2) (y - p2^2) ..., and Qk = P without its k-th factor:
//   pixels   to x = 0:         coefficients of P, at even pixels
//            to x = +-pk:      those of x (x +- pk) Qk(x^2)
//            to x = infinity:  those of P, at odd pixels
//   weights  to x:             (1, x, x^2, ...) / M'(x), the last tap alone for infinity
//   results  from x:           (1, x, x^2, ...), the last one alone from infinity
// No standard header is included; see winograd/kernels.hpp.
#pragma once

namespace stridewise {

// The positive points of n points.
template <int Places>
struct WinogradPoints;

template <>
struct WinogradPoints<4> {
    static constexpr double values[] = {1.0};
};

template <>
struct WinogradPoints<6> {
    static constexpr double values[] = {0.70710678118654752440, 1.41421356237309504880};
};

template <>
struct WinogradPoints<8> {
    static constexpr double values[] = {0.5, 1.0, 2.0};
};

template <>
struct WinogradPoints<10> {
    static constexpr double values[] = {0.5, 0.8, 1.25, 2.0};
};

template <int Places>
struct WinogradPolynomials {
    static constexpr int kPairs = Places / 2 - 1;
    double all[kPairs + 1] = {};          // coefficients of P, constant first
    double without[kPairs][kPairs] = {};  // coefficients of each Qk

    constexpr WinogradPolynomials() {
        expand(-1, kPairs, all);
        for (int k = 0; k < kPairs; ++k) expand(k, kPairs - 1, without[k]);
    }

    static constexpr double point(int k) { return WinogradPoints<Places>::values[k]; }

    static constexpr double power(int k, int exponent) {
        return exponent == 0 ? 1.0 : point(k) * power(k, exponent - 1);
    }

  private:
    // Multiplies the factors of all points but one.
    static constexpr void expand(int skipped, int degree, double *coefficients) {
        coefficients[0] = 1.0;
        for (int k = 0, have = 0; k < kPairs; ++k) {
            if (k == skipped) continue;
            ++have;
            const double square = point(k) * point(k);
            for (int i = have; i >= 0; --i) {
                const double shifted = i > 0 ? coefficients[i - 1] : 0.0;
                const double same = i < have ? coefficients[i] : 0.0;
                if (i <= degree) coefficients[i] = shifted - square * same;
            }
        }
    }
};

// Transforms the taps of one line of a window into `Places` values. `Value` is double, or a vector
// of doubles with one lane per window.
template <int Places, int Taps, class Value>
void transform_taps(const Value *taps, Value *values) {
    constexpr WinogradPolynomials<Places> polynomials;
    constexpr int pairs = polynomials.kPairs;
    values[0] = taps[0] / polynomials.all[0];
    for (int k = 0; k < pairs; ++k) {
        const double square = polynomials.power(k, 2);
        double slope = 0.0;  // Qk(pk^2)
        for (int i = pairs - 1; i >= 0; --i) slope = slope * square + polynomials.without[k][i];
        Value even{}, odd{};
        for (int tap = 0; tap < Taps; ++tap) {
            (tap % 2 == 0 ? even : odd) += taps[tap] * polynomials.power(k, tap);
        }
        // M'(+-p) = 2 p^2 Q(p^2).
        values[2 * k + 1] = (even + odd) / (2.0 * square * slope);
        values[2 * k + 2] = (even - odd) / (2.0 * square * slope);
    }
    values[Places - 1] = taps[Taps - 1];
}

}  // namespace stridewise
