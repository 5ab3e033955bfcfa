#include "winograd/weights.hpp"

#include <algorithm>

#include "support/errors.hpp"
#include "threads/regions.hpp"
#include "threads/shares.hpp"
#include "winograd/window.hpp"

namespace stridewise {
namespace {

// Transformed pixels and gradients of a block, so that they stay in the second-level caches of a
// few threads. It does not depend on the machine: the order of sums follows from it.
constexpr std::int64_t kBlockBytes = 1280 << 10;
// With fewer tiles, sums are loaded and stored too often.
constexpr std::int64_t kFewestTiles = 64;
// The same where an element of a tile takes part in so many products that transformed tiles may
// come from memory.
constexpr std::int64_t kFewestWideTiles = 256, kManyProducts = 80;
// Slices of all tiles, each with sums of its own. Adding up these sums takes less than slices save
// where sums fit into a second-level cache, and where there are two slices of `kSliceTiles` or more
// slices of `kManySliceTiles`.
constexpr std::int64_t kSliceTiles = 392, kManySliceTiles = 1568, kMostSlices = 16;
constexpr std::int64_t kMostSumsBytes = 1 << 20;
// Sums of this size would come back from memory if they were transformed at last. In their place,
// the pixels of all tiles are read for each chunk of outputs, which takes longer for many tiles.
constexpr std::int64_t kLargeSumsBytes = 8 << 20, kMostTilesByOutputs = 100;
// Tiles of one item of a transform.
constexpr std::int64_t kItemTiles = 8;
constexpr std::int64_t kLine = 64 / sizeof(float);

// An odd number of lines: places of the window, which are written together, are in different sets
// of the caches.
std::int64_t off_page(std::int64_t count) {
    return (ceil_div(count, kLine) | 1) * kLine;
}

const WinogradWeightsKernels &checked_kernels(const Winograd &forward) {
    const auto &o = forward.options();
    require(o.groups == 1 && o.pool == 1 && !o.halves.source && !o.halves.result,
            "winograd: weight gradients are of float32 images without groups or pooling");
    const WinogradWeightsKernels *found =
        winograd_weights_kernels(o.isa, o.lanes, forward.kernels().tile);
    require(found != nullptr, "winograd: there are no weight gradients for this window and tile");
    return *found;
}

}  // namespace

const WinogradWeightsKernels *winograd_weights_kernels(const std::string &isa, int lanes,
                                                       const WinogradTile &tile) {
#ifdef STRIDEWISE_AVX2
    if (isa == "avx512" || isa == "avx512_bf16") return avx512_winograd_weights(tile);
    if (isa == "avx2") return avx2_winograd_weights(tile);
#endif
    return isa == "portable" ? portable_winograd_weights(tile, lanes) : nullptr;
}

std::vector<double> winograd_transform_matrix(int places, int taps) {
    std::vector<double> matrix(static_cast<std::size_t>(places * taps));
    for (int tap = 0; tap < taps; ++tap) {
        Doubles given[WindowTransform::kMost] = {}, values[WindowTransform::kMost];
        given[tap] += 1.0;
        tap_transform(places, taps)(given, values);
        for (int place = 0; place < places; ++place) {
            matrix[static_cast<std::size_t>(place * taps + tap)] = values[place][0];
        }
    }
    return matrix;
}

// Pointers to the images, and to what one slice of the tiles has in the scratchpad.
struct WinogradWeightGradient::Call {
    const float *source, *gradient;
    float *pixels, *gradients, *sums;
};

WinogradWeightGradient::WinogradWeightGradient(Winograd forward)
    : Kernel(forward.threads(), {DNNL_ARG_SRC, DNNL_ARG_DIFF_DST, DNNL_ARG_DST}),
      forward_(std::move(forward)),
      kernels_(&checked_kernels(forward_)),
      lanes_(forward_.options().lanes),
      window_(kernels_->tile.places_high() * kernels_->tile.places_wide()),
      vertical_(winograd_transform_matrix(kernels_->tile.places_high(), kernels_->tile.taps_high)),
      horizontal_(
          winograd_transform_matrix(kernels_->tile.places_wide(), kernels_->tile.taps_wide)) {
    const auto &o = forward_.options();
    const std::int64_t chunks = ceil_div(o.channels, lanes_) + ceil_div(o.outputs, lanes_);
    const std::int64_t tile_nbytes = window_ * chunks * lanes_ * std::int64_t{sizeof(float)};
    const std::int64_t total = forward_.tile_count();
    const bool is_wide = o.channels * o.outputs / (o.channels + o.outputs) >= kManyProducts;
    const std::int64_t fewest = is_wide ? kFewestWideTiles : kFewestTiles;
    const std::int64_t most = std::max(kBlockBytes / tile_nbytes, fewest);
    sums_stride_ = ceil_div(o.channels, lanes_) * ceil_div(o.outputs, lanes_) * lanes_ * lanes_;
    if (sums_count() * std::int64_t{sizeof(float)} <= kMostSumsBytes && total >= 2 * kSliceTiles) {
        slices_ = 2;
        while (slices_ < kMostSlices && 2 * slices_ * kManySliceTiles <= total) slices_ *= 2;
    }
    const std::int64_t tiles = ceil_div(total, slices_);
    block_ = ceil_div(tiles, ceil_div(tiles, most));
    pixels_ = transformed(o.channels);
    gradients_ = transformed(o.outputs);
    is_by_outputs_ = block_ == total && total <= kMostTilesByOutputs &&
                     sums_count() * std::int64_t{sizeof(float)} > kLargeSumsBytes &&
                     gradients_.chunks >= 2 * threads();
}

WinogradWeightGradient::Transformed WinogradWeightGradient::transformed(
    std::int64_t channels) const {
    const std::int64_t chunks = ceil_div(channels, lanes_), chunk = block_ * lanes_;
    return {chunks, {off_page(chunks * chunk), chunk}};
}

std::int64_t WinogradWeightGradient::chunk_stride() const {
    return off_page(lanes_ * columns());
}

std::size_t WinogradWeightGradient::scratchpad_nbytes() const {
    const std::int64_t sums =
        is_by_outputs_ ? threads() * window_ * chunk_stride() : slices_ * sums_count();
    const std::int64_t count = blocks() * block_count() + sums;
    return static_cast<std::size_t>(count) * sizeof(float);
}

MemoryDesc WinogradWeightGradient::arg_desc(int arg) const {
    const auto &o = forward_.options();
    if (arg == DNNL_ARG_SCRATCHPAD) {
        return MemoryDesc({static_cast<std::int64_t>(scratchpad_nbytes())}, "u8", "a");
    }
    if (arg == DNNL_ARG_DST) {
        return MemoryDesc({o.outputs, o.channels, o.window[0], o.window[1]}, "f32", "abcd");
    }
    return forward_.arg_desc(arg == DNNL_ARG_DIFF_DST ? DNNL_ARG_DST : arg);
}

template <class Body>
void WinogradWeightGradient::each(std::int64_t count, const Body &body) const {
    if (works_apart()) {
        for (std::int64_t item = 0; item < count; ++item) body(item);
        return;
    }
    Shares items(count, threads());
    in_parallel(threads(), [&](int part, int) {
        for (std::int64_t item; (item = items.next(part)) >= 0;) body(item);
    });
}

// Items of adjacent chunks of the same tiles are consecutive, because they share cache lines.
void WinogradWeightGradient::transform(const Call &call, std::int64_t first,
                                       std::int64_t count) const {
    const WinogradShape &shape = forward_.shape();
    const std::int64_t chunks = pixels_.chunks + gradients_.chunks;
    each(ceil_div(count, kItemTiles) * chunks, [&](std::int64_t item) {
        const std::int64_t tile = item / chunks * kItemTiles, chunk = item % chunks;
        const std::int64_t tiles = std::min(kItemTiles, count - tile);
        const std::int64_t other = chunk - pixels_.chunks;
        if (other < 0) {
            forward_.kernels().input(shape, call.source, first + tile, tiles, chunk, chunk + 1,
                                     pixels_.tiles, call.pixels + tile * lanes_);
        } else {
            kernels_->gradient(shape, call.gradient, first + tile, tiles, other, other + 1,
                               gradients_.tiles, call.gradients + tile * lanes_);
        }
    });
}

// Products of a chunk of outputs with all channels for one place of the window.
void WinogradWeightGradient::multiply(const Call &call, std::int64_t count, bool resumes,
                                      std::int64_t xi, std::int64_t output, float *sums) const {
    WinogradOuterProduct product{};
    product.tiles = count;
    product.chunk_stride = pixels_.tiles.chunk_stride;
    product.sums_stride = columns();
    product.resumes = resumes;
    const float *gradients =
        call.gradients + xi * gradients_.tiles.xi_stride + output * gradients_.tiles.chunk_stride;
    for (std::int64_t chunk = 0; chunk < pixels_.chunks; chunk += 2) {
        product.chunks = std::min<std::int64_t>(pixels_.chunks - chunk, 2);
        product.pixels =
            call.pixels + xi * pixels_.tiles.xi_stride + chunk * pixels_.tiles.chunk_stride;
        for (std::int64_t row = 0; row < lanes_; row += kernels_->rows) {
            product.gradients = gradients + row;
            product.sums = sums + row * columns() + chunk * lanes_;
            kernels_->outer(product);
        }
    }
}

void WinogradWeightGradient::transform_sums(const float *sums, std::int64_t xi_stride,
                                            std::int64_t output, float *result) const {
    const auto &o = forward_.options();
    const std::int64_t output_count = o.channels * o.window[0] * o.window[1];
    kernels_->windows({sums, xi_stride, o.channels, vertical_.data(), horizontal_.data(),
                       result + output * output_count});
}

void WinogradWeightGradient::add_slice(const Call &call, std::int64_t slice) const {
    const std::int64_t total = forward_.tile_count();
    const std::int64_t begin = total * slice / slices_, end = total * (slice + 1) / slices_;
    for (std::int64_t first = begin; first < end; first += block_) {
        const std::int64_t count = std::min(block_, end - first);
        transform(call, first, count);
        each(window_ * gradients_.chunks, [&](std::int64_t item) {
            const std::int64_t xi = item / gradients_.chunks, output = item % gradients_.chunks;
            float *sums = call.sums + xi * sums_stride_ + output * lanes_ * columns();
            multiply(call, count, first > begin, xi, output, sums);
        });
    }
}

void WinogradWeightGradient::finish(float *sums, float *result) const {
    Shares items(forward_.outputs(), threads());
    in_parallel(threads(), [&](int part, int) {
        for (std::int64_t output; (output = items.next(part)) >= 0;) {
            float *own = sums + output * columns();
            for (std::int64_t place = 0; slices_ > 1 && place < window_; ++place) {
                float *total = own + place * sums_stride_;
                for (std::int64_t slice = 1; slice < slices_; ++slice) {
                    const float *added = total + slice * sums_count();
                    for (std::int64_t c = 0; c < columns(); ++c) total[c] += added[c];
                }
            }
            transform_sums(own, sums_stride_, output, result);
        }
    });
}

// Sums of a chunk of outputs stay in the cache of a thread until they are transformed.
void WinogradWeightGradient::by_outputs(const Call &call, float *result) const {
    const std::int64_t total = forward_.tile_count();
    transform(call, 0, total);
    Shares items(gradients_.chunks, threads());
    in_parallel(threads(), [&](int part, int) {
        float *sums = call.sums + part * window_ * chunk_stride();
        for (std::int64_t chunk; (chunk = items.next(part)) >= 0;) {
            for (std::int64_t xi = 0; xi < window_; ++xi) {
                multiply(call, total, false, xi, chunk, sums + xi * chunk_stride());
            }
            const std::int64_t first = chunk * lanes_;
            const std::int64_t count = std::min(lanes_, forward_.outputs() - first);
            for (std::int64_t row = 0; row < count; ++row) {
                transform_sums(sums + row * columns(), chunk_stride(), first + row, result);
            }
        }
    });
}

void WinogradWeightGradient::execute(const std::vector<void *> &data, void *scratchpad) const {
    auto *transformed = static_cast<float *>(scratchpad);
    float *sums = transformed + blocks() * block_count();
    const auto call_of = [&](std::int64_t slice, std::int64_t part) {
        Call call{};
        call.source = static_cast<const float *>(data[0]);
        call.gradient = static_cast<const float *>(data[1]);
        call.sums = sums + slice * sums_count();
        call.pixels = transformed + part * block_count();
        call.gradients = call.pixels + window_ * pixels_.tiles.xi_stride;
        return call;
    };
    auto *result = static_cast<float *>(data[2]);
    if (is_by_outputs_) return by_outputs(call_of(0, 0), result);
    if (works_apart()) {
        Shares items(slices_, threads());
        in_parallel(threads(), [&](int part, int) {
            for (std::int64_t slice; (slice = items.next(part)) >= 0;) {
                add_slice(call_of(slice, part), slice);
            }
        });
    } else {
        for (std::int64_t slice = 0; slice < slices_; ++slice) add_slice(call_of(slice, 0), slice);
    }
    finish(sums, result);
}

}  // namespace stridewise
