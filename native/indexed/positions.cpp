#include "indexed/positions.hpp"

#include <algorithm>

#include "support/images.hpp"
#include "support/small_vectors.hpp"
#include "threads/regions.hpp"

namespace stridewise {
namespace {

constexpr std::int64_t kColumns = 64;  // at a time

// Whether an element takes the place of the best one so far: it beats that one, is NaN, or, where
// the last one counts, is equal. NaN stays, or gives way to another NaN only. Without branches, so
// that loops are vectorized.
template <bool kMost, bool kLast>
inline bool is_better(float value, float best) {
    const bool is_number = best == best;
    if constexpr (kLast) {
        const bool loses = kMost ? value < best : value > best;
        return (!loses) & (is_number | (value != value));
    }
    const bool loses = kMost ? value <= best : value >= best;
    return (!loses) & is_number;
}

// The position in a dense line: its extreme first, in explicit vectors, then where it is. -1 for
// lines with an element that is no number.
template <bool kMost, bool kLast>
std::int64_t find_in_line(const float *from, std::int64_t rows) {
    using Vector = SmallVector<float>;
    constexpr std::int64_t kLanes = Vector::kLanes;
    const std::int64_t whole = rows / kLanes;
    Vector::V found = Vector::load(from);
    auto odd = found != found;
    for (std::int64_t i = 1; i < whole; ++i) {
        const Vector::V x = Vector::load(from + i * kLanes);
        found = (kMost ? x > found : x < found) ? x : found;
        odd |= x != x;
    }
    float best = found[0];
    bool is_odd = odd[0] != 0;
    const auto take = [&](float value) {
        best = (kMost ? value > best : value < best) ? value : best;
        is_odd |= value != value;
    };
    for (std::int64_t i = 1; i < kLanes; ++i) {
        take(found[i]);
        is_odd |= odd[i] != 0;
    }
    for (std::int64_t row = whole * kLanes; row < rows; ++row) take(from[row]);
    if (is_odd) return -1;
    if constexpr (kLast) {
        std::int64_t row = rows - 1;
        while (from[row] != best) --row;
        return row;
    }
    std::int64_t row = 0;
    while (from[row] != best) ++row;
    return row;
}

// Positions are numbers of 32 bits in between, so that whole vectors are compared.
template <bool kMost, bool kLast>
void find(const float *from, std::int64_t *to, std::int64_t rows, std::int64_t step,
          std::int64_t count) {
    if (step == 1) {
        *to = rows < 8 ? -1 : find_in_line<kMost, kLast>(from, rows);
        if (*to >= 0) return;
        float most = from[0];
        *to = 0;
        for (std::int64_t row = 1; row < rows; ++row) {
            if (!is_better<kMost, kLast>(from[row], most)) continue;
            most = from[row];
            *to = row;
        }
        return;
    }
    float best[kColumns];
    std::int32_t found[kColumns];
    std::copy(from, from + count, best);
    std::fill(found, found + count, 0);
    for (std::int64_t row = 1; row < rows; ++row) {
        const float *values = from + row * step;
        const auto position = static_cast<std::int32_t>(row);
        for (std::int64_t i = 0; i < count; ++i) {
            const bool better = is_better<kMost, kLast>(values[i], best[i]);
            best[i] = better ? values[i] : best[i];
            found[i] = better ? position : found[i];
        }
    }
    std::copy(found, found + count, to);
}

}  // namespace

Positions::Positions(const std::string &what, bool is_last, const MemoryDesc &src,
                     const MemoryDesc &dst, int threads)
    : Kernel(threads, {DNNL_ARG_SRC, DNNL_ARG_DST}), src_(src), dst_(dst) {
    const Dims from = src.dims();
    require(what == "arg_max" || what == "arg_min",
            "positions: expected arg_max or arg_min, got " + what);
    require(from.size() == 3 && *std::min_element(from.begin(), from.end()) >= 1 &&
                from[1] <= INT32_MAX && src == MemoryDesc(from, "f32", "abc"),
            "positions: expected dense float32 of three axes, got " + src.repr());
    require(dst == MemoryDesc({from[0], from[2], 2}, "s32", "abc"),
            "positions: expected dense pairs of s32, got " + dst.repr());
    outer_ = from[0];
    rows_ = from[1];
    inner_ = from[2];
    if (what == "arg_max") {
        find_ = is_last ? &find<true, true> : &find<true, false>;
    } else {
        find_ = is_last ? &find<false, true> : &find<false, false>;
    }
}

MemoryDesc Positions::arg_desc(int arg) const {
    if (arg == DNNL_ARG_SRC) return src_;
    require(arg == DNNL_ARG_DST, "positions: there is no argument " + std::to_string(arg));
    return dst_;
}

void Positions::execute(const std::vector<void *> &data, void *) const {
    const auto *from = static_cast<const float *>(data[0]);
    auto *to = static_cast<std::int64_t *>(data[1]);
    const std::int64_t blocks = ceil_div(inner_, kColumns), total = outer_ * blocks;
    in_parallel(threads_, [&](int part, int parts) {
        for (std::int64_t i = total * part / parts; i < total * (part + 1) / parts; ++i) {
            const std::int64_t outer = i / blocks, first = i % blocks * kColumns;
            find_(from + outer * rows_ * inner_ + first, to + outer * inner_ + first, rows_, inner_,
                  std::min(kColumns, inner_ - first));
        }
    });
}

}  // namespace stridewise
