// Softmax of rows that lie side by side, in vectors of any width.
//
// It includes no standard templates, for the reason in winograd/kernels.hpp.
#pragma once

#include "reduction/lanes.hpp"
#include "reduction/row_kernels.hpp"

namespace stridewise {
namespace {

// Lines of Vectors vectors, in which each lane belongs to one row. Either the lanes are `width`
// rows, or as many elements of each of `width` rows as fill all lanes.
template <int N, int Vectors>
class Lines {
    using L = Lanes<N>;
    using V = typename L::V;
    static constexpr std::int64_t kLanes = N * Vectors;
    // Lines whose sums are added one by one; longer sums would be less exact.
    static constexpr std::int64_t kTerms = 128;

  public:
    explicit Lines(const SideRows &rows, bool is_filled) : from_(rows.from), to_(rows.to) {
        width_ = rows.width;
        stride_ = is_filled ? kLanes : rows.stride;
        used_ = is_filled ? N : rows.width - (Vectors - 1) * N;
        lines_ = is_filled ? rows.count * width_ / kLanes : rows.count;
        rest_ = is_filled ? rows.count * width_ % kLanes : 0;
        is_filled_ = is_filled;
    }

    template <bool IsLog>
    void softmax() const {
        V most[Vectors], total[Vectors];
        find_most(most);
        find_total<IsLog>(most, total);
        for (int k = 0; k < Vectors; ++k) {
            total[k] = IsLog ? Functions<N>::logarithm(total[k]) : 1.0F / total[k];
        }
        const auto finish = [&](int k, std::int64_t at, std::int64_t lanes) {
            const V x = load((IsLog ? from_ : to_) + at, lanes);
            store(to_ + at, IsLog ? x - most[k] - total[k] : x * total[k], lanes);
        };
        each(0, lines_, finish);
        each_left(finish);
    }

  private:
    static inline V load(const float *from, std::int64_t lanes) {
        return lanes == N ? L::load(from) : L::load_some(from, lanes);
    }

    static inline void store(float *to, V value, std::int64_t lanes) {
        if (lanes == N) {
            L::store(to, value);
        } else {
            L::store_some(to, value, lanes);
        }
    }

    // Calls body(vector, at, lanes) for each vector of some lines.
    template <class Body>
    inline void each(std::int64_t begin, std::int64_t end, const Body &body) const {
        for (std::int64_t line = begin; line < end; ++line) {
#pragma GCC unroll 8
            for (int k = 0; k + 1 < Vectors; ++k) body(k, line * stride_ + k * N, N);
            body(Vectors - 1, line * stride_ + (Vectors - 1) * N, used_);
        }
    }

    // The same for what is left behind the lines.
    template <class Body>
    inline void each_left(const Body &body) const {
        for (int k = 0; k * N < rest_; ++k) {
            const std::int64_t left = rest_ - k * N;
            body(k, lines_ * stride_ + k * N, left < N ? left : N);
        }
    }

    // Joins what was found for the same row, and gives it to all lanes of the row.
    template <class Join>
    void join(V *parts) const {
        if (!is_filled_) return;
        float found[kLanes];
        for (int k = 0; k < Vectors; ++k) L::store(found + k * N, parts[k]);
        std::int64_t size = kLanes;  // the width multiplied by a power of 2
        while (size > width_) {
            size /= 2;
            for (std::int64_t i = 0; i < size; ++i)
                found[i] = Join::join(found[i], found[size + i]);
        }
        for (; size < kLanes; size *= 2) {
            for (std::int64_t i = 0; i < size; ++i) found[size + i] = found[i];
        }
        for (int k = 0; k < Vectors; ++k) parts[k] = L::load(found + k * N);
    }

    // Of a row with NaN any number: its sums are NaN in any case.
    inline void find_most(V *most) const {
        V found[Vectors];
        for (auto &part : found) part = L::all(Greatest::kNeutral);
        each(0, lines_, [&](int k, std::int64_t at, std::int64_t lanes) {
            found[k] = L::larger(found[k], load(from_ + at, lanes));
        });
        each_left([&](int k, std::int64_t at, std::int64_t lanes) {
            const V x = L::larger(found[k], load(from_ + at, lanes));
            found[k] = L::counted() < static_cast<std::int32_t>(lanes) ? x : found[k];
        });
        join<Greatest>(found);
        for (int k = 0; k < Vectors; ++k) most[k] = found[k];
    }

    // Sums of exp(x - most); stores the powers, except for a logarithm.
    template <bool IsLog>
    inline void find_total(const V *most, V *total) const {
        V whole[Vectors] = {};
        const auto power = [&](int k, std::int64_t at, std::int64_t lanes) {
            const V found = Functions<N>::exponential(load(from_ + at, lanes) - most[k]);
            if (!IsLog) store(to_ + at, found, lanes);
            return found;
        };
        for (std::int64_t line = 0; line < lines_; line += kTerms) {
            V part[Vectors] = {};
            each(line, line + kTerms < lines_ ? line + kTerms : lines_,
                 [&](int k, std::int64_t at, std::int64_t lanes) {
                     part[k] += power(k, at, lanes);
                 });
            for (int k = 0; k < Vectors; ++k) whole[k] += part[k];
        }
        each_left([&](int k, std::int64_t at, std::int64_t lanes) {
            whole[k] += L::without(power(k, at, lanes), lanes);
        });
        join<Sum>(whole);
        for (int k = 0; k < Vectors; ++k) total[k] = whole[k];
    }

    const float *from_;
    float *to_;
    std::int64_t width_, stride_, used_, lines_,
        rest_;  // used_: lanes of the last vector of a line
    bool is_filled_;
};

// Vectors that hold the same number of elements of each of a few rows side by side; 0 for too many.
template <int N>
constexpr std::int64_t filled_vectors(std::int64_t width) {
    std::int64_t odd = width;
    while (odd % 2 == 0) odd /= 2;
    if (width > N) return 0;
    return odd == 1 ? 4 : (odd <= 7 ? odd : 0);
}

template <int N, bool IsLog>
void side_softmax(const SideRows &rows) {
    const std::int64_t filled = rows.width == rows.stride ? filled_vectors<N>(rows.width) : 0;
    switch (filled) {
        case 3:
            return Lines<N, 3>(rows, true).template softmax<IsLog>();
        case 4:
            return Lines<N, 4>(rows, true).template softmax<IsLog>();
        case 5:
            return Lines<N, 5>(rows, true).template softmax<IsLog>();
        case 7:
            return Lines<N, 7>(rows, true).template softmax<IsLog>();
        default:
            break;
    }
    for (std::int64_t at = 0; at < rows.width; at += 4 * N) {
        const std::int64_t left = rows.width - at, width = left < 4 * N ? left : 4 * N;
        const SideRows some{rows.from + at, rows.to + at, rows.count, width, rows.stride};
        switch ((width + N - 1) / N) {
            case 1:
                Lines<N, 1>(some, false).template softmax<IsLog>();
                break;
            case 2:
                Lines<N, 2>(some, false).template softmax<IsLog>();
                break;
            case 3:
                Lines<N, 3>(some, false).template softmax<IsLog>();
                break;
            default:
                Lines<N, 4>(some, false).template softmax<IsLog>();
        }
    }
}

}  // namespace
}  // namespace stridewise
