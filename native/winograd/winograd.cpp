#include "winograd/winograd.hpp"

#include <algorithm>
#include <cstring>

#include "isa/choice.hpp"
#include "post_ops/parse.hpp"
#include "support/errors.hpp"
#include "threads/regions.hpp"
#include "threads/shares.hpp"
#include "winograd/window.hpp"

namespace stridewise {
namespace {

// Limit of the pixels, products and weights of a few groups of channels, so that they stay in the
// second-level cache.
constexpr std::int64_t kGroupBytes = 96 << 10;
// An odd number of lines: places of the window, which are written together, are in different sets.
constexpr std::int64_t kLine = 64 / sizeof(float);
// Number of tiles in one call of the output transform.
constexpr std::int64_t kOutputTiles = 8;
// Number of pieces of each thread's share of the pixels. Idle threads take pieces of others.
constexpr std::int64_t kRuns = 8;

// Rounds up to an odd number of cache lines, so that the places of the window, which are written
// together, are in different sets of the caches.
std::int64_t off_page(std::int64_t count) {
    return (ceil_div(count, kLine) | 1) * kLine;
}

std::string by(std::int64_t high, std::int64_t wide) {
    return std::to_string(high) + "x" + std::to_string(wide);
}

// A window of one column is a window of one row of the transposed image.
bool is_transposed(const WinogradOptions &options) {
    return options.window[1] == 1;
}

WinogradTile tile_of(const WinogradOptions &options) {
    auto [high, wide] = options.window;
    if (is_transposed(options)) std::swap(high, wide);
    const auto taps_high = static_cast<int>(high), taps_wide = static_cast<int>(wide);
    return {taps_high == 1 ? 1 : options.tile, options.tile, taps_high, taps_wide};
}

const WinogradKernels &find_kernels(const WinogradOptions &options) {
    const auto find = [&]() {
        const WinogradTile tile = tile_of(options);
        if (options.multiplies_halves && options.isa == "portable") {
            return portable_pair_kernels(tile, options.halves.result, options.lanes);
        }
#ifdef STRIDEWISE_AVX2
        if (options.multiplies_halves && options.isa == "avx512_bf16") {
            return avx512_bf16_pair_kernels(tile, options.halves.result);
        }
        const bool is_wide = options.isa == "avx512" || options.isa == "avx512_bf16";
        if (is_wide) return avx512_winograd_kernels(tile, options.halves);
        if (options.isa == "avx2") return avx2_winograd_kernels(tile, options.halves);
#endif
        return portable_winograd_kernels(tile, options.halves, options.lanes);
    };
    const WinogradKernels *found = find();
    require(found != nullptr, "winograd: there are no tiles of " + std::to_string(options.tile) +
                                  " for windows of " + by(options.window[0], options.window[1]));
    return *found;
}

WinogradOptions with_isa(WinogradOptions options) {
    auto known = kernel_isas(options.lanes, options.halves.source || options.halves.result);
    if (options.multiplies_halves) {
        known.erase(std::remove_if(known.begin(), known.end(),
                                   [](const std::string &isa) {
                                       return isa != "avx512_bf16" && isa != "portable";
                                   }),
                    known.end());
    }
    if (options.isa.empty()) options.isa = known.front();
    require(std::find(known.begin(), known.end(), options.isa) != known.end(),
            "winograd: there are no " + options.isa + " kernels of " +
                std::to_string(options.lanes) + " lanes here");
    return options;
}

// The number of tiles of all phases along one axis whose first result is below the extent.
std::int64_t tiles_along(std::int64_t extent, std::int64_t results, std::int64_t dilation) {
    const std::int64_t turn = results * dilation;
    return extent / turn * dilation + std::min(extent % turn, dilation);
}

WinogradShape shape_of(const WinogradOptions &options, const WinogradTile &tile,
                       std::int64_t lanes) {
    const auto &o = options;
    WinogradShape shape;
    shape.height = o.height;
    shape.width = o.width;
    shape.out_height = o.height + o.pads[0] + o.pads[2] - o.dilations[0] * (o.window[0] - 1);
    shape.out_width = o.width + o.pads[1] + o.pads[3] - o.dilations[1] * (o.window[1] - 1);
    require(shape.out_height >= 1 && shape.out_width >= 1,
            "winograd: the window does not fit into the padded source");
    shape.pad_top = o.pads[0];
    shape.pad_left = o.pads[1];
    shape.channels = o.channels;
    shape.outputs = o.outputs;
    shape.dilation_high = o.dilations[0];
    shape.dilation_wide = o.dilations[1];
    shape.source = strides_of(o.source_last, lanes, o.channels, o.height, o.width);
    shape.is_blocked = !o.source_last;
    shape.pool = o.pool;
    shape.result = strides_of(o.result_last, lanes, o.outputs, shape.out_height / o.pool,
                              shape.out_width / o.pool);
    if (is_transposed(o)) {
        std::swap(shape.height, shape.width);
        std::swap(shape.out_height, shape.out_width);
        std::swap(shape.pad_top, shape.pad_left);
        std::swap(shape.dilation_high, shape.dilation_wide);
        std::swap(shape.source.row, shape.source.pixel);
        std::swap(shape.result.row, shape.result.pixel);
    }
    shape.tiles_high = tiles_along(shape.out_height, tile.high, shape.dilation_high);
    shape.tiles_wide = tiles_along(shape.out_width, tile.wide, shape.dilation_wide);
    return shape;
}

}  // namespace

struct Winograd::Call {
    const void *source;
    const float *weights;  // of pair `first_pair` and those behind it
    std::int64_t first_pair;
    const WinogradPacker *packer;  // null unless pairs are packed one by one
    WinogradResult result;
};

Winograd::Winograd(WinogradOptions options, const PostOps &post_ops)
    : Kernel(options.threads, {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST}),
      options_(with_isa(std::move(options))),
      kernels_(&find_kernels(options_)) {
    const auto &o = options_;
    require(std::min({o.images, o.channels, o.height, o.width, o.outputs}) >= 1,
            "winograd: expected positive extents");
    require(*std::min_element(o.pads.begin(), o.pads.end()) >= 0, "winograd: negative padding");
    require(std::min(o.dilations[0], o.dilations[1]) >= 1, "winograd: expected positive dilations");
    const std::int64_t lanes = kernels_->lanes;
    require(o.pool == 1 ||
                (o.pool == 2 && kernels_->tile.high % 2 == 0 && kernels_->tile.wide % 2 == 0 &&
                 o.dilations[0] == 1 && o.dilations[1] == 1 && o.groups == 1),
            "winograd: results of these tiles are not pooled");
    require(o.groups >= 1 && o.channels % o.groups == 0 && o.outputs % o.groups == 0,
            "winograd: expected groups that divide the channels, got " + std::to_string(o.groups));
    require(
        o.groups == 1 || (o.channels / o.groups % lanes == 0 && o.outputs / o.groups % lanes == 0),
        "winograd: groups fill no whole vectors");
    require(!o.multiplies_halves || (o.halves.source && o.groups == 1),
            "winograd: products of bfloat16 are of a source of bfloat16 without groups");
    shape_ = shape_of(o, kernels_->tile, lanes);
    chunks_ = ceil_div(o.channels, lanes);
    pairs_ = ceil_div(o.outputs, 2 * lanes);
    group_chunks_ = chunks_ / o.groups;
    const std::int64_t shared = lanes / depth_lanes();  // channels of a lane
    const std::int64_t rest = ceil_div(o.channels - (chunks_ - 1) * lanes, shared);
    tail_ = ceil_div(rest, kLaneStep) * kLaneStep;
    const std::int64_t result_nbytes = o.images * o.outputs * shape_.out_height * shape_.out_width /
                                       (o.pool * o.pool) * element_nbytes(o.halves.result);
    is_large_ = result_nbytes > o.threads * caches().second;

    o.groups > 1 ? block_groups() : block_tiles();

    if (o.has_bias) args_.push_back(DNNL_ARG_BIAS);
    for (std::size_t index = 0; index < post_ops.size(); ++index) {
        stages_.push_back(stage_of(post_ops[index]));
        const bool has_operand = stages_.back().op > StageOp::sum;
        require(o.pool == 1 || stages_.back().op < StageOp::sum,
                "winograd: post-ops of pooled results have no operands");
        operands_.push_back(has_operand ? static_cast<int>(args_.size()) : -1);
        if (has_operand) args_.push_back(post_op_arg(static_cast<int>(index)));
    }
}

WinogradWork Winograd::work() const {
    // In pairs, two chunks of channels take the time and the memory of one.
    const std::int64_t chunks = ceil_div(chunks_ * depth_lanes(), kernels_->lanes);
    return {window(),        tile_count(),        chunks,          pairs_,
            kernels_->lanes, kernels_->row_count, options_.threads};
}

void Winograd::block_tiles() {
    blocking_ = choose_blocking(work(), caches());
    blocking_.depth = blocking_.depth * kernels_->lanes / depth_lanes();
    lay_out();
}

void Winograd::lay_out() {
    const std::int64_t lanes = kernels_->lanes, rows = kernels_->row_count;
    // Exactly the size that the groups of a block need, so that products read contiguous memory.
    const std::int64_t groups = ceil_div(blocking_.tiles, rows);
    group_tiles_ = ceil_div(blocking_.tiles, groups);
    transformed_.chunk_stride = group_tiles_ * depth_lanes();
    transformed_.xi_stride = off_page(groups * slot());
    pair_stride_ = blocking_.tiles * 2 * lanes;
    const bool places = blocking_.share == WinogradShare::places;
    products_stride_ = off_page((places ? pairs_ : blocking_.pairs) * pair_stride_);
    const std::int64_t products = window() * products_stride_;
    const std::int64_t pixels = window() * transformed_.xi_stride;
    const std::int64_t panels = packs_pairs_ ? blocking_.pairs * window() * panel_count() : 0;
    const bool blocks = blocking_.share == WinogradShare::blocks;
    thread_stride_ = places ? 0 : off_page(products + (blocks ? pixels : panels));
    shared_ = blocks ? 0 : places ? pixels + products : pixels;
}

bool Winograd::pack_pairs() {
    const auto nbytes = [](std::int64_t count) { return count * std::int64_t{sizeof(float)}; };
    const std::int64_t groups = ceil_div(tile_count(), std::int64_t{kernels_->row_count});
    const std::int64_t tiles = groups * kernels_->row_count;
    const std::int64_t pixels = window() * chunks_ * depth_lanes() * tiles,
                       most = caches().third / 2;
    if (options_.groups > 1 || nbytes(pairs_ * window() * panel_count()) <= most ||
        nbytes(pixels) > most || pairs_ < 2 * options_.threads) {
        return false;
    }
    packs_pairs_ = true;
    blocking_ = {tile_count(), 1, blocking_.depth, WinogradShare::outputs};
    lay_out();
    return true;
}

std::int64_t Winograd::tile_count() const {
    return options_.images * shape_.tiles_high * shape_.tiles_wide;
}

std::size_t Winograd::packed_count() const {
    const std::int64_t lanes = kernels_->lanes;
    return static_cast<std::size_t>(pairs_ * window() * group_chunks_ * lanes * 2 * lanes);
}

std::size_t Winograd::weights_nbytes() const {
    const std::int64_t taps = options_.window[0] * options_.window[1];
    const std::int64_t channels = options_.channels / options_.groups;
    return static_cast<std::size_t>(options_.outputs * channels * taps) * sizeof(float);
}

std::string Winograd::impl() const {
    std::int64_t high = kernels_->tile.high, wide = kernels_->tile.wide;
    if (is_transposed(options_)) std::swap(high, wide);
    return "winograd_" + by(high, wide) + ":" + options_.isa;
}

std::size_t Winograd::scratchpad_nbytes() const {
    const std::int64_t bias = off_page(pairs_ * 2 * kernels_->lanes);
    return static_cast<std::size_t>(bias + shared_ + options_.threads * thread_stride_) *
           sizeof(float);
}

MemoryDesc Winograd::arg_desc(int arg) const {
    if (arg == DNNL_ARG_SRC) {
        return image_desc({options_.images, options_.channels, options_.height, options_.width},
                          options_.halves.source, options_.source_last, options_.lanes);
    }
    if (arg == DNNL_ARG_WEIGHTS) {
        return MemoryDesc({static_cast<std::int64_t>(packed_count())},
                          options_.multiplies_halves ? "bf16" : "f32", "a");
    }
    if (arg == DNNL_ARG_BIAS) return MemoryDesc({options_.outputs}, "f32", "a");
    const std::size_t scratch = scratchpad_nbytes();
    if (arg == DNNL_ARG_SCRATCHPAD) {
        return MemoryDesc({static_cast<std::int64_t>(scratch / sizeof(float))}, "f32", "a");
    }
    require(takes(arg), "winograd: there is no argument " + std::to_string(arg));
    std::int64_t high = shape_.out_height / shape_.pool, wide = shape_.out_width / shape_.pool;
    if (is_transposed(options_)) std::swap(high, wide);
    return image_desc({options_.images, options_.outputs, high, wide}, options_.halves.result,
                      options_.result_last, options_.lanes);
}

// The groups of a block have nearly equal sizes: a group of one or two tiles would be limited by
// the loads of its weights.
void Winograd::transform(const Call &call, std::int64_t first, std::int64_t count,
                         std::int64_t from, std::int64_t to, float *transformed) const {
    const std::int64_t groups = ceil_div(count, group_tiles_);
    for (std::int64_t group = from / chunks_; group * chunks_ < to; ++group) {
        const std::int64_t begin = count * group / groups, end = count * (group + 1) / groups;
        const std::int64_t base = group * chunks_;
        kernels_->input(shape_, call.source, first + begin, end - begin,
                        std::max(from - base, std::int64_t{0}), std::min(to - base, chunks_),
                        transformed_, transformed + group * slot());
    }
}

// One panel of weights, its operands, and the next panel, which is prefetched meanwhile.
struct Winograd::Panel {
    const float *transformed, *weights, *next;
    float *products;
    std::int64_t count;
    std::int64_t group, group_end;  // range of groups of tiles
};

void Winograd::multiply_panel(const Panel &panel) const {
    const std::int64_t lanes = kernels_->lanes;
    const std::int64_t chunk_count = 2 * lanes * depth_lanes();
    const std::int64_t groups = ceil_div(panel.count, group_tiles_);
    const std::int64_t lines = ceil_div(chunk_count / kLine, panel.group_end - panel.group);
    for (std::int64_t chunk = 0; chunk < chunks_; chunk += blocking_.depth) {
        const std::int64_t chunks = std::min(blocking_.depth, chunks_ - chunk);
        const float *next = panel.next == nullptr ? nullptr : panel.next + chunk * chunk_count;
        const float *next_end = next == nullptr ? nullptr : next + chunks * chunk_count;
        for (std::int64_t group = panel.group; group < panel.group_end; ++group) {
            const std::int64_t begin = panel.count * group / groups;
            const std::int64_t end = panel.count * (group + 1) / groups;
            kernels_->multiply(
                {panel.transformed + group * slot() + chunk * transformed_.chunk_stride,
                 transformed_.chunk_stride, chunks,
                 chunk + chunks < chunks_ ? depth_lanes() : tail_,
                 panel.weights + chunk * chunk_count, panel.products + begin * 2 * lanes,
                 end - begin, chunk > 0, next, next < next_end ? lines : 0});
            if (next < next_end) next += chunks * lines * kLine;
        }
    }
}

void Winograd::multiply(const Call &call, std::int64_t first, std::int64_t count, std::int64_t pair,
                        std::int64_t pair_end, const float *transformed, float *products) const {
    const auto weights = [&](std::int64_t at, std::int64_t xi) {
        return call.weights + ((at - call.first_pair) * window() + xi) * panel_count();
    };
    const std::int64_t pool = options_.pool;
    const std::int64_t places = count * (kernels_->tile.high / pool) * (kernels_->tile.wide / pool);
    for (std::int64_t xi = 0; xi < window(); ++xi) {
        const std::int64_t from = places * xi / window(), to = places * (xi + 1) / window();
        for (std::int64_t at = pair; at < pair_end; ++at) {
            if (is_large_) kernels_->expect(shape_, first, from, to, at, call.result);
            const float *next = at + 1 < pair_end   ? weights(at + 1, xi)
                                : xi + 1 < window() ? weights(pair, xi + 1)
                                                    : nullptr;
            multiply_panel({transformed + xi * transformed_.xi_stride, weights(at, xi), next,
                            products + xi * products_stride_ + (at - pair) * pair_stride_, count, 0,
                            ceil_div(count, group_tiles_)});
        }
    }
}

// Output transform of a few tiles, whose pixels are adjacent if channels are last. `products` start
// at pair `begin`.
void Winograd::output(const Call &call, std::int64_t first, std::int64_t tile, std::int64_t tiles,
                      std::int64_t begin, std::int64_t end, const float *products) const {
    const float *from = products + tile * 2 * kernels_->lanes;
    for (std::int64_t at = begin; at < end; ++at, from += pair_stride_) {
        kernels_->output(shape_, from, products_stride_, first + tile, tiles, at, call.result);
    }
}

void Winograd::finish(const Call &call, std::int64_t first, std::int64_t count, std::int64_t pair,
                      std::int64_t pair_end, const float *transformed, float *products) const {
    for (std::int64_t begin = pair; begin < pair_end; begin += blocking_.pairs) {
        const std::int64_t end = std::min(begin + blocking_.pairs, pair_end);
        Call own = call;
        if (packs_pairs_) {
            float *panels = products + window() * products_stride_;
            for (std::int64_t at = begin; at < end; ++at) {
                call.packer->pack(at, panels + (at - begin) * window() * panel_count());
            }
            own.weights = panels;
            own.first_pair = begin;
        }
        multiply(own, first, count, begin, end, transformed, products);
        for (std::int64_t tile = 0; tile < count; tile += kOutputTiles) {
            output(call, first, tile, std::min(kOutputTiles, count - tile), begin, end, products);
        }
    }
}

void Winograd::by_tiles(const Call &call, float *scratch) const {
    const std::int64_t total = tile_count();
    Shares blocks(ceil_div(total, blocking_.tiles), options_.threads);
    in_parallel(options_.threads, [&](int part, int) {
        float *products = scratch + part * thread_stride_;
        float *transformed = products + window() * products_stride_;
        for (std::int64_t block; (block = blocks.next(part)) >= 0;) {
            const std::int64_t first = block * blocking_.tiles;
            const std::int64_t count = std::min(blocking_.tiles, total - first);
            transform(call, first, count, 0, ceil_div(count, group_tiles_) * chunks_, transformed);
            finish(call, first, count, 0, pairs_, transformed, products);
        }
    });
}

void Winograd::transform_together(const Call &call, std::int64_t first, std::int64_t count,
                                  float *transformed) const {
    const int threads = options_.threads;
    const std::int64_t vectors = ceil_div(count, group_tiles_) * chunks_;
    const std::int64_t runs = std::min(vectors, kRuns * threads);
    Shares sources(runs, threads);
    in_parallel(threads, [&](int part, int) {
        for (std::int64_t run; (run = sources.next(part)) >= 0;) {
            transform(call, first, count, vectors * run / runs, vectors * (run + 1) / runs,
                      transformed);
        }
    });
}

void Winograd::by_outputs(const Call &call, float *scratch) const {
    const std::int64_t total = tile_count();
    const int threads = options_.threads;
    float *transformed = scratch + threads * thread_stride_;
    const std::int64_t passes = threads * ceil_div(ceil_div(pairs_, threads), blocking_.pairs);
    for (std::int64_t first = 0; first < total; first += blocking_.tiles) {
        const std::int64_t count = std::min(blocking_.tiles, total - first);
        transform_together(call, first, count, transformed);
        Shares results(passes, threads);
        in_parallel(threads, [&](int part, int) {
            for (std::int64_t pass; (pass = results.next(part)) >= 0;) {
                finish(call, first, count, pairs_ * pass / passes, pairs_ * (pass + 1) / passes,
                       transformed, scratch + part * thread_stride_);
            }
        });
    }
}

void Winograd::by_places(const Call &call, float *scratch) const {
    const std::int64_t total = tile_count(), lanes = kernels_->lanes;
    const int threads = options_.threads;
    float *transformed = scratch, *products = scratch + window() * transformed_.xi_stride;
    const std::int64_t passes = ceil_div(pairs_, blocking_.pairs);
    for (std::int64_t first = 0; first < total; first += blocking_.tiles) {
        const std::int64_t count = std::min(blocking_.tiles, total - first);
        transform_together(call, first, count, transformed);
        const std::int64_t groups = ceil_div(count, group_tiles_);
        const std::int64_t cuts = std::min(blocking_.cuts, groups);
        // Items of one place are consecutive, because they read the same pixels.
        Shares items(window() * passes * cuts, threads);
        in_parallel(threads, [&](int part, int) {
            for (std::int64_t item; (item = items.next(part)) >= 0;) {
                const std::int64_t cut = item % cuts, pass = item / cuts % passes;
                const std::int64_t xi = item / (cuts * passes);
                for (std::int64_t pair = pairs_ * pass / passes;
                     pair < pairs_ * (pass + 1) / passes; ++pair) {
                    const std::int64_t panel =
                        (pair * window() + xi) * chunks_ * depth_lanes() * 2 * lanes;
                    multiply_panel({transformed + xi * transformed_.xi_stride, call.weights + panel,
                                    nullptr, products + xi * products_stride_ + pair * pair_stride_,
                                    count, groups * cut / cuts, groups * (cut + 1) / cuts});
                }
            }
        });
        const std::int64_t runs = ceil_div(count, kOutputTiles);
        const std::int64_t parts = std::min(pairs_, ceil_div(kRuns * threads, runs));
        Shares results(runs * parts, threads);
        in_parallel(threads, [&](int part, int) {
            for (std::int64_t item; (item = results.next(part)) >= 0;) {
                const std::int64_t tile = item / parts * kOutputTiles;
                const std::int64_t begin = pairs_ * (item % parts) / parts;
                output(call, first, tile, std::min(kOutputTiles, count - tile), begin,
                       pairs_ * (item % parts + 1) / parts, products + begin * pair_stride_);
            }
        });
    }
}

void Winograd::block_groups() {
    const std::int64_t lanes = kernels_->lanes, rows = kernels_->row_count;
    const std::int64_t vectors = options_.outputs / options_.groups / lanes;
    const std::int64_t groups = vectors % 2 == 0 ? 1 : 2;
    unit_chunks_ = groups * group_chunks_;
    unit_pairs_ = ceil_div(groups * vectors, 2);
    const std::int64_t tile_bytes = window() * unit_chunks_ * lanes * std::int64_t{sizeof(float)};
    const std::int64_t most = std::max(kGroupBytes / tile_bytes / rows, std::int64_t{1}) * rows;
    const std::int64_t tiles = ceil_div(std::min(most, tile_count()), rows) * rows;
    blocking_ = {tiles, 1, group_chunks_, WinogradShare::blocks};
    transformed_.chunk_stride = tiles * lanes;
    transformed_.xi_stride = off_page(unit_chunks_ * tiles * lanes);
    pair_stride_ = tiles * 2 * lanes;
    products_stride_ = off_page(pair_stride_);
    thread_stride_ = off_page(window() * (products_stride_ + transformed_.xi_stride));
}

// Like finish() for one pair, with transformed pixels from `chunk` on. The two vectors of a pair
// may belong to two groups.
void Winograd::multiply_groups(const Call &call, std::int64_t first, std::int64_t count,
                               std::int64_t pair, std::int64_t chunk, const float *transformed,
                               float *products) const {
    const std::int64_t lanes = kernels_->lanes, rows = kernels_->row_count;
    const std::int64_t panel = group_chunks_ * lanes * 2 * lanes;
    const std::int64_t vectors = options_.outputs / options_.groups / lanes;
    const auto pixels_of = [&](std::int64_t vector) {
        const std::int64_t group = std::min(vector / vectors, options_.groups - 1);
        return transformed + (group * group_chunks_ - chunk) * transformed_.chunk_stride;
    };
    const float *low = pixels_of(2 * pair), *high = pixels_of(2 * pair + 1);
    for (std::int64_t xi = 0; xi < window(); ++xi) {
        const float *weights = call.weights + (pair * window() + xi) * panel;
        for (std::int64_t begin = 0; begin < count; begin += rows) {
            const std::int64_t from = xi * transformed_.xi_stride + begin * lanes;
            kernels_->multiply_groups(low + from, high + from, transformed_.chunk_stride,
                                      group_chunks_, weights,
                                      products + xi * products_stride_ + begin * 2 * lanes,
                                      std::min(rows, count - begin));
        }
    }
    kernels_->output(shape_, products, products_stride_, first, count, pair, call.result);
}

void Winograd::by_groups(const Call &call, float *scratch) const {
    const std::int64_t total = tile_count(), blocks = ceil_div(total, blocking_.tiles);
    Shares parcels(ceil_div(pairs_, unit_pairs_) * blocks, options_.threads);
    in_parallel(options_.threads, [&](int part, int) {
        float *products = scratch + part * thread_stride_;
        float *transformed = products + window() * products_stride_;
        for (std::int64_t parcel; (parcel = parcels.next(part)) >= 0;) {
            const std::int64_t unit = parcel / blocks, first = parcel % blocks * blocking_.tiles;
            const std::int64_t count = std::min(blocking_.tiles, total - first);
            const std::int64_t chunk = unit * unit_chunks_;
            const std::int64_t chunks = std::min(unit_chunks_, chunks_ - chunk);
            const auto *source =
                static_cast<const std::byte *>(call.source) +
                chunk * shape_.source.chunk * element_nbytes(options_.halves.source);
            kernels_->input(shape_, source, first, count, 0, chunks, transformed_, transformed);
            const std::int64_t pair_end = std::min((unit + 1) * unit_pairs_, pairs_);
            for (std::int64_t pair = unit * unit_pairs_; pair < pair_end; ++pair) {
                multiply_groups(call, first, count, pair, chunk, transformed, products);
            }
        }
    });
}

void Winograd::execute(const std::vector<void *> &data, void *scratchpad) const {
    execute(data, scratchpad, nullptr);
}

void Winograd::execute(const std::vector<void *> &data, void *scratchpad,
                       const WinogradPacker *packer) const {
    auto *bias = static_cast<float *>(scratchpad);
    const std::int64_t outputs = pairs_ * 2 * kernels_->lanes;
    std::fill(bias, bias + outputs, 0.0F);
    if (options_.has_bias) {
        const auto *given = static_cast<const float *>(data[3]);
        std::copy(given, given + options_.outputs, bias);
    }
    std::vector<Stage> stages = stages_;
    for (std::size_t index = 0; index < stages.size(); ++index) {
        if (operands_[index] >= 0) {
            stages[index].operand = data[static_cast<std::size_t>(operands_[index])];
        }
    }
    Call call{};
    call.source = data[0];
    call.weights = static_cast<const float *>(data[1]);
    call.packer = packer;
    call.result = {data[2], bias, stages.data(), static_cast<int>(stages.size()),
                   !options_.result_last};
    float *scratch = bias + off_page(outputs);
    if (options_.groups > 1) return by_groups(call, scratch);
    switch (blocking_.share) {
        case WinogradShare::blocks:
            return by_tiles(call, scratch);
        case WinogradShare::outputs:
            return by_outputs(call, scratch);
        case WinogradShare::places:
            return by_places(call, scratch);
    }
}

}  // namespace stridewise
