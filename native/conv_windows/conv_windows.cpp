#include "conv_windows/conv_windows.hpp"

#include <algorithm>
#include <utility>

#include "isa/choice.hpp"
#include "post_ops/parse.hpp"
#include "support/caches.hpp"
#include "support/errors.hpp"
#include "threads/regions.hpp"
#include "threads/shares.hpp"

namespace stridewise {
namespace {

// Number of pieces of each thread's share. Idle threads take pieces of others.
constexpr std::int64_t kPieces = 4;
// Limit of taps, strides and dilations along an axis.
constexpr std::int64_t kLargest = 1 << 12;

std::int64_t nbytes_of(std::int64_t count) {
    return count * static_cast<std::int64_t>(sizeof(float));
}

ConvWindowsOptions checked(ConvWindowsOptions o) {
    const auto known = kernel_isas(o.lanes);
    if (o.isa.empty()) o.isa = known.front();
    require(std::find(known.begin(), known.end(), o.isa) != known.end(),
            "conv_windows: there are no " + o.isa + " kernels of " + std::to_string(o.lanes) +
                " lanes here");
    require(std::min({o.images, o.channels, o.height, o.width, o.outputs}) >= 1,
            "conv_windows: expected positive extents");
    for (const auto &axis : {o.down, o.across}) {
        require(std::min({axis.taps, axis.stride, axis.dilation}) >= 1 &&
                    std::max({axis.taps, axis.stride, axis.dilation}) <= kLargest,
                "conv_windows: expected taps, strides and dilations from 1 to " +
                    std::to_string(kLargest));
    }
    require(*std::min_element(o.pads.begin(), o.pads.end()) >= 0 &&
                *std::max_element(o.pads.begin(), o.pads.end()) <= kLargest,
            "conv_windows: expected padding from 0 to " + std::to_string(kLargest));
    require(o.height + o.pads[0] + o.pads[2] >= o.down.extent() &&
                o.width + o.pads[1] + o.pads[3] >= o.across.extent(),
            "conv_windows: the window exceeds the padded source");
    return o;
}

// A single channel is first and last. A column is a row where windows have one column.
ConvWindowsOptions simplified(ConvWindowsOptions o) {
    o.source_last = o.source_last || o.channels == 1;
    if (o.width == 1 && o.across.taps == 1 && o.pads[1] + o.pads[3] == 0) {
        std::swap(o.height, o.width);
        std::swap(o.down, o.across);
        std::swap(o.pads[0], o.pads[1]);
        std::swap(o.pads[2], o.pads[3]);
    }
    return o;
}

const Conv1x1Kernels &find_kernels(const ConvWindowsOptions &options) {
#ifdef STRIDEWISE_AVX2
    if (options.isa == "avx512") return avx512_conv1x1_kernels();
    if (options.isa == "avx2") return avx2_conv1x1_kernels();
#endif
    return portable_conv1x1_kernels(options.lanes);
}

}  // namespace

struct ConvWindows::Call {
    const std::byte *source;
    const float *weights;
    const float *bias;  // zero-padded to whole pairs of vectors
    std::byte *result;
    const std::vector<Stage> *stages;
};

ConvWindows::ConvWindows(ConvWindowsOptions options, const PostOps &post_ops)
    : Kernel(options.threads, {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST}),
      given_(checked(std::move(options))),
      kernels_(&find_kernels(given_)) {
    options_ = simplified(given_);
    const auto &o = options_;
    height_ = (o.height + o.pads[0] + o.pads[2] - o.down.extent()) / o.down.stride + 1;
    width_ = (o.width + o.pads[1] + o.pads[3] - o.across.extent()) / o.across.stride + 1;
    pairs_ = ceil_div(o.outputs, 2 * kernels_->lanes);
    has_dots_ = o.outputs <= kMostDots;
    source_ = strides_of(true, kernels_->lanes, o.channels, o.height, o.width);
    result_ = strides_of(o.result_last, kernels_->lanes, o.outputs, height_, width_);
    is_direct_ = o.source_last && !o.halves.source && o.pads == std::array<std::int64_t, 4>{};
    if (o.has_bias) args_.push_back(DNNL_ARG_BIAS);
    plan_stages(post_ops);
    plan_items();
    plan_products();
}

void ConvWindows::plan_stages(const PostOps &post_ops) {
    for (std::size_t index = 0; index < post_ops.size(); ++index) {
        const Stage stage = stage_of(post_ops[index]);
        stages_.push_back(stage);
        operands_.push_back(stage.op < StageOp::sum    ? -1
                            : stage.op == StageOp::sum ? 2
                                                       : static_cast<int>(args_.size()));
        if (stage.op > StageOp::sum) args_.push_back(post_op_arg(static_cast<int>(index)));
    }
}

std::int64_t ConvWindows::pitch_of(std::int64_t columns) const {
    return options_.across.read_by(columns) * options_.channels;
}

// Tiles of results whose windows stay in the second-level cache. If they are too few for the
// threads, they are cut further, or outputs are: whichever of source and weights is smaller is read
// several times.
void ConvWindows::plan_items() {
    const auto &o = options_;
    const std::int64_t pixels = kernels_->row_count;
    const std::int64_t band = caches().second / 2 - Products::kDepthBytes;
    const auto fits = [&](std::int64_t rows, std::int64_t columns) {
        return nbytes_of(copied_by(rows) * pitch_of(columns)) <= band;
    };
    cuts_ = bands_ = 1;
    while (!fits(1, ceil_div(width_, cuts_)) && cuts_ < ceil_div(width_, pixels)) ++cuts_;
    while (!fits(ceil_div(height_, bands_), ceil_div(width_, cuts_)) && bands_ < height_) ++bands_;
    const std::int64_t wanted = o.threads == 1 ? 1 : kPieces * o.threads;
    const auto split_pixels = [&](std::int64_t count) {
        bands_ = std::max(bands_, std::min(ceil_div(count, cuts_), height_));
        const std::int64_t most = ceil_div(width_, 2 * pixels);
        cuts_ = std::max(cuts_, std::min(ceil_div(count, bands_), most));
    };
    const std::int64_t window = o.down.taps * o.across.taps * o.channels;
    const bool weighs_more = o.outputs * window > o.channels * o.height * o.width;
    split_pixels(ceil_div(weighs_more ? o.threads : wanted, o.images));
    splits_ = std::clamp<std::int64_t>(ceil_div(wanted, o.images * bands_ * cuts_), 1, pairs_);
    split_pixels(ceil_div(wanted, o.images * splits_));
}

void ConvWindows::plan_products() {
    const auto &o = options_;
    const std::int64_t rows = ceil_div(height_, bands_), columns = ceil_div(width_, cuts_);
    pitch_ = is_direct_ ? source_.row : pitch_of(columns);
    copied_count_ = is_direct_ ? 0 : copied_by(rows) * pitch_;
    const bool is_whole = o.across.dilation == 1;  // whether rows of the window are runs
    ProductRuns runs{is_whole ? o.across.taps * o.channels : o.channels, {}};
    for (std::int64_t down = 0; down < o.down.taps; ++down) {
        for (std::int64_t tap = 0; tap < (is_whole ? 1 : o.across.taps); ++tap) {
            runs.offsets.push_back(down * o.down.dilation * pitch_ +
                                   tap * o.across.dilation * o.channels);
        }
    }
    // Copies are float32.
    products_.emplace(*kernels_, std::move(runs), o.outputs, kernels_->row_count, result_,
                      !o.result_last, HalfSides{false, o.halves.result});
    const std::int64_t sums =
        has_dots_ ? kMostDotRows * 2 * kernels_->lanes : products_->sum_count(rows * columns);
    thread_count_ = apart(whole_lines(copied_count_) + sums);
}

// Items of the same pixels are neighbors.
ConvWindows::Item ConvWindows::item(std::int64_t index) const {
    const std::int64_t split = index % splits_, tile = index / splits_;
    const std::int64_t cut = tile % cuts_, band = tile / cuts_ % bands_;
    return {tile / cuts_ / bands_,         height_ * band / bands_,
            height_ * (band + 1) / bands_, width_ * cut / cuts_,
            width_ * (cut + 1) / cuts_,    pairs_ * split / splits_,
            pairs_ * (split + 1) / splits_};
}

std::size_t ConvWindows::scratchpad_nbytes() const {
    const std::int64_t bias = apart(pairs_ * 2 * kernels_->lanes);
    return static_cast<std::size_t>(bias + options_.threads * thread_count_) * sizeof(float);
}

MemoryDesc ConvWindows::arg_desc(int arg) const {
    const auto &o = given_;
    switch (arg) {
        case DNNL_ARG_SRC:
            return MemoryDesc({o.images, o.channels, o.height, o.width},
                              o.halves.source ? "bf16" : "f32", o.source_last ? "acdb" : "abcd");
        case DNNL_ARG_WEIGHTS:
            return MemoryDesc({o.outputs, o.channels, o.down.taps, o.across.taps}, "f32",
                              has_dots_       ? "acdb"
                              : o.lanes == 16 ? "Acdb32a"
                                              : "Acdb16a");
        case DNNL_ARG_BIAS:
            return MemoryDesc({o.outputs}, "f32", "a");
        case DNNL_ARG_SCRATCHPAD:
            return MemoryDesc({static_cast<std::int64_t>(scratchpad_nbytes() / sizeof(float))},
                              "f32", "a");
        default: {
            require(takes(arg), "conv_windows: there is no argument " + std::to_string(arg));
            const bool is_turned = o.height != options_.height || o.width != options_.width;
            return image_desc(
                {o.images, o.outputs, is_turned ? width_ : height_, is_turned ? height_ : width_},
                o.halves.result, o.result_last, o.lanes);
        }
    }
}

// Copies pixels of a row of the source: all channels of one after those of the other.
void ConvWindows::copy_row(const std::byte *from, std::int64_t first, std::int64_t count,
                           float *to) const {
    const auto &o = options_;
    const std::int64_t nbytes = element_nbytes(o.halves.source);
    const auto &interleave = kernels_->interleave[o.halves.source];
    if (o.source_last) {
        interleave(from + first * o.channels * nbytes, 0, 1, count * o.channels, to);
    } else {
        interleave(from + first * nbytes, o.height * o.width, o.channels, count, to);
    }
}

// Copies what an item reads, with zeros where the image is padded.
void ConvWindows::copy(const Call &call, const Item &item, float *to) const {
    const auto &o = options_;
    const std::int64_t columns = o.across.read_by(item.column_end - item.column);
    const std::int64_t first = item.column * o.across.stride - o.pads[1];
    const std::int64_t left = std::clamp<std::int64_t>(-first, 0, columns);
    const std::int64_t right = std::clamp<std::int64_t>(o.width - first, left, columns);
    const std::int64_t begin = item.row * o.down.stride - o.pads[0];
    const std::int64_t nbytes = element_nbytes(o.halves.source);
    const std::byte *image = call.source + item.image * source_.image * nbytes;
    for (std::int64_t row = 0; row < copied_by(item.row_end - item.row); ++row, to += pitch_) {
        const std::int64_t at = begin + row, end = columns * o.channels;
        if (at < 0 || at >= o.height) {
            std::fill_n(to, end, 0.0F);
            continue;
        }
        std::fill_n(to, left * o.channels, 0.0F);
        copy_row(image + at * (o.source_last ? source_.row : o.width) * nbytes, first + left,
                 right - left, to + left * o.channels);
        std::fill(to + right * o.channels, to + end, 0.0F);
    }
}

// `is_copied` if what the item reads has been copied already.
void ConvWindows::compute(const Call &call, const Item &item, bool is_copied,
                          float *scratch) const {
    const auto &o = options_;
    const std::int64_t lanes = kernels_->lanes;
    if (!is_direct_ && !is_copied) copy(call, item, scratch);
    ProductTile tile{};
    tile.source = is_direct_ ? reinterpret_cast<const float *>(call.source) +
                                   item.image * source_.image + item.row * o.down.stride * pitch_ +
                                   item.column * o.across.stride * o.channels
                             : scratch;
    tile.source_row = o.down.stride * pitch_;
    tile.source_pixel = o.across.stride * o.channels;
    tile.source_chunk = lanes;
    tile.rows = item.row_end - item.row;
    tile.columns = item.column_end - item.column;
    tile.weights = call.weights + item.pair * products_->panel();
    tile.weights_end = call.weights + pairs_ * products_->panel();
    tile.bias = call.bias + item.pair * 2 * lanes;
    tile.result = item.image * result_.image + item.row * result_.row + item.column * result_.pixel;
    tile.pair = item.pair;
    tile.pair_end = item.pair_end;
    tile.sums = scratch + whole_lines(copied_count_);
    if (has_dots_) {
        add_up(tile, call);
    } else {
        products_->run(tile, *call.stages, call.result);
    }
}

// Computes a tile of few outputs.
void ConvWindows::add_up(const ProductTile &tile, const Call &call) const {
    const bool is_half = options_.halves.result;
    const auto outputs = static_cast<std::size_t>(options_.outputs - 1);
    const std::int64_t groups = ceil_div(tile.columns, kernels_->dot_rows[outputs]);
    ExpandProduct product{};
    product.pixel_stride = tile.source_pixel;
    product.channels = products_->runs().length;
    product.runs = static_cast<std::int64_t>(products_->runs().offsets.size());
    product.offsets = products_->runs().offsets.data();
    product.weights = tile.weights;
    product.start = tile.bias;
    product.results = tile.sums;
    product.result_pixel = 2 * kernels_->lanes;
    FinishPixels work{};
    work.pixel = result_.pixel;
    work.half = result_.chunk;
    work.lanes = options_.outputs;
    work.blocked = !options_.result_last;
    work.stages = call.stages->data();
    work.stage_count = static_cast<int>(call.stages->size());
    work.sums = tile.sums;
    for (std::int64_t row = 0; row < tile.rows; ++row) {
        for (std::int64_t group = 0; group < groups; ++group) {
            const std::int64_t begin = tile.columns * group / groups;
            product.rows = work.count = tile.columns * (group + 1) / groups - begin;
            product.pixels = tile.source + row * tile.source_row + begin * tile.source_pixel;
            work.offset = tile.result + row * result_.row + begin * result_.pixel;
            work.result = call.result + work.offset * element_nbytes(is_half);
            kernels_->dot[outputs](product);
            (is_half ? kernels_->finish_half : kernels_->finish)(work);
        }
    }
}

void ConvWindows::execute(const std::vector<void *> &data, void *scratchpad) const {
    const auto &o = options_;
    const std::int64_t outputs = pairs_ * 2 * kernels_->lanes;
    auto *bias = static_cast<float *>(scratchpad);
    float *scratch = bias + apart(outputs);
    std::fill_n(bias, outputs, 0.0F);
    if (o.has_bias) std::copy_n(static_cast<const float *>(data[3]), o.outputs, bias);
    std::vector<Stage> stages = stages_;
    for (std::size_t index = 0; index < stages.size(); ++index) {
        if (operands_[index] >= 0) {
            stages[index].operand = data[static_cast<std::size_t>(operands_[index])];
        }
    }
    const Call call{static_cast<const std::byte *>(data[0]), static_cast<const float *>(data[1]),
                    bias, static_cast<std::byte *>(data[2]), &stages};
    Shares items(item_count(), o.threads);
    in_parallel(o.threads, [&](int part, int) {
        Item last{-1, 0, 0, 0, 0, 0, 0};
        for (std::int64_t index; (index = items.next(part)) >= 0;) {
            const Item next = item(index);
            const bool is_copied =
                next.image == last.image && next.row == last.row && next.column == last.column;
            last = next;
            compute(call, next, is_copied, scratch + part * thread_count_);
        }
    });
}

}  // namespace stridewise
