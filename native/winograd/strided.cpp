#include "winograd/strided.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "support/errors.hpp"
#include "threads/regions.hpp"
#include "threads/shares.hpp"

namespace stridewise {
namespace {

constexpr std::size_t kAlignment = 64;
// Limit of the folded images that are computed together, so that they stay in the caches.
constexpr std::int64_t kFoldedBytes = 16 << 20;

// The convolution of the folded source, which has no padding: folding writes it.
WinogradOptions folded_options(const WinogradOptions &options,
                               const std::array<std::int64_t, 2> &strides,
                               const WinogradSlices &slices) {
    const auto &o = options;
    require(std::min({slices.count, slices.taps, slices.stride, slices.dilation}) >= 1 &&
                std::min(slices.front, slices.back) >= 0 && o.images % slices.count == 0 &&
                slices.room() >= 0,
            "winograd: expected slices of whole volumes, which the window fits into");
    require(slices.count == 1 || o.source_last, "winograd: expected slices with channels last");
    require(std::min(strides[0], strides[1]) >= 1, "winograd: expected positive strides");
    require(o.groups == 1 && o.pool == 1 && o.dilations[0] == 1 && o.dilations[1] == 1,
            "winograd: convolutions with strides have no groups, dilations or pooling");
    require(o.lanes == 8 || o.lanes == 16, "winograd: expected vectors of 8 or 16 lanes");
    require(*std::min_element(o.pads.begin(), o.pads.end()) >= 0, "winograd: negative padding");
    require(std::min({o.channels, o.height, o.width, o.window[0], o.window[1]}) >= 1,
            "winograd: expected positive extents");
    const std::array<std::int64_t, 2> extents = {o.height + o.pads[0] + o.pads[2],
                                                 o.width + o.pads[1] + o.pads[3]};
    WinogradOptions folded = options;
    std::array<std::int64_t, 2> sizes{};
    for (std::size_t axis = 0; axis < 2; ++axis) {
        require(extents[axis] >= o.window[axis],
                "winograd: the window does not fit into the padded source");
        folded.window[axis] = ceil_div(o.window[axis], strides[axis]);
        sizes[axis] = (extents[axis] - o.window[axis]) / strides[axis] + folded.window[axis];
    }
    folded.height = sizes[0];
    folded.width = sizes[1];
    folded.images = o.images / slices.count * slices.results();
    folded.channels = o.channels * slices.taps * strides[0] * strides[1];
    folded.pads = {};
    folded.source_last = false;
    return folded;
}

std::int64_t image_count(const WinogradOptions &folded) {
    return ceil_div(folded.channels, folded.lanes) * folded.lanes * folded.height * folded.width;
}

// The same for as many images as fit the caches; groups of images have about one size.
WinogradOptions of_group(WinogradOptions folded) {
    const std::int64_t nbytes = image_count(folded) * element_nbytes(folded.halves.source);
    const std::int64_t fitting = std::max<std::int64_t>(kFoldedBytes / nbytes, 1);
    folded.images = ceil_div(folded.images, ceil_div(folded.images, fitting));
    return folded;
}

// Moves `N` adjacent elements of `count` pixels, `step` apart, into lanes.
template <class T, std::size_t N>
void move_pixels(const T *from, std::int64_t step, T *to, std::int64_t lanes, std::int64_t count) {
    for (std::int64_t x = 0; x < count; ++x) std::copy_n(from + x * step, N, to + x * lanes);
}

template <class T, std::size_t... N>
constexpr auto moves(std::index_sequence<N...> /*counts*/) {
    return std::array{&move_pixels<T, N + 1>...};
}

}  // namespace

StridedWinograd::StridedWinograd(const WinogradOptions &options,
                                 const std::array<std::int64_t, 2> &strides,
                                 const WinogradSlices &slices, const PostOps &post_ops)
    : Kernel(options.threads),
      options_(options),
      strides_(strides),
      slices_(slices),
      kernel_(of_group(folded_options(options, strides, slices)), post_ops) {
    args_ = kernel_.args();
    WinogradOptions left = kernel_.options();
    left.images = result_images() % left.images;
    if (left.images > 0) rest_ = std::make_shared<Winograd>(left, post_ops);
    for (std::size_t at = 0; at < args_.size(); ++at) {
        const bool is_source = args_[at] == DNNL_ARG_SRC || args_[at] == DNNL_ARG_WEIGHTS;
        if (!is_source && args_[at] != DNNL_ARG_BIAS) images_.push_back(static_cast<int>(at));
    }
}

std::size_t StridedWinograd::folded_nbytes() const {
    const auto &folded = kernel_.options();
    const auto elements = static_cast<std::size_t>(folded.images * image_count(folded));
    const std::size_t nbytes =
        elements * static_cast<std::size_t>(element_nbytes(folded.halves.source));
    return (nbytes + kAlignment - 1) / kAlignment * kAlignment;
}

std::size_t StridedWinograd::scratchpad_nbytes() const {
    const std::size_t rest = rest_ == nullptr ? 0 : rest_->scratchpad_nbytes();
    return folded_nbytes() + std::max(kernel_.scratchpad_nbytes(), rest);
}

std::size_t StridedWinograd::weights_nbytes() const {
    const auto &o = options_;
    return static_cast<std::size_t>(o.outputs * o.channels * slices_.taps * o.window[0] *
                                    o.window[1]) *
           sizeof(float);
}

MemoryDesc StridedWinograd::arg_desc(int arg) const {
    const auto &o = options_;
    if (arg == DNNL_ARG_SRC) {
        return MemoryDesc({o.images, o.channels, o.height, o.width},
                          o.halves.source ? "bf16" : "f32", o.source_last ? "acdb" : "abcd");
    }
    if (arg == DNNL_ARG_SCRATCHPAD) {
        return MemoryDesc({static_cast<std::int64_t>(scratchpad_nbytes())}, "u8", "a");
    }
    const MemoryDesc found = kernel_.arg_desc(arg);
    if (arg == DNNL_ARG_WEIGHTS || arg == DNNL_ARG_BIAS) return found;
    Dims dims = found.dims();
    dims[0] = result_images();
    return image_desc(dims, o.halves.result, o.result_last, o.lanes);
}

void StridedWinograd::pack(const float *weights, void *packed, std::int64_t first,
                           std::int64_t count) const {
    const auto &o = options_;
    const auto &folded = kernel_.options();
    const std::int64_t taps = o.window[0] * o.window[1], all = slices_.taps * taps;
    const std::int64_t folded_taps = folded.window[0] * folded.window[1];
    const std::int64_t unit = pair_outputs();
    std::vector<float> windows(static_cast<std::size_t>(unit * folded.channels * folded_taps));
    for (std::int64_t begin = 0; begin < count; begin += unit) {
        const std::int64_t outputs = std::min(unit, count - begin);
        for (std::int64_t pair = 0; pair < outputs * o.channels; ++pair) {
            const std::int64_t output = pair / o.channels, channel = pair % o.channels;
            const float *from = weights + (begin * o.channels + pair) * all;
            for (std::int64_t tap = 0; tap < all; ++tap) {
                const std::int64_t y = tap % taps / o.window[1], x = tap % o.window[1];
                const std::int64_t phase =
                    (tap / taps * strides_[0] + y % strides_[0]) * strides_[1] + x % strides_[1];
                const std::int64_t at = y / strides_[0] * folded.window[1] + x / strides_[1];
                const std::int64_t to =
                    (output * folded.channels + phase * o.channels + channel) * folded_taps + at;
                windows[static_cast<std::size_t>(to)] = from[tap];
            }
        }
        kernel_.pack(windows.data(), packed, first + begin, outputs);
    }
}

// The pixels of a row of the folded source whose columns are in the source, in one phase.
StridedWinograd::Pixels StridedWinograd::inside(std::int64_t across) const {
    const std::int64_t shift = across - options_.pads[1], left = options_.width - shift;
    return {shift >= 0 ? 0 : ceil_div(-shift, strides_[1]),
            left <= 0 ? 0 : std::min(kernel_.options().width, ceil_div(left, strides_[1]))};
}

// Writes adjacent elements of the source for some pixels of a row of the folded source. `offset` is
// where those of pixel 0 are, `step` how far pixels are apart, and `place` the first channel.
template <class T>
void StridedWinograd::fold_span(const T *row, std::int64_t offset, std::int64_t step,
                                std::int64_t place, std::int64_t span, Pixels pixels,
                                T *folded) const {
    static constexpr auto kMoves = moves<T>(std::make_index_sequence<16>());
    if (pixels.begin >= pixels.end) return;
    const auto &to = kernel_.options();
    const std::int64_t lanes = to.lanes, chunk = to.height * to.width * lanes;
    const T *from = row + (offset + pixels.begin * step);
    T *line = folded + pixels.begin * lanes;
    while (span > 0) {
        const std::int64_t lane = place % lanes, count = std::min(lanes - lane, span);
        kMoves[static_cast<std::size_t>(count - 1)](from, step, line + place / lanes * chunk + lane,
                                                    lanes, pixels.end - pixels.begin);
        from += count;
        place += count;
        span -= count;
    }
}

// Writes the phases of a row of the source; `phase` is the first one.
template <class T>
void StridedWinograd::fold_phases(const T *row, std::int64_t phase, T *folded) const {
    const auto &o = options_;
    const std::int64_t stride = strides_[1], pixel = o.source_last ? o.channels : 1;
    const std::int64_t step = stride * pixel, first = -o.pads[1] * pixel;
    // With channels last, the phases of a pixel lie side by side, unless one is in the padding.
    Pixels whole{inside(0).begin, inside(stride - 1).end};
    if (!o.source_last || whole.begin >= whole.end) {
        whole = {kernel_.options().width, kernel_.options().width};
    }
    fold_span(row, first, step, phase * o.channels, stride * o.channels, whole, folded);
    for (std::int64_t across = 0; across < stride; ++across) {
        const Pixels all = inside(across);
        const Pixels before{all.begin, std::min(all.end, whole.begin)};
        const Pixels behind{std::max(all.begin, whole.end), all.end};
        const std::int64_t offset = first + across * pixel, place = (phase + across) * o.channels;
        if (o.source_last) {
            fold_span(row, offset, step, place, o.channels, before, folded);
            fold_span(row, offset, step, place, o.channels, behind, folded);
            continue;
        }
        for (std::int64_t channel = 0; channel < o.channels; ++channel) {
            const std::int64_t plane = channel * o.height * o.width;
            fold_span(row, plane + offset, step, place + channel, 1, before, folded);
        }
    }
}

// Writes one row of an image of the folded source.
template <class T>
void StridedWinograd::fold_row(const T *source, std::int64_t image, std::int64_t row,
                               T *folded) const {
    const auto &o = options_;
    const auto &to = kernel_.options();
    const std::int64_t lanes = o.lanes, chunk = to.height * to.width * lanes;
    const std::int64_t volume = image / slices_.results(), result = image % slices_.results();
    T *line = folded + row * to.width * lanes;
    for (std::int64_t at = 0; at < ceil_div(to.channels, lanes); ++at) {
        std::fill(line + at * chunk, line + at * chunk + to.width * lanes, T{});
    }
    for (std::int64_t rows = 0; rows < slices_.taps * strides_[0]; ++rows) {
        const std::int64_t tap = rows / strides_[0], down = rows % strides_[0];
        const std::int64_t slice = result * slices_.stride + tap * slices_.dilation - slices_.front;
        const std::int64_t y = row * strides_[0] + down - o.pads[0];
        if (slice < 0 || slice >= slices_.count || y < 0 || y >= o.height) continue;
        const T *from = source + (volume * slices_.count + slice) * o.channels * o.height * o.width;
        fold_phases(from + y * o.width * (o.source_last ? o.channels : 1), rows * strides_[1],
                    line);
    }
}

template <class T>
void StridedWinograd::fold(const T *source, std::int64_t first, std::int64_t count,
                           T *folded) const {
    const auto &to = kernel_.options();
    Shares rows(count * to.height, threads());
    in_parallel(threads(), [&](int part, int) {
        for (std::int64_t row; (row = rows.next(part)) >= 0;) {
            const std::int64_t image = row / to.height;
            fold_row(source, first + image, row % to.height, folded + image * image_count(to));
        }
    });
}

void StridedWinograd::execute(const std::vector<void *> &data, void *scratchpad) const {
    const auto &group = kernel_.options();
    auto *kernel_scratch = static_cast<std::byte *>(scratchpad) + folded_nbytes();
    const std::size_t nbytes =
        kernel_.arg_desc(DNNL_ARG_DST).nbytes() / static_cast<std::size_t>(group.images);
    std::vector<void *> given = data;
    given[0] = scratchpad;
    for (std::int64_t first = 0; first < result_images(); first += group.images) {
        const std::int64_t count = std::min(group.images, result_images() - first);
        if (options_.halves.source) {
            fold(static_cast<const Bfloat16 *>(data[0]), first, count,
                 static_cast<Bfloat16 *>(scratchpad));
        } else {
            fold(static_cast<const float *>(data[0]), first, count,
                 static_cast<float *>(scratchpad));
        }
        for (const int at : images_) {
            const auto index = static_cast<std::size_t>(at);
            given[index] =
                static_cast<std::byte *>(data[index]) + static_cast<std::size_t>(first) * nbytes;
        }
        (count == group.images ? kernel_ : *rest_).execute(given, kernel_scratch);
    }
}

}  // namespace stridewise
