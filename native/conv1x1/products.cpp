#include "conv1x1/products.hpp"

#include <algorithm>

namespace stridewise {
namespace {

// Limit in bytes of weights that stay in the first-level cache beside pixels.
constexpr std::int64_t kPanelBytes = 16 << 10;
// Elements of a cache line.
constexpr std::int64_t kLine = 64 / sizeof(float);

std::int64_t nbytes_of(std::int64_t count) {
    return count * static_cast<std::int64_t>(sizeof(float));
}

// What products compute in registers, where it is free: a sum and a clip.
struct Ending {
    const std::byte *others;  // to add; or null
    bool clips;
    float low, high;
    bool is_whole;  // whether there are no further stages
};

Ending ending_of(const std::vector<Stage> &stages) {
    Ending found{};
    auto stage = stages.begin();
    if (stage != stages.end() && (stage->op == StageOp::sum || stage->op == StageOp::add)) {
        found.others = static_cast<const std::byte *>(stage++->operand);
    }
    found.clips = stage != stages.end() && stage->op == StageOp::clip;
    if (found.clips) {
        found.low = stage->alpha;
        found.high = stage++->beta;
    }
    found.is_whole = stage == stages.end();
    return found;
}

// Returns an address some bytes behind another one; null for null.
const char *address(const std::byte *from, std::int64_t nbytes) {
    return from == nullptr ? nullptr : reinterpret_cast<const char *>(from + nbytes);
}

}  // namespace

// The pixels and elements of a product, and where its results are. Before the last of its elements
// they are sums.
struct Products::Place {
    const Depth *depth;
    std::int64_t group, pair;
    std::int64_t row, column, count;
    std::int64_t offset;
};

// The order of the products of a tile.
struct Products::Loop {
    const Products &products;
    const ProductTile &tile;
    std::int64_t pairs, groups;  // groups of pixels of a row
    // Results of all outputs of a pixel are neighbors with channels last. If all weights of the
    // tile stay in the nearest cache, they are written one after the other.
    bool by_pixel;

    Loop(const Products &of, const ProductTile &on)
        : products(of),
          tile(on),
          pairs(on.pair_end - on.pair),
          groups(ceil_div(on.columns, of.rows_)),
          by_pixel(pairs * nbytes_of(of.panel_) <= kPanelBytes) {}

    std::int64_t all_groups() const { return tile.rows * groups; }
    std::int64_t size() const { return all_groups() * depth_count() * pairs; }
    std::int64_t depth_count() const { return static_cast<std::int64_t>(products.depths_.size()); }

    Place operator[](std::int64_t index) const {
        const std::int64_t all = all_groups();
        const std::int64_t group = by_pixel ? index / pairs : index % all;
        const std::int64_t depth = by_pixel ? 0 : index / all % depth_count();
        const std::int64_t pair =
            tile.pair + (by_pixel ? index % pairs : index / all / depth_count());
        const std::int64_t row = group / groups, at = group % groups;
        const std::int64_t begin = tile.columns * at / groups;
        const std::int64_t end = tile.columns * (at + 1) / groups;
        const ImageStrides &result = products.result_;
        return {&products.depths_[static_cast<std::size_t>(depth)],
                group,
                pair,
                row,
                begin,
                end - begin,
                tile.result + 2 * pair * result.chunk + row * result.row + begin * result.pixel};
    }
};

Products::Products(const Conv1x1Kernels &kernels, ProductRuns runs, std::int64_t outputs,
                   std::int64_t pixels, const ImageStrides &result, bool is_blocked,
                   HalfSides halves)
    : kernels_(&kernels),
      runs_(std::move(runs)),
      outputs_(outputs),
      pairs_(ceil_div(outputs, 2 * kernels.lanes)),
      panel_(static_cast<std::int64_t>(runs_.offsets.size()) * runs_.length * 2 * kernels.lanes),
      rows_(pixels),
      result_(result),
      is_blocked_(is_blocked),
      halves_(halves) {
    plan_depths();
}

// Products are of some whole runs, or of a part of one in whole vectors. A tile whose weights stay
// in the nearest cache has one.
void Products::plan_depths() {
    const std::int64_t wide = 2 * kernels_->lanes, lanes = kernels_->lanes;
    const auto count = static_cast<std::int64_t>(runs_.offsets.size());
    const std::int64_t parts = ceil_div(nbytes_of(runs_.length * wide), kDepthBytes);
    const std::int64_t part = ceil_div(ceil_div(runs_.length, lanes), parts) * lanes;
    const std::int64_t depths = parts > 1 ? count : ceil_div(nbytes_of(panel_), kDepthBytes);
    const std::int64_t most = ceil_div(count, std::min(depths, count));
    for (std::int64_t run = 0; run < count; run += most) {
        const std::int64_t runs = std::min(most, count - run);
        for (std::int64_t channel = 0; channel < runs_.length; channel += part) {
            const std::int64_t channels = std::min(part, runs_.length - channel);
            depths_.push_back({run, runs, channel, channels, (run * runs_.length + channel) * wide,
                               std::max<std::int64_t>(runs * (channels / lanes), 1)});
        }
    }
}

std::int64_t Products::sum_count(std::int64_t pixels) const {
    return (depths_.size() > 1 ? pixels : rows_) * 2 * kernels_->lanes;
}

// Weights that a product fetches for those after it.
struct Products::Fetched {
    const Depth *depth;        // for whose products the numbers were counted
    std::int64_t size, lines;  // elements of weights of a product, and cache lines of a chunk
};

// Describes what a product reads. Weights of a model do not stay in the caches from one call to the
// next. While products read some weights, they fetch those of the products after them, which may be
// of the next tile.
void Products::read(const Loop &loop, const Place &here, Fetched &fetched,
                    ExpandProduct &product) const {
    const ProductTile &tile = loop.tile;
    const Depth &depth = *here.depth;
    product.rows = here.count;
    product.channels = depth.channels;
    product.runs = depth.runs;
    product.offsets = runs_.offsets.data() + depth.run;
    product.weights = tile.weights + (here.pair - tile.pair) * panel_ + depth.weights;
    if (fetched.depth != here.depth) {
        const std::int64_t size = depth.runs * depth.channels * 2 * kernels_->lanes;
        const std::int64_t chunks = depth.chunks * loop.all_groups();
        fetched = {here.depth, size, loop.by_pixel ? 0 : ceil_div(size, kLine * chunks)};
    }
    const std::int64_t ahead = here.group * depth.chunks * fetched.lines * kLine;
    product.next = product.weights + fetched.size + ahead;
    const bool is_there = ahead < fetched.size && product.next < tile.weights_end;
    product.next_lines = is_there ? fetched.lines : 0;
    // Pixels come from memory when they are read for the first time.
    product.fetches = tile.fetches && here.pair == tile.pair;
    product.pixels = tile.source + here.row * tile.source_row + here.column * tile.source_pixel +
                     product.offsets[0] + depth.channel / kernels_->lanes * tile.source_chunk;
}

void Products::run(const ProductTile &tile, const std::vector<Stage> &stages,
                   std::byte *result) const {
    const std::int64_t lanes = kernels_->lanes, wide = 2 * lanes;
    const std::int64_t element = element_nbytes(halves_.result);
    const Ending ending = ending_of(stages);
    const bool rounds = halves_.result && !halves_.source;
    const Loop loop(*this, tile);
    ExpandProduct product{};
    product.chunk_stride = tile.source_chunk;
    product.pixel_stride = tile.source_pixel;
    product.low = ending.low;
    product.high = ending.high;
    FinishPixels work{};
    work.pixel = result_.pixel;
    work.half = result_.chunk;
    work.blocked = is_blocked_;
    const Stage *stages_end = stages.data() + stages.size();
    const std::int64_t total = loop.size();
    Place next = loop[0];
    Fetched fetched{};
    for (std::int64_t index = 0; index < total; ++index) {
        const Place here = next;
        const bool is_first = here.depth == &depths_.front();
        const bool is_last = here.depth == &depths_.back();
        read(loop, here, fetched, product);
        work.count = here.count;
        const std::int64_t pixel = here.row * tile.columns + here.column;
        float *own = tile.sums + (depths_.size() > 1 ? pixel * wide : 0);
        work.sums = own;
        work.lanes = std::min(outputs_ - here.pair * wide, wide);
        work.offset = here.offset;
        work.result = result + here.offset * element;
        product.start = is_first ? tile.bias + (here.pair - tile.pair) * wide : own;
        product.start_pixel = is_first ? 0 : wide;
        // Products store their results if these are whole vectors without further stages, and those
        // in float32 are not rounded.
        const bool stores = is_last && ending.is_whole && work.lanes % lanes == 0 && !rounds;
        product.others =
            stores && ending.others != nullptr ? ending.others + here.offset * element : nullptr;
        product.clips = is_last && ending.clips && (stores || ending.others == nullptr);
        work.stages = stages.data() + (product.clips ? 1 : 0);
        work.stage_count = static_cast<int>(stages_end - work.stages);
        product.results = stores ? work.result : own;
        product.result_pixel = stores ? result_.pixel : wide;
        product.result_half = stores ? result_.chunk : lanes;
        if (index + 1 < total) next = loop[index + 1];
        product.expected.rows = 0;
        if (index + 1 < total && next.depth == &depths_.back()) {
            const std::int64_t at = next.offset * element;
            product.expected = {address(result, at), address(ending.others, at),
                                result_.pixel * element, result_.chunk * element, next.count};
        }
        const auto &kernels = stores ? kernels_->store : kernels_->multiply;
        const bool is_strided = halves_.source || product.pixel_stride != lanes;
        kernels[is_strided][work.lanes > lanes](product);
        if (is_last && !stores) (rounds ? kernels_->finish_half : kernels_->finish)(work);
    }
}

}  // namespace stridewise
