#include "pooling/plain_pooling.hpp"

#include <algorithm>
#include <limits>

#include "support/images.hpp"
#include "threads/regions.hpp"

namespace stridewise {
namespace {

constexpr std::int64_t kHeld = 32768;  // elements of rows that are held, which stay in a cache
constexpr std::int64_t kLine = 16;     // elements of a cache line
constexpr std::int64_t kMostReach = 1 << 20;  // of a window, as that many rows are held

// NaN of either one is propagated, without branches.
inline float larger(float a, float b) {
    return (b > a) | (b != b) ? b : a;
}

std::int64_t round_up(std::int64_t count) {
    return ceil_div(count, kLine) * kLine;
}

// Pools `count` results of a window of `taps` elements that lie `step` apart. Partial results of 1,
// 2, 4, ... taps replace the source, of which `reach` elements lie behind the first one of the last
// window. Two of them cover a window for maxima; sums have one for each bit of `taps`.
template <bool kIsMax>
void pool_line(float *source, std::int64_t count, std::int64_t reach, std::int64_t taps,
               std::int64_t step, float *to) {
    std::int64_t covered = 0, left = reach;
    for (std::int64_t width = 1; width <= taps; width *= 2) {
        const bool is_last = width * 2 > taps;
        if constexpr (kIsMax) {
            if (is_last) {
                const float *other = source + (taps - width) * step;
                for (std::int64_t i = 0; i < count; ++i) to[i] = larger(source[i], other[i]);
            }
        } else if ((taps & width) != 0) {
            const float *part = source + covered * step;
            if (covered == 0) {
                std::copy(part, part + count, to);
            } else {
                for (std::int64_t i = 0; i < count; ++i) to[i] += part[i];
            }
            covered += width;
        }
        if (is_last) return;
        left -= width * step;
        const float *next = source + width * step;
        for (std::int64_t i = 0; i < count + left; ++i) {
            source[i] = kIsMax ? larger(source[i], next[i]) : source[i] + next[i];
        }
    }
}

}  // namespace

std::int64_t PlainPooling::Axis::taps(std::int64_t result) const {
    const std::int64_t before = begin - result * stride, left = size + before;
    const std::int64_t first = before <= 0 ? 0 : std::min(window, ceil_div(before, dilation));
    const std::int64_t last = left <= 0 ? 0 : std::min(window, ceil_div(left, dilation));
    return std::max<std::int64_t>(0, last - first);
}

PlainPooling::PlainPooling(const std::string &algorithm, const MemoryDesc &src,
                           const MemoryDesc &dst, const Dims &window, const Dims &strides,
                           const Dims &dilations, const Dims &begins, int threads)
    : Kernel(threads, {DNNL_ARG_SRC, DNNL_ARG_DST}),
      src_(src),
      dst_(dst),
      is_max_(algorithm == "max"),
      counts_padding_(algorithm == "avg_include") {
    require(is_max_ || counts_padding_ || algorithm == "avg_exclude",
            "plain_pooling: expected max, avg_include or avg_exclude, got " + algorithm);
    const Dims from = src.dims(), to = dst.dims();
    require(from.size() == 4 && to.size() == 4 && from[0] == to[0] && from[1] == to[1] &&
                *std::min_element(from.begin(), from.end()) >= 1 &&
                *std::min_element(to.begin(), to.end()) >= 1 &&
                src == MemoryDesc(from, "f32", "abcd") && dst == MemoryDesc(to, "f32", "abcd"),
            "plain_pooling: expected dense float32 of as many planes, got " + src.repr() + " and " +
                dst.repr());
    const auto axis = [&](std::size_t at) {
        const bool fits = window.size() == 2 && strides.size() == 2 && dilations.size() == 2 &&
                          begins.size() == 2;
        require(fits && window[at] >= 1 && strides[at] >= 1 && dilations[at] >= 1 &&
                    begins[at] >= 0 && window[at] <= kMostReach && dilations[at] <= kMostReach &&
                    strides[at] <= kMostReach && begins[at] <= kMostReach &&
                    (window[at] - 1) * dilations[at] <= kMostReach,
                "plain_pooling: expected two positive numbers for windows, strides and dilations, "
                "padding that is not negative, and windows that reach no further than " +
                    std::to_string(kMostReach));
        return Axis{from[2 + at], to[2 + at], window[at], strides[at], dilations[at], begins[at]};
    };
    rows_ = axis(0);
    columns_ = axis(1);
    planes_ = from[0] * from[1];
    const std::int64_t held = kHeld / columns_.results - rows_.reach();
    band_ = std::clamp<std::int64_t>(held / rows_.stride, 1, rows_.results);
    // Threads have something to do each, too.
    const std::int64_t fair = ceil_div(planes_ * rows_.results, threads);
    band_ = std::max<std::int64_t>(1, std::min(band_, fair));
    for (const Axis &found : {rows_, columns_}) {
        for (std::int64_t at = 0; !is_max_ && !counts_padding_ && at < found.results; ++at) {
            require(found.taps(at) > 0, "plain_pooling: expected an element in each window");
        }
    }
    if (is_max_) return;
    for (std::int64_t at = 0; at < columns_.results; ++at) {
        const std::int64_t taps = counts_padding_ ? columns_.window : columns_.taps(at);
        shares_.push_back(1.0F / static_cast<float>(taps));
    }
}

PlainPooling::Scratch PlainPooling::scratch() const {
    const std::int64_t read = columns_.positions(columns_.results) + columns_.reach();
    const std::int64_t positions = rows_.positions(band_);
    Scratch found{};
    found.line = round_up(std::max(read, columns_.begin + columns_.size));
    found.pooled = columns_.stride > 1 ? round_up(columns_.positions(columns_.results)) : 0;
    found.held = round_up((positions + rows_.reach()) * columns_.results);
    found.band = rows_.stride > 1 ? round_up(positions * columns_.results) : 0;
    return found;
}

std::size_t PlainPooling::scratchpad_nbytes() const {
    return static_cast<std::size_t>(threads_ * scratch().total()) * sizeof(float);
}

MemoryDesc PlainPooling::arg_desc(int arg) const {
    if (arg == DNNL_ARG_SCRATCHPAD) {
        return {{static_cast<std::int64_t>(scratchpad_nbytes())}, "u8", "a"};
    }
    if (arg == DNNL_ARG_SRC) return src_;
    require(arg == DNNL_ARG_DST, "plain_pooling: there is no argument " + std::to_string(arg));
    return dst_;
}

template <bool kIsMax>
void PlainPooling::pool_row(const float *from, float *line, float *pooled, float *to) const {
    const Axis &axis = columns_;
    constexpr float outside = kIsMax ? -std::numeric_limits<float>::infinity() : 0.0F;
    const std::int64_t positions = axis.positions(axis.results), read = positions + axis.reach();
    const std::int64_t inside = std::clamp<std::int64_t>(read - axis.begin, 0, axis.size);
    std::fill(line, line + std::min(axis.begin, read), outside);
    std::copy(from, from + inside, line + axis.begin);
    if (axis.begin + inside < read) std::fill(line + axis.begin + inside, line + read, outside);
    float *result = axis.stride > 1 ? pooled : to;
    pool_line<kIsMax>(line, positions, axis.reach(), axis.window, axis.dilation, result);
    if (axis.stride == 1) return;
    for (std::int64_t i = 0; i < axis.results; ++i) to[i] = result[i * axis.stride];
}

template <bool kIsMax>
void PlainPooling::pool_band(const float *from, float *to, std::int64_t begin, std::int64_t end,
                             float *scratchpad) const {
    const Scratch sizes = scratch();
    float *line = scratchpad, *pooled = line + sizes.line, *held = pooled + sizes.pooled;
    float *band = held + sizes.held;
    constexpr float outside = kIsMax ? -std::numeric_limits<float>::infinity() : 0.0F;
    const std::int64_t width = columns_.results, positions = rows_.positions(end - begin);
    for (std::int64_t i = 0; i < positions + rows_.reach(); ++i) {
        const std::int64_t row = begin * rows_.stride - rows_.begin + i;
        if (row < 0 || row >= rows_.size) {
            std::fill(held + i * width, held + (i + 1) * width, outside);
        } else {
            pool_row<kIsMax>(from + row * columns_.size, line, pooled, held + i * width);
        }
    }
    // Rows follow one another, so that columns are pooled as one line of whole rows.
    float *result = rows_.stride > 1 ? band : to;
    pool_line<kIsMax>(held, positions * width, rows_.reach() * width, rows_.window,
                      rows_.dilation * width, result);
    for (std::int64_t i = begin; i < end; ++i, to += width) {
        const float *row = result + (i - begin) * rows_.stride * width;
        if constexpr (kIsMax) {
            if (rows_.stride > 1) std::copy(row, row + width, to);
        } else {
            const std::int64_t taps = counts_padding_ ? rows_.window : rows_.taps(i);
            const float share = 1.0F / static_cast<float>(taps);
            for (std::int64_t k = 0; k < width; ++k) to[k] = row[k] * (share * shares_[k]);
        }
    }
}

void PlainPooling::execute(const std::vector<void *> &data, void *scratchpad) const {
    const auto *from = static_cast<const float *>(data[0]);
    auto *to = static_cast<float *>(data[1]);
    const std::int64_t bands = ceil_div(rows_.results, band_), total = planes_ * bands;
    const std::int64_t own = scratch().total();
    in_parallel(threads_, [&](int part, int parts) {
        float *mine = static_cast<float *>(scratchpad) + part * own;
        for (std::int64_t i = total * part / parts; i < total * (part + 1) / parts; ++i) {
            const std::int64_t plane = i / bands, begin = i % bands * band_;
            const std::int64_t end = std::min(rows_.results, begin + band_);
            const float *source = from + plane * rows_.size * columns_.size;
            float *result = to + (plane * rows_.results + begin) * columns_.results;
            is_max_ ? pool_band<true>(source, result, begin, end, mine)
                    : pool_band<false>(source, result, begin, end, mine);
        }
    });
}

}  // namespace stridewise
