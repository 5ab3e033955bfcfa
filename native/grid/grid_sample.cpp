#include "grid/grid_sample.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include "support/images.hpp"
#include "threads/regions.hpp"

namespace stridewise {
namespace {

constexpr std::int64_t kPoints = 32;  // at a time
constexpr std::int64_t kMostAxes = 3, kMostTaps = 64;
constexpr std::int64_t kAtOnce = 4;  // taps

// A pixel along an axis, -1 if there is none, and its weight.
struct Tap {
    std::int64_t index;
    float weight;
};

std::int64_t product(const std::vector<std::int64_t> &extents) {
    return std::accumulate(extents.begin(), extents.end(), std::int64_t{1},
                           std::multiplies<std::int64_t>());
}

// Pixels along an axis that a result is interpolated from.
constexpr std::int64_t taps_of(GridMode mode) {
    return mode == GridMode::nearest ? 1 : mode == GridMode::linear ? 2 : 4;
}

GridBorder border_of(const std::string &name) {
    if (name == "zeros") return GridBorder::zeros;
    if (name == "border") return GridBorder::border;
    require(name == "reflection", "grid_sample: expected zeros, border or reflection, got " + name);
    return GridBorder::reflection;
}

// std::rint and std::floor, which are calls of functions on old processors. Beyond the limit and
// for NaN, all numbers are whole.
constexpr float kWhole = 4194304.0F;  // 2^22

float rounded(float x) {
    constexpr float kShift = 12582912.0F;  // 1.5 * 2^23: sums with it have no fractions
    return std::fabs(x) < kWhole ? (x + kShift) - kShift : std::rint(x);
}

float floored(float x) {
    if (!(std::fabs(x) < kWhole)) return std::floor(x);
    const auto whole = static_cast<float>(static_cast<std::int32_t>(x));
    return whole > x ? whole - 1 : whole;
}

// Reflects a place at the borders until it lies inside.
float mirrored(float place, std::int64_t extent, bool aligns_corners) {
    const auto most = static_cast<float>(extent);
    const float low = aligns_corners ? 0.0F : -0.5F;
    const float span = (aligns_corners ? most - 1 : most - 0.5F) - low;
    if (span <= 0) return low;
    const float away = std::fmod(std::fabs(place - low), 2 * span);
    return low + (away > span ? 2 * span - away : away);
}

// One axis of an image, and how places along it are read.
template <GridMode kMode>
struct Axis {
    std::int64_t extent;
    GridBorder border;
    bool aligns_corners;

    // Writes the taps at a coordinate in [-1, 1].
    void read(float coordinate, Tap *found) const {
        const float place = moved(coordinate);
        if constexpr (kMode == GridMode::nearest) {
            found[0] = resolved(rounded(place), 1);
            return;
        }
        const float low = floored(place), t = place - low;
        if constexpr (kMode == GridMode::linear) {
            found[0] = resolved(low, 1 - t);
            found[1] = resolved(low + 1, t);
        } else {
            found[0] = resolved(low - 1, far(1 + t));
            found[1] = resolved(low, near(t));
            found[2] = resolved(low + 1, near(1 - t));
            found[3] = resolved(low + 2, far(2 - t));
        }
    }

    // The place of a coordinate, wherever it is.
    float unmoved(float coordinate) const {
        const auto most = static_cast<float>(extent);
        return aligns_corners ? (coordinate + 1) / 2 * (most - 1)
                              : ((coordinate + 1) * most - 1) / 2;
    }

  private:
    // Keys (1981): one polynomial near the center, another one beyond.
    static constexpr float kCubic = -0.75F;
    static float near(float d) { return ((kCubic + 2) * d - (kCubic + 3)) * d * d + 1; }
    static float far(float d) {
        return ((kCubic * d - 5 * kCubic) * d + 8 * kCubic) * d - 4 * kCubic;
    }

    float moved(float coordinate) const {
        const auto most = static_cast<float>(extent);
        float place = unmoved(coordinate);
        if (kMode == GridMode::nearest) place = rounded(place);
        if (border == GridBorder::reflection) return mirrored(place, extent, aligns_corners);
        if (border == GridBorder::zeros) return place;
        // In cubic interpolation, taps beyond the edge count as the edge. NaN remains.
        return place < -3 ? -3 : place > most + 2 ? most + 2 : place;
    }

    Tap resolved(float index, float weight) const {
        if (border == GridBorder::reflection) {
            index = std::trunc(mirrored(index, extent, aligns_corners));
        }
        // A place that is no number lies nowhere.
        const bool is_inside = index >= 0 && index < static_cast<float>(extent);
        if (is_inside) return {static_cast<std::int64_t>(index), weight};
        if (border == GridBorder::zeros) return {-1, 0};
        return {index > 0 ? extent - 1 : 0, weight};
    }
};

// Multiplies taps of some axes with those of one more. The results take their place.
std::int64_t add_axis(std::int64_t *offsets, float *weights, std::int64_t found,
                      std::int64_t extent, const Tap *along, std::int64_t count) {
    // Backwards, because each tap becomes several.
    for (std::int64_t k = found - 1; k >= 0; --k) {
        const std::int64_t offset = offsets[k] * extent;
        const float weight = weights[k];
        for (std::int64_t j = 0; j < count; ++j) {
            offsets[k * count + j] = offset + along[j].index;
            weights[k * count + j] = weight * along[j].weight;
        }
    }
    return found * count;
}

// Returns the channels of a chunk of neighbors in memory; 0 for formats without a kernel. Images of
// one pixel have several formats, so both tensors decide.
std::int64_t neighbors(const MemoryDesc &src, const MemoryDesc &dst) {
    const std::string axes = std::string("cde").substr(0, src.dims().size() - 2);
    const auto are_stored_as = [&](const std::string &tag) {
        return src == MemoryDesc(src.dims(), "f32", tag) &&
               dst == MemoryDesc(dst.dims(), "f32", tag);
    };
    if (are_stored_as("ab" + axes)) return 1;
    if (are_stored_as("a" + axes + "b")) return src.dims()[1];
    if (are_stored_as("aB" + axes + "8b")) return 8;
    if (are_stored_as("aB" + axes + "16b")) return 16;
    return 0;
}

}  // namespace

// Offsets of pixels and their weights, for each point.
struct GridSample::Taps {
    std::int64_t counts[kPoints];
    std::int64_t offsets[kPoints][kMostTaps];
    float weights[kPoints][kMostTaps];
};

// Most points lie between four pixels, none of which needs a border.
inline bool GridSample::find_inside(const float *coordinates, std::int64_t *offsets,
                                    float *weights) const {
    const std::int64_t height = extents_[0], width = extents_[1];
    const Axis<GridMode::linear> rows{height, border_, aligns_corners_};
    const Axis<GridMode::linear> columns{width, border_, aligns_corners_};
    const float y = rows.unmoved(coordinates[1]), x = columns.unmoved(coordinates[0]);
    // Coordinates that are no numbers are not inside.
    if (!(y >= 0 && y < static_cast<float>(height - 1) && x >= 0 &&
          x < static_cast<float>(width - 1))) {
        return false;
    }
    const auto row = static_cast<std::int32_t>(y), column = static_cast<std::int32_t>(x);
    const float down = y - static_cast<float>(row), right = x - static_cast<float>(column);
    const std::int64_t first = (std::int64_t{row} * width + column) * width_;
    offsets[0] = first;
    offsets[1] = first + width_;
    offsets[2] = first + width * width_;
    offsets[3] = offsets[2] + width_;
    weights[0] = (1 - down) * (1 - right);
    weights[1] = (1 - down) * right;
    weights[2] = down * (1 - right);
    weights[3] = down * right;
    return true;
}

template <GridMode kMode, std::int64_t kAxes>
void GridSample::find(const float *coordinates, std::int64_t count, Taps &taps) const {
    constexpr std::int64_t kTaps = taps_of(kMode);
    for (std::int64_t point = 0; point < count; ++point, coordinates += kAxes) {
        std::int64_t *offsets = taps.offsets[point];
        float *weights = taps.weights[point];
        if constexpr (kMode == GridMode::linear && kAxes == 2) {
            if (find_inside(coordinates, offsets, weights)) {
                taps.counts[point] = kTaps * kTaps;
                continue;
            }
        }
        offsets[0] = 0;
        weights[0] = 1;
        std::int64_t found = 1;
        for (std::int64_t i = 0; i < kAxes; ++i) {
            const Axis<kMode> axis{extents_[static_cast<std::size_t>(i)], border_, aligns_corners_};
            Tap along[kTaps];
            axis.read(coordinates[kAxes - 1 - i], along);
            Tap *const end =
                std::remove_if(along, along + kTaps, [](const Tap &tap) { return tap.index < 0; });
            // The usual number of taps is a constant, so that loops are unrolled.
            found = end == along + kTaps
                        ? add_axis(offsets, weights, found, axis.extent, along, kTaps)
                        : add_axis(offsets, weights, found, axis.extent, along, end - along);
        }
        taps.counts[point] = found;
        for (std::int64_t k = 0; k < found; ++k) offsets[k] *= width_;
    }
}

template <GridMode kMode>
GridSample::Find GridSample::finder(std::size_t axes) {
    if (axes == 1) return &GridSample::find<kMode, 1>;
    return axes == 2 ? &GridSample::find<kMode, 2> : &GridSample::find<kMode, 3>;
}

GridSample::GridSample(const std::string &mode, const std::string &border, bool aligns_corners,
                       const MemoryDesc &src, const MemoryDesc &grid, const MemoryDesc &dst,
                       int threads)
    : Kernel(threads, {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST}),
      border_(border_of(border)),
      aligns_corners_(aligns_corners),
      src_(src),
      grid_(grid),
      dst_(dst) {
    const Dims from = src.dims(), to = dst.dims();
    const std::size_t axes = from.size() < 2 ? 0 : from.size() - 2;
    require(axes >= 1 && axes <= kMostAxes && to.size() == from.size() && from[0] == to[0] &&
                from[1] == to[1] && *std::min_element(from.begin(), from.end()) >= 1 &&
                *std::min_element(to.begin(), to.end()) >= 1,
            "grid_sample: expected images of one to three axes with the same batch and channels, "
            "got " +
                src.repr() + " and " + dst.repr());
    Dims places{to[0]};
    places.insert(places.end(), to.begin() + 2, to.end());
    places.push_back(static_cast<std::int64_t>(axes));
    const std::string tag = std::string("abcde").substr(0, places.size());
    require(grid == MemoryDesc(places, "f32", tag),
            "grid_sample: expected a dense grid of coordinates of each result, got " + grid.repr());
    const std::int64_t width = neighbors(src, dst);
    require(width != 0,
            "grid_sample: expected float32 in one format, plain, channels last or in blocks of 8 "
            "or 16, got " +
                src.repr() + " and " + dst.repr());
    extents_.assign(from.begin() + 2, from.end());
    batch_ = from[0];
    pixels_ = product(extents_);
    points_ = product({to.begin() + 2, to.end()});
    width_ = width;
    chunks_ = ceil_div(from[1], width);
    require(mode == "linear" || mode == "nearest" || mode == "cubic",
            "grid_sample: expected linear, nearest or cubic, got " + mode);
    find_ = mode == "linear"    ? finder<GridMode::linear>(axes)
            : mode == "nearest" ? finder<GridMode::nearest>(axes)
                                : finder<GridMode::cubic>(axes);
}

MemoryDesc GridSample::arg_desc(int arg) const {
    if (arg == DNNL_ARG_SRC) return src_;
    if (arg == DNNL_ARG_WEIGHTS) return grid_;
    require(arg == DNNL_ARG_DST, "grid_sample: there is no argument " + std::to_string(arg));
    return dst_;
}

void GridSample::interpolate(const float *image, float *result, std::int64_t first,
                             std::int64_t count, const Taps &taps) const {
    for (std::int64_t chunk = 0; chunk < chunks_; ++chunk) {
        const float *from = image + chunk * pixels_ * width_;
        float *to = result + (chunk * points_ + first) * width_;
        for (std::int64_t point = 0; point < count; ++point, to += width_) {
            const std::int64_t *offsets = taps.offsets[point];
            const float *weights = taps.weights[point];
            const std::int64_t found = taps.counts[point], whole = found / kAtOnce * kAtOnce;
            if (width_ == 1) {
                float sum = 0;
                const auto add = [&](std::int64_t k) { sum += weights[k] * from[offsets[k]]; };
                if (found == kAtOnce) {
                    for (std::int64_t k = 0; k < kAtOnce; ++k) add(k);
                } else {
                    for (std::int64_t k = 0; k < found; ++k) add(k);
                }
                *to = sum;
                continue;
            }
            std::fill(to, to + width_, 0.0F);
            for (std::int64_t k = 0; k < whole; k += kAtOnce) {
                const float *a = from + offsets[k], *b = from + offsets[k + 1];
                const float *c = from + offsets[k + 2], *d = from + offsets[k + 3];
                const float *w = weights + k;
                for (std::int64_t j = 0; j < width_; ++j) {
                    to[j] += w[0] * a[j] + w[1] * b[j] + (w[2] * c[j] + w[3] * d[j]);
                }
            }
            for (std::int64_t k = whole; k < found; ++k) {
                const float *a = from + offsets[k];
                for (std::int64_t j = 0; j < width_; ++j) to[j] += weights[k] * a[j];
            }
        }
    }
}

void GridSample::execute(const std::vector<void *> &data, void *) const {
    const auto *src = static_cast<const float *>(data[0]);
    const auto *grid = static_cast<const float *>(data[1]);
    auto *dst = static_cast<float *>(data[2]);
    const auto axes = static_cast<std::int64_t>(extents_.size());
    const std::int64_t parts_of_image = ceil_div(points_, kPoints);
    const std::int64_t total = batch_ * parts_of_image;
    in_parallel(threads_, [&](int part, int parts) {
        Taps taps;
        for (std::int64_t i = total * part / parts; i < total * (part + 1) / parts; ++i) {
            const std::int64_t item = i / parts_of_image, first = i % parts_of_image * kPoints;
            const std::int64_t count = std::min(kPoints, points_ - first);
            (this->*find_)(grid + (item * points_ + first) * axes, count, taps);
            interpolate(src + item * chunks_ * width_ * pixels_,
                        dst + item * chunks_ * width_ * points_, first, count, taps);
        }
    });
}

}  // namespace stridewise
