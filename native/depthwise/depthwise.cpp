#include "depthwise/depthwise.hpp"

#include <algorithm>

#include "isa/choice.hpp"
#include "post_ops/parse.hpp"
#include "support/errors.hpp"
#include "threads/regions.hpp"
#include "threads/shares.hpp"

namespace stridewise {
namespace {

// Limit in bytes of the rows of the source that a thread rereads for every pair of vectors, so that
// they stay in the second-level cache.
constexpr std::int64_t kBandBytes = 192 << 10;
// Limit in bytes of the rows between the two convolutions, so that they stay in the first-level
// cache, beside weights and pixels.
constexpr std::int64_t kRingBytes = 24 << 10;
// Limit of taps, strides and dilations along an axis.
constexpr std::int64_t kLargest = 1 << 12;
// Smallest number of results of an item along an axis. With fewer, too many pixels are computed
// twice.
constexpr std::int64_t kFewest = 7;
// Number of pieces of each thread's share. Idle threads take pieces of others.
constexpr std::int64_t kPieces = 8;
// oneDNN's block of input channels in weights.
constexpr std::int64_t kInputBlock = 16;

DepthwiseOptions checked(DepthwiseOptions o) {
    const auto known = kernel_isas(o.lanes, o.halves.source || o.halves.result);
    if (o.isa.empty()) o.isa = known.front();
    require(std::find(known.begin(), known.end(), o.isa) != known.end(),
            "depthwise: there are no " + o.isa + " kernels of " + std::to_string(o.lanes) +
                " lanes here");
    require(std::min({o.images, o.channels, o.height, o.width, o.middle, o.group}) >= 1,
            "depthwise: expected positive extents");
    require(o.expands || (o.middle % o.channels == 0 && !o.has_bias),
            "depthwise: expected a multiple of the channels, and one bias");
    require(o.lanes % o.copies() == 0 && o.lanes % o.group == 0,
            "depthwise: expected results of a group that divide the lanes of a vector");
    require(o.group == 1 || (!o.expands && o.parts.empty() && o.middle % o.group == 0 &&
                             o.channels == o.middle),
            "depthwise: expected groups of whole windows with as many channels in as out");
    require(*std::min_element(o.pads.begin(), o.pads.end()) >= 0, "depthwise: negative padding");
    for (const auto &axis : {o.deep, o.down, o.across}) {
        require(axis.taps >= 1 && axis.stride >= 1 && axis.dilation >= 1,
                "depthwise: expected positive taps, strides and dilations");
        require(
            std::max({axis.taps, axis.stride, axis.dilation}) <= kLargest,
            "depthwise: windows, strides and dilations are limited to " + std::to_string(kLargest));
    }
    require(std::max(o.pads[0], o.pads[2]) < o.down.extent() &&
                std::max(o.pads[1], o.pads[3]) < o.across.extent() &&
                std::max(o.deep_pads[0], o.deep_pads[1]) < o.deep.extent(),
            "depthwise: padding of a whole window");
    require(o.slices >= 1 && std::min(o.deep_pads[0], o.deep_pads[1]) >= 0,
            "depthwise: expected slices, and no negative padding");
    require((o.slices == 1 && o.deep.taps == 1) || (!o.expands && o.parts.empty()),
            "depthwise: volumes have no 1x1 convolution and no parts of windows");
    require(!o.multiplies_halves || (o.expands && o.halves.source && o.halves.result),
            "depthwise: products of bfloat16 are of a 1x1 convolution and tensors of bfloat16");
    require(!o.multiplies_halves || o.isa == "avx512_bf16" || o.isa == "portable",
            "depthwise: " + o.isa + " has no products of bfloat16");
    std::int64_t left = o.middle;
    for (const DepthwisePart &part : o.parts) {
        require(part.channels >= 1 && part.channels <= left && part.top >= 0 && part.left >= 0 &&
                    part.rows >= 1 && part.columns >= 1 && part.rows <= o.down.taps - part.top &&
                    part.columns <= o.across.taps - part.left,
                "depthwise: expected parts of the channels, within the window");
        left -= part.channels;
    }
    require(o.parts.empty() || left == 0, "depthwise: expected parts of all channels");
    return o;
}

}  // namespace

const DepthwiseKernels &find_depthwise_kernels([[maybe_unused]] const std::string &isa, int lanes,
                                               const DepthwiseAxis &axis, HalfSides halves) {
#ifdef STRIDEWISE_AVX2
    if (isa == "avx512_bf16" && halves.result) {
        return avx512_bf16_depthwise_kernels(axis, halves.source);
    }
    if (isa == "avx512" || isa == "avx512_bf16") return avx512_depthwise_kernels(axis, halves);
    if (isa == "avx2") return avx2_depthwise_kernels(axis, halves);
#endif
    return portable_depthwise_kernels(axis, halves, lanes);
}

struct Depthwise::Call {
    const void *source;
    const float *weights, *depthwise_weights;
    const float *bias, *depthwise_bias;  // zero-padded to whole pairs of vectors
    void *result;
};

const std::byte *Depthwise::source_at(const Call &call, std::int64_t element) const {
    return static_cast<const std::byte *>(call.source) +
           element * element_nbytes(options_.halves.source);
}

void *Depthwise::result_at(const Call &call, std::int64_t element) const {
    return static_cast<std::byte *>(call.result) + element * element_nbytes(options_.halves.result);
}

Depthwise::Depthwise(DepthwiseOptions options, const PostOps &post_ops, std::size_t between)
    : Kernel(options.threads, {DNNL_ARG_SRC, kDepthwiseWeights, DNNL_ARG_DST}),
      options_(checked(std::move(options))),
      kernels_(
          &find_depthwise_kernels(options_.isa, options_.lanes, options_.across, options_.halves)) {
    const auto &o = options_;
    const std::int64_t lanes = kernels_->lanes;
    const std::int64_t high = o.height + o.pads[0] + o.pads[2] - o.down.extent();
    const std::int64_t wide = o.width + o.pads[1] + o.pads[3] - o.across.extent();
    const std::int64_t deep = o.slices + o.deep_pads[0] + o.deep_pads[1] - o.deep.extent();
    require(std::min({deep, high, wide}) >= 0,
            "depthwise: the window does not fit into the padded source");
    out_slices_ = deep / o.deep.stride + 1;
    out_height_ = high / o.down.stride + 1;
    out_width_ = wide / o.across.stride + 1;
    chunks_ = ceil_div(o.channels, o.multiplies_halves ? 2 * lanes : lanes);
    pairs_ = ceil_div(o.middle, 2 * lanes);
    source_ = strides_of(o.channels_last, lanes, o.channels, o.slices * o.height, o.width);
    result_ = strides_of(o.channels_last, lanes, o.middle, out_slices_ * out_height_, out_width_);
    require(between <= (o.expands ? post_ops.size() : 0),
            "depthwise: expected post-ops between both");
    for (const auto &post_op : post_ops) {
        stages_.push_back(stage_of(post_op));
        require(stages_.back().op < StageOp::sum,
                "depthwise: post-ops with operands are not applied");
    }
    between_ = static_cast<int>(between);
    if (o.expands) args_.push_back(DNNL_ARG_WEIGHTS);
    if (o.has_bias) args_.push_back(DNNL_ARG_BIAS);
    if (o.has_depthwise_bias) args_.push_back(kDepthwiseBias);
    plan_taps();
    is_in_place_ =
        !o.expands && o.copies() == 1 && o.group == 1 && o.slices == 1 && o.deep.taps == 1 &&
        std::all_of(taps_.begin(), taps_.end(),
                    [](const Taps &taps) { return taps.kernels->row_in_place != nullptr; });
    plan_items();
}

// Finds the smallest part of the window with the taps of all channels of each pair.
void Depthwise::plan_taps() {
    const auto &o = options_;
    const Taps whole{0, 0, o.down.taps, o.across.taps, kernels_};
    taps_.assign(static_cast<std::size_t>(pairs_), whole);
    const std::int64_t lanes = kernels_->lanes;
    std::vector<bool> known(taps_.size());
    std::int64_t channel = 0;
    for (const DepthwisePart &part : o.parts) {
        const std::int64_t end = channel + part.channels;
        for (std::int64_t pair = channel / (2 * lanes); pair * 2 * lanes < end; ++pair) {
            const auto index = static_cast<std::size_t>(pair);
            Taps &taps = taps_[index];
            if (!known[index]) {
                known[index] = true;
                taps = {part.top, part.left, part.rows, part.columns, nullptr};
            } else {
                const std::int64_t bottom = std::max(taps.top + taps.rows, part.top + part.rows);
                const std::int64_t right =
                    std::max(taps.left + taps.columns, part.left + part.columns);
                taps.top = std::min(taps.top, part.top);
                taps.left = std::min(taps.left, part.left);
                taps.rows = bottom - taps.top;
                taps.columns = right - taps.left;
            }
            taps.kernels = &find_depthwise_kernels(
                o.isa, o.lanes, {taps.columns, o.across.stride, o.across.dilation}, o.halves);
        }
        channel = end;
    }
}

// Uses the fewest strips and bands that fit the caches, because pixels at their borders are
// computed twice. Then splits pairs until all threads have work.
void Depthwise::plan_items() {
    const auto &o = options_;
    const std::int64_t lanes = kernels_->lanes, wanted = kPieces * o.threads;
    const auto nbytes = [](std::int64_t count) {
        return count * static_cast<std::int64_t>(sizeof(float));
    };
    // The number of results along an axis that can be computed from `pixels` pixels.
    const auto results = [](const DepthwiseAxis &axis, std::int64_t pixels) {
        return std::max((pixels - axis.extent()) / axis.stride + 1, std::max(kFewest, axis.taps));
    };
    const std::int64_t columns = kRingBytes / nbytes(ring_rows() * 2 * lanes);
    strips_ = ceil_div(out_width_, results(o.across, columns));
    const std::int64_t wide = o.across.read_by(ceil_div(out_width_, strips_));
    const std::int64_t rows = kBandBytes / nbytes(chunks_ * lanes * wide);
    bands_ = o.expands ? ceil_div(out_height_, results(o.down, rows)) : 1;
    const std::int64_t cells = o.images * out_slices_ * bands_ * strips_;
    splits_ = std::clamp<std::int64_t>(ceil_div(wanted, cells), 1, pairs_);
    const std::int64_t more = ceil_div(wanted, cells * splits_);
    const std::int64_t fewest = std::max(kFewest, o.down.taps);
    bands_ = std::max(std::min(bands_ * more, ceil_div(out_height_, fewest)), bands_);
    row_count_ = whole_lines(wide * 2 * lanes);
    // One more row, of zeros, represents the padding above and below the image.
    ring_count_ = is_in_place_ ? 0 : (ring_rows() + 1) * row_count_;
    const std::int64_t high = o.down.read_by(ceil_div(out_height_, bands_));
    gathered_count_ = gathers() ? high * wide * chunks_ * lanes : 0;
    const std::int64_t pointers = window_rows() * sizeof(float *) / sizeof(float);
    thread_count_ = apart(whole_lines(ring_count_) + whole_lines(gathered_count_) + pointers);
}

Depthwise::Item Depthwise::item(std::int64_t index) const {
    const std::int64_t split = index % splits_, strip = index / splits_ % strips_;
    const std::int64_t band = index / (splits_ * strips_) % bands_;
    const std::int64_t slice = index / (splits_ * strips_ * bands_);
    return {slice / out_slices_,          slice % out_slices_,
            out_height_ * band / bands_,  out_height_ * (band + 1) / bands_,
            out_width_ * strip / strips_, out_width_ * (strip + 1) / strips_,
            pairs_ * split / splits_,     pairs_ * (split + 1) / splits_};
}

Depthwise::Region Depthwise::region(const Item &item) const {
    const auto &o = options_;
    const std::int64_t top = top_of(item.row), left = left_of(item.column);
    return {std::max<std::int64_t>(top, 0),
            std::min(top + o.down.read_by(item.row_end - item.row), o.height),
            std::max<std::int64_t>(left, 0),
            std::min(left + o.across.read_by(item.column_end - item.column), o.width)};
}

std::string Depthwise::impl() const {
    return (options_.expands ? "expand_depthwise:" : "depthwise:") + options_.isa;
}

std::size_t Depthwise::scratchpad_nbytes() const {
    const std::int64_t biases = 2 * pairs_ * 2 * kernels_->lanes;
    return static_cast<std::size_t>(apart(biases) + options_.threads * thread_count_) *
           sizeof(float);
}

MemoryDesc Depthwise::arg_desc(int arg) const {
    const auto &o = options_;
    const bool wide = kernels_->lanes == 16;
    switch (arg) {
        case DNNL_ARG_SRC:
            return image_desc({o.images, o.channels, o.slices * o.height, o.width}, o.halves.source,
                              o.channels_last, o.lanes);
        case DNNL_ARG_DST:
            return image_desc({o.images, o.middle, out_slices_ * out_height_, out_width_},
                              o.halves.result, o.channels_last, o.lanes);
        case DNNL_ARG_WEIGHTS:
            if (o.multiplies_halves) {
                return MemoryDesc({o.middle, o.channels, 1, 1}, "bf16",
                                  wide ? "ABcd8b32a2b" : "ABcd8b16a2b");
            }
            return MemoryDesc({o.middle, o.channels, 1, 1}, "f32",
                              wide ? "ABcd16b32a" : "ABcd16b16a");
        case kDepthwiseWeights:
            return MemoryDesc({o.middle, 1, o.group, window_rows(), o.across.taps}, "f32",
                              wide ? "Abcde32a" : "Abcde16a");
        case DNNL_ARG_SCRATCHPAD:
            return MemoryDesc({static_cast<std::int64_t>(scratchpad_nbytes() / sizeof(float))},
                              "f32", "a");
        default:
            require(takes(arg), "depthwise: there is no argument " + std::to_string(arg));
            return MemoryDesc({o.middle}, "f32", "a");
    }
}

// Copies the source pixels of an item into the order of products: [row][chunk][pixel][lane].
void Depthwise::gather(const Call &call, const Item &item, const Region &region,
                       float *gathered) const {
    const std::int64_t lanes = kernels_->lanes, wide = region.column_end - region.column;
    const std::int64_t pixel = source_.pixel * element_nbytes(options_.halves.source);
    auto *run = options_.multiplies_halves ? kernels_->gather_pairs : kernels_->gather_channels;
    for (std::int64_t row = region.row; row < region.row_end; ++row) {
        const std::byte *from = source_at(
            call, item.image * source_.image + row * source_.row + region.column * source_.pixel);
        float *to = gathered + (row - region.row) * chunks_ * wide * lanes;
        for (std::int64_t x = 0; x < wide; ++x, from += pixel, to += lanes) {
            run({from, source_.chunk, options_.channels, to, wide * lanes});
        }
    }
}

// Computes one row of one pair of vectors between the two convolutions.
void Depthwise::expand(const Call &call, const float *source, std::int64_t chunk_stride,
                       std::int64_t pixels, std::int64_t pair, float *row) const {
    const std::int64_t lanes = kernels_->lanes, rows = kernels_->row_count;
    // Elements are pairs of channels, or channels.
    const std::int64_t each = options_.multiplies_halves ? 2 : 1;
    const std::int64_t panel =
        ceil_div(options_.channels, kInputBlock) * kInputBlock / each * 2 * lanes;
    auto *run = options_.multiplies_halves ? kernels_->expand_pairs : kernels_->expand;
    const std::int64_t groups = ceil_div(pixels, rows);
    ExpandProduct product{};
    product.chunk_stride = chunk_stride;
    product.result_pixel = 2 * lanes;
    product.result_half = lanes;
    product.channels = ceil_div(options_.channels, each);
    product.weights = call.weights + pair * panel;
    product.start = call.bias + pair * 2 * lanes;
    // The first stage is applied in registers if it is a clip, which is free there.
    product.clips = between_ > 0 && stages_.front().op == StageOp::clip;
    if (product.clips) {
        product.low = stages_.front().alpha;
        product.high = stages_.front().beta;
    }
    for (std::int64_t group = 0; group < groups; ++group) {
        const std::int64_t begin = pixels * group / groups;
        product.rows = pixels * (group + 1) / groups - begin;
        product.pixels = source + begin * lanes;
        product.results = row + begin * 2 * lanes;
        run(product);
    }
    const int done = product.clips ? 1 : 0;
    if (between_ > done) {
        kernels_->activate(row, pixels, stages_.data() + done, between_ - done);
    }
}

void Depthwise::describe(const Item &item, DepthwiseWindows &work) const {
    const auto &o = options_;
    work.axis = o.across;
    work.weight_row = o.across.taps * 2 * kernels_->lanes;
    work.pixel = result_.pixel;
    work.half = result_.chunk;
    work.count = item.column_end - item.column;
    work.blocked = !o.channels_last;
    work.stages = stages_.data() + between_;
    work.stage_count = static_cast<int>(stages_.size()) - between_;
}

void Depthwise::describe(const Call &call, std::int64_t pair, DepthwiseWindows &work) const {
    const auto &o = options_;
    const std::int64_t wide = 2 * kernels_->lanes;
    const Taps &taps = taps_[static_cast<std::size_t>(pair)];
    const std::int64_t first_row = pair * o.group * window_rows() + taps.top;
    work.weights = call.depthwise_weights + (first_row * o.across.taps + taps.left) * wide;
    work.down = o.deep.taps * taps.rows;
    work.axis.taps = taps.columns;
    work.bias = call.depthwise_bias + pair * wide;
    work.lanes = std::min(o.middle - pair * wide, wide);
}

void Depthwise::compute_in_place(const Call &call, const Item &item, const void **rows) const {
    const auto &o = options_;
    DepthwiseInPlace work{};
    describe(item, work);
    work.rows = rows;
    work.from_pixel = source_.pixel;
    work.from_half = source_.chunk;
    work.wide = o.width;
    for (std::int64_t pair = item.pair; pair < item.pair_end; ++pair) {
        const Taps &taps = taps_[static_cast<std::size_t>(pair)];
        describe(call, pair, work);
        work.start = left_of(item.column) + taps.left * o.across.dilation;
        const float *weights = work.weights;
        for (std::int64_t out = item.row; out < item.row_end; ++out) {
            const std::int64_t top = top_of(out) + taps.top * o.down.dilation;
            // Taps above and below the image are left out.
            const std::int64_t first = top < 0 ? ceil_div(-top, o.down.dilation) : 0;
            std::int64_t count = 0;
            for (std::int64_t tap = first; tap < taps.rows; ++tap, ++count) {
                const std::int64_t row = top + tap * o.down.dilation;
                if (row >= o.height) break;
                rows[count] = source_at(call, item.image * source_.image + row * source_.row +
                                                  2 * pair * source_.chunk);
            }
            work.down = count;
            work.weights = weights + first * work.weight_row;
            work.result = result_at(call, item.image * result_.image + 2 * pair * result_.chunk +
                                              out * result_.row + item.column * result_.pixel);
            taps.kernels->row_in_place(work);
        }
    }
}

void Depthwise::fetch(const Call &call, const Item &item, const Region &region, std::int64_t row,
                      std::int64_t pair, const float *gathered, float *to) const {
    const auto &o = options_;
    const std::int64_t lanes = kernels_->lanes, wide = region.column_end - region.column;
    const std::byte *from = source_at(
        call, item.image * source_.image + row * source_.row + region.column * source_.pixel);
    if (gathers()) {
        const std::int64_t above = (row - region.row) * chunks_ * wide * lanes;
        expand(call, gathered + above, wide * lanes, wide, pair, to);
    } else if (o.expands) {
        expand(call, reinterpret_cast<const float *>(from), source_.chunk, wide, pair, to);
    } else {
        const std::int64_t channel = pair * 2 * lanes / o.copies();
        from +=
            (channel / lanes * source_.chunk + channel % lanes) * element_nbytes(o.halves.source);
        const std::int64_t valid = std::min(o.middle - pair * 2 * lanes, 2 * lanes);
        kernels_->gather(
            {from, source_.row, source_.pixel, source_.chunk, wide, valid, to, o.copies()});
    }
}

void Depthwise::compute(const Call &call, const Item &item, float *scratch) const {
    const auto &o = options_;
    const std::int64_t lanes = kernels_->lanes;
    const Region region = this->region(item);
    const std::int64_t wide = region.column_end - region.column;
    const std::int64_t margin = (region.column - left_of(item.column)) * 2 * lanes;
    const std::int64_t high = o.down.extent();  // rows of a slice that are kept
    float *ring = scratch, *gathered = ring + whole_lines(ring_count_);
    auto **rows = reinterpret_cast<const float **>(gathered + whole_lines(gathered_count_));
    const float *zeros = ring + ring_rows() * row_count_;
    for (std::int64_t row = 0; row < ring_rows(); ++row) {
        float *begin = ring + row * row_count_;
        std::fill(begin, begin + margin, 0.0F);
        std::fill(begin + margin + wide * 2 * lanes, begin + row_count_, 0.0F);
    }
    if (gathers()) gather(call, item, region, gathered);
    DepthwiseRow work{};
    describe(item, work);
    work.rows = rows;
    work.group = o.group;
    work.weight_channel = window_rows() * work.weight_row;
    const std::int64_t front = item.slice * o.deep.stride - o.deep_pads[0];
    for (std::int64_t pair = item.pair; pair < item.pair_end; ++pair) {
        const Taps &taps = taps_[static_cast<std::size_t>(pair)];
        describe(call, pair, work);
        const std::int64_t shift = taps.left * o.across.dilation * 2 * lanes;
        std::int64_t next = region.row;  // the first row that is not there
        for (std::int64_t out = item.row; out < item.row_end; ++out) {
            const std::int64_t top = top_of(out) + taps.top * o.down.dilation;
            const std::int64_t reach = (taps.rows - 1) * o.down.dilation + 1;
            const std::int64_t bottom = std::min(top + reach, o.height),
                               begin = std::max(next, top);
            for (std::int64_t tap = 0; tap < o.deep.taps; ++tap) {
                const std::int64_t slice = front + tap * o.deep.dilation;
                const bool is_there = slice >= 0 && slice < o.slices;
                float *kept = ring + tap * high * row_count_;
                for (std::int64_t row = begin; is_there && row < bottom; ++row) {
                    fetch(call, item, region, slice * o.height + row, pair, gathered,
                          kept + row % high * row_count_ + margin);
                }
                for (std::int64_t below = 0; below < taps.rows; ++below) {
                    const std::int64_t row = top + below * o.down.dilation;
                    const bool inside = is_there && row >= 0 && row < o.height;
                    rows[tap * taps.rows + below] =
                        shift + (inside ? kept + row % high * row_count_ : zeros);
                }
            }
            next = std::max(begin, bottom);
            const std::int64_t below = item.slice * out_height_ + out;
            work.result = result_at(call, item.image * result_.image + 2 * pair * result_.chunk +
                                              below * result_.row + item.column * result_.pixel);
            (o.group > 1 ? taps.kernels->row_of_groups : taps.kernels->row)(work);
        }
    }
}

void Depthwise::execute(const std::vector<void *> &data, void *scratchpad) const {
    const auto &o = options_;
    const std::int64_t count = pairs_ * 2 * kernels_->lanes;
    auto *biases = static_cast<float *>(scratchpad);
    std::fill(biases, biases + 2 * count, 0.0F);
    const auto pad = [&](std::size_t from, float *to) {
        const auto *given = static_cast<const float *>(data[from]);
        std::copy(given, given + o.middle, to);
    };
    if (o.has_bias) pad(4, biases);
    if (o.has_depthwise_bias) pad(args_.size() - 1, biases + count);
    const Call call{data[0],
                    o.expands ? static_cast<const float *>(data[3]) : nullptr,
                    static_cast<const float *>(data[1]),
                    biases,
                    biases + count,
                    data[2]};
    float *scratch = biases + apart(2 * count);
    Shares items(item_count(), o.threads);
    in_parallel(o.threads, [&](int part, int) {
        float *own = scratch + part * thread_count_;
        if (is_in_place_) {
            auto **rows = reinterpret_cast<const void **>(own);
            for (std::int64_t index; (index = items.next(part)) >= 0;) {
                compute_in_place(call, item(index), rows);
            }
            return;
        }
        std::fill(own + ring_rows() * row_count_, own + ring_count_, 0.0F);
        for (std::int64_t index; (index = items.next(part)) >= 0;) compute(call, item(index), own);
    });
}

}  // namespace stridewise
