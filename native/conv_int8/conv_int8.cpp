#include "conv_int8/conv_int8.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "isa/choice.hpp"
#include "post_ops/parse.hpp"
#include "support/errors.hpp"
#include "support/images.hpp"
#include "threads/regions.hpp"
#include "threads/shares.hpp"

namespace stridewise {
namespace {

// Number of pieces of each thread's share. Idle threads take pieces of others.
constexpr std::int64_t kPieces = 8;
// Limit of pixels that are one row where there is no window: results of all panels stay in the
// nearest cache.
constexpr std::int64_t kRowPixels = 56;
// Limit of taps, strides and dilations along an axis, and of the bytes of a window, so that sums
// fit 32 bits.
constexpr std::int64_t kLargest = 1 << 12, kMostBytes = 1 << 16;
constexpr std::int64_t kLine = 64;

bool is_byte(const std::string &dtype) {
    return dtype == "u8" || dtype == "s8";
}

int least_of(const std::string &dtype) {
    return dtype == "s8" ? -128 : 0;
}

bool is_of(const std::string &dtype, int number) {
    return number >= least_of(dtype) && number <= least_of(dtype) + 255;
}

ElementType type_of(const std::string &dtype) {
    return dtype == "f32" ? ElementType::f32 : dtype == "u8" ? ElementType::u8 : ElementType::s8;
}

std::int64_t whole_line(std::int64_t nbytes) {
    return ceil_div(nbytes, kLine) * kLine;
}

void check_numbers(const ByteConvOptions &o) {
    require(is_byte(o.source) && (is_byte(o.result) || o.result == "f32"),
            "conv_int8: expected s8 or u8, and results of these or f32, got " + o.source + " and " +
                o.result);
    require(is_of(o.source, o.source_zero) && (o.result == "f32" || is_of(o.result, o.result_zero)),
            "conv_int8: expected zero points that are integers of the tensors");
    require(std::isfinite(o.result_scale) && o.result_scale > 0,
            "conv_int8: expected a positive scale of the result, got " +
                std::to_string(o.result_scale));
}

ByteConvOptions checked(ByteConvOptions o) {
    const auto known = byte_isas();
    if (o.isa.empty()) o.isa = known.front();
    require(std::find(known.begin(), known.end(), o.isa) != known.end(),
            "conv_int8: there are no " + o.isa + " kernels here");
    check_numbers(o);
    require(std::min({o.images, o.channels, o.height, o.width, o.outputs}) >= 1,
            "conv_int8: expected positive extents");
    for (const auto &axis : {o.down, o.across}) {
        require(std::min({axis.taps, axis.stride, axis.dilation}) >= 1 &&
                    std::max({axis.taps, axis.stride, axis.dilation}) <= kLargest,
                "conv_int8: expected taps, strides and dilations from 1 to " +
                    std::to_string(kLargest));
    }
    require(o.across.dilation == 1, "conv_int8: expected no dilation along rows");
    require(o.channels <= kMostBytes && o.down.taps * o.across.taps * o.channels <= kMostBytes,
            "conv_int8: expected at most " + std::to_string(kMostBytes) + " products of a result");
    require(*std::min_element(o.pads.begin(), o.pads.end()) >= 0 &&
                std::max(o.pads[0], o.pads[2]) < o.down.extent() &&
                std::max(o.pads[1], o.pads[3]) < o.across.extent(),
            "conv_int8: expected a padding smaller than the window");
    return o;
}

const ByteConvKernels &find_kernels(const ByteConvOptions &o) {
#ifdef STRIDEWISE_AVX2
    if (o.isa == "avx512_vnni") return avx512_vnni_byte_conv();
    if (o.isa == "avx2") return avx2_byte_conv();
#endif
    return portable_byte_conv();
}

}  // namespace

struct ByteConv::Call {
    const std::uint8_t *source, *weights;
    std::uint8_t *result;
    const float *factor, *term;  // of all outputs, padded to whole panels
    const Stage *stages;
    const std::vector<ByteConvOperand> *operands;  // at the first pixel of the first image
};

// The scratchpad of one thread.
struct ByteConv::Scratch {
    std::uint8_t *ring, *outside;  // copied rows of the source, and one of padding
    std::int64_t piece;            // of all pixels that the ring has, if there is no window
    std::uint8_t *weights;         // groups, unless those in memory are
    std::int32_t *start;           // of all outputs
    const std::uint8_t **taps;     // the row of each vertical tap
    ByteConvOperand *operands;     // of the stages
};

ByteConv::ByteConv(ByteConvOptions options, const PostOps &post_ops)
    : Kernel(options.threads, {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, kConvScales, DNNL_ARG_DST}),
      options_(checked(std::move(options))),
      kernels_(&find_kernels(options_)) {
    const auto &o = options_;
    const std::int64_t high = o.height + o.pads[0] + o.pads[2] - o.down.extent();
    const std::int64_t wide = o.width + o.pads[1] + o.pads[3] - o.across.extent();
    require(std::min(high, wide) >= 0, "conv_int8: the window exceeds the padded source");
    out_height_ = high / o.down.stride + 1;
    out_width_ = wide / o.across.stride + 1;
    flip_ = o.source == "s8" ? 0x80 : 0;
    const std::int64_t numbers = kernels_->numbers, pixels = out_height_ * out_width_;
    is_packed_ = o.channels % numbers == 0;
    const bool is_point = o.down.taps * o.across.taps == 1;
    is_direct_ = is_point && is_packed_ && flip_ == 0 && !kernels_->widens();
    // Pixels of all rows follow each other where each is read.
    is_flat_ =
        is_point && (is_direct_ || kernels_->widens()) && o.down.stride * o.across.stride == 1;
    const std::int64_t most = kRowPixels / kernels_->pixels * kernels_->pixels;
    rows_ = is_flat_ ? ceil_div(pixels, most) : out_height_;
    words_ = ceil_div(o.across.taps * o.channels, numbers);
    panels_ = ceil_div(o.outputs, kernels_->panel);
    const std::int64_t read = is_flat_ ? ceil_div(pixels, rows_) : o.across.read_by(out_width_);
    const std::int64_t copied = read * o.channels * kernels_->number_nbytes() + kWordBytes;
    row_bytes_ = is_direct_ ? 0 : whole_line(copied);
    if (o.has_bias) args_.push_back(DNNL_ARG_BIAS);
    plan_stages(post_ops);
    plan_items();
}

ByteConv::Step ByteConv::step_of(const PostOps &post_ops, std::size_t index) {
    const auto &o = options_;
    const auto *binary = std::get_if<BinaryPostOp>(&post_ops[index]);
    const Stage stage = stage_of(post_ops[index]);
    require(stage.op != StageOp::sum, "conv_int8: nothing is summed up");
    if (binary == nullptr) return {stage, -1, ElementType::f32, true};
    const MemoryDesc &given = binary->operand;
    const bool is_row = given.dims() == Dims({1, o.outputs, 1, 1}) && given.dtype() == "f32";
    const Dims whole{o.images, o.outputs, out_height_, out_width_};
    const bool is_tensor =
        is_row || (given.dims() == whole && (given.dtype() == "f32" || is_byte(given.dtype())));
    require(is_tensor,
            "conv_int8: expected operands of post-ops with a float32 for each output, "
            "or of the shape of the result");
    const int arg = post_op_arg(static_cast<int>(index));
    args_.push_back(arg);
    operand_descs_.emplace(arg, MemoryDesc(given.dims(), given.dtype(), "acdb"));
    return {stage, static_cast<int>(args_.size()) - 1, type_of(given.dtype()), is_row};
}

// Linear functions at the beginning become part of scales and bias, one at the end and the scale of
// the result a factor and a term, and a clip behind them the bounds of the result.
void ByteConv::plan_stages(const PostOps &post_ops) {
    const auto &o = options_;
    for (std::size_t index = 0; index < post_ops.size(); ++index) {
        const Step step = step_of(post_ops, index);
        const StageOp op = step.stage.op;
        const bool is_linear =
            op == StageOp::linear ||
            (step.is_row && (op == StageOp::mul || op == StageOp::add || op == StageOp::sub));
        (steps_.empty() && is_linear ? linear_ : steps_).push_back(step);
    }
    if (o.result == "f32") return;
    plan_bounds();
    times_ = 1.0F / o.result_scale;
    if (!steps_.empty() && steps_.back().stage.op == StageOp::linear) {
        plus_ = steps_.back().stage.beta * times_;
        times_ *= steps_.back().stage.alpha;
        steps_.pop_back();
    }
    if (steps_.empty()) {
        linear_.push_back({{StageOp::linear, times_, plus_, nullptr}, -1, ElementType::f32, true});
        times_ = 1.0F;
        plus_ = 0.0F;
    }
    plan_addition();
}

// Recognizes the stages of a residual sum.
void ByteConv::plan_addition() {
    const std::size_t count = steps_.size();
    if (count != 1 && count != 4) return;
    const Step &last = steps_.back();
    const bool is_tensor = !last.is_row && last.type != ElementType::f32;
    if (last.stage.op != StageOp::add || !is_tensor) return;
    addition_.operand = static_cast<int>(count) - 1;
    if (count == 4) {
        const Stage &clip = steps_[1].stage, &linear = steps_[2].stage;
        if (steps_[0].stage.op != StageOp::round || clip.op != StageOp::clip ||
            linear.op != StageOp::linear) {
            return;
        }
        addition_ = {true, clip.alpha, clip.beta, linear.alpha, linear.beta, addition_.operand};
    }
    has_addition_ = true;
}

void ByteConv::plan_bounds() {
    const auto &o = options_;
    // Integers with a sign are bounded as if 128 were added, which the flipped bit takes off again.
    const int least = least_of(o.result), zero = o.result_zero - least;
    const auto bound = [&](float real) {
        const double whole = std::nearbyint(real / o.result_scale) + zero;
        return static_cast<std::uint8_t>(std::clamp<double>(whole, 0, 255));
    };
    std::uint8_t low = 0, high = 255;
    if (!steps_.empty() && steps_.back().stage.op == StageOp::clip) {
        low = bound(steps_.back().stage.alpha);
        high = bound(steps_.back().stage.beta);
        steps_.pop_back();
    }
    std::fill(std::begin(bounds_.offset), std::end(bounds_.offset),
              static_cast<std::int16_t>(zero));
    std::fill(std::begin(bounds_.low), std::end(bounds_.low), low);
    std::fill(std::begin(bounds_.high), std::end(bounds_.high), high);
    std::fill(std::begin(bounds_.flip), std::end(bounds_.flip),
              static_cast<std::uint8_t>(least < 0 ? 0x80 : 0));
}

// Splits rows until all threads have work, and then panels.
void ByteConv::plan_items() {
    const auto &o = options_;
    const std::int64_t wanted = o.threads == 1 ? 1 : kPieces * o.threads;
    bands_ = std::min(rows_, ceil_div(wanted, o.images));
    // Windows overlap, so bands of a few rows copy others twice.
    if (!is_direct_ && !is_flat_) {
        bands_ = std::min(bands_, ceil_div(rows_, std::max<std::int64_t>(o.down.extent(), 2)));
    }
    splits_ = std::clamp<std::int64_t>(ceil_div(wanted, bands_ * o.images), 1, panels_);
    const std::int64_t copied = is_direct_ ? 0 : (o.down.extent() + 1) * row_bytes_;
    const auto sum = static_cast<std::int64_t>(sizeof(std::int32_t));
    thread_nbytes_ = copied + whole_line(packed_nbytes()) + panels_ * kernels_->panel * sum;
}

// Bytes of groups of weights that each thread makes.
std::int64_t ByteConv::packed_nbytes() const {
    return is_packed_ ? 0 : panels_ * panel_nbytes();
}

// Bytes of the groups of weights of a panel.
std::int64_t ByteConv::panel_nbytes() const {
    return options_.down.taps * words_ * kernels_->panel * kernels_->numbers;
}

ByteConv::Item ByteConv::item(std::int64_t index) const {
    const std::int64_t cells = bands_ * options_.images;
    const std::int64_t cell = index % cells, split = index / cells, band = cell % bands_;
    return {cell / bands_, rows_ * band / bands_, rows_ * (band + 1) / bands_,
            panels_ * split / splits_, panels_ * (split + 1) / splits_};
}

ByteConv::Scratch ByteConv::scratch_of(std::uint8_t *bytes) const {
    const auto &o = options_;
    Scratch found{};
    found.ring = bytes;
    found.outside = found.ring + (is_direct_ ? 0 : o.down.extent() * row_bytes_);
    found.piece = -1;
    found.weights = found.outside + row_bytes_;
    found.start = reinterpret_cast<std::int32_t *>(found.weights + whole_line(packed_nbytes()));
    const std::uint8_t padding = kernels_->widens() ? 0 : source_kind().zero;
    std::fill(found.ring, found.outside + row_bytes_, padding);
    return found;
}

ByteConvSource ByteConv::source_kind() const {
    const int zero = static_cast<std::uint8_t>(options_.source_zero) ^ flip_;
    return {flip_, static_cast<std::uint8_t>(zero)};
}

// Linear functions of all outputs, and the memory of each thread.
std::size_t ByteConv::scratchpad_nbytes() const {
    const auto shared = 2 * panels_ * kernels_->panel * static_cast<std::int64_t>(sizeof(float));
    return static_cast<std::size_t>(shared + options_.threads * thread_nbytes_);
}

// Panels of outputs, of which each has a group of inputs in a row.
std::string ByteConv::weights_tag() const {
    const std::string panel = std::to_string(kernels_->panel);
    if (!is_packed_) return "Acdb" + panel + "a";
    return "AcdB" + panel + "a" + std::to_string(kernels_->numbers) + "b";
}

MemoryDesc ByteConv::arg_desc(int arg) const {
    const auto &o = options_;
    switch (arg) {
        case DNNL_ARG_SRC:
            return MemoryDesc({o.images, o.channels, o.height, o.width}, o.source, "acdb");
        case DNNL_ARG_DST:
            return MemoryDesc({o.images, o.outputs, out_height_, out_width_}, o.result, "acdb");
        case DNNL_ARG_WEIGHTS:
            return MemoryDesc({o.outputs, o.channels, o.down.taps, o.across.taps}, "s8",
                              weights_tag());
        case DNNL_ARG_SCRATCHPAD:
            return MemoryDesc({static_cast<std::int64_t>(scratchpad_nbytes() / sizeof(float))},
                              "f32", "a");
        default:
            require(takes(arg), "conv_int8: there is no argument " + std::to_string(arg));
            const auto found = operand_descs_.find(arg);
            if (found != operand_descs_.end()) return found->second;
            return MemoryDesc({o.outputs}, "f32", "a");
    }
}

// Stores what the linear functions make of sums.
void ByteConv::line_up(const std::vector<void *> &data, float *factor, float *term) const {
    const auto &o = options_;
    const std::int64_t count = o.outputs, padded = panels_ * kernels_->panel;
    std::fill(factor, factor + padded, 0.0F);
    std::fill(term, term + padded, 0.0F);
    std::copy_n(static_cast<const float *>(data[2]), count, factor);
    if (o.has_bias) std::copy_n(static_cast<const float *>(data[4]), count, term);
    for (const Step &step : linear_) {
        const Stage &stage = step.stage;
        if (stage.op == StageOp::linear) {
            for (std::int64_t c = 0; c < count; ++c) {
                factor[c] *= stage.alpha;
                term[c] = term[c] * stage.alpha + stage.beta;
            }
            continue;
        }
        const auto *row = static_cast<const float *>(data[static_cast<std::size_t>(step.operand)]);
        const float sign = stage.op == StageOp::sub ? -1.0F : 1.0F;
        for (std::int64_t c = 0; c < count; ++c) {
            if (stage.op == StageOp::mul) {
                factor[c] *= row[c];
                term[c] *= row[c];
            } else {
                term[c] += sign * row[c];
            }
        }
    }
}

// Groups the weights of an item, and stores what sums start with.
void ByteConv::prepare(const Call &call, const Item &item, const Scratch &scratch) const {
    const auto &o = options_;
    const std::int64_t bytes = o.across.taps * o.channels, outputs = kernels_->panel;
    for (std::int64_t panel = item.panel; panel < item.panel_end; ++panel) {
        const std::uint8_t *weights = call.weights + panel * panel_nbytes();
        if (!is_packed_) {
            std::uint8_t *groups = scratch.weights + panel * panel_nbytes();
            for (std::int64_t tap = 0; tap < o.down.taps; ++tap) {
                kernels_->pack(call.weights + (panel * o.down.taps + tap) * bytes * outputs, bytes,
                               groups + tap * words_ * outputs * kernels_->numbers);
            }
            weights = groups;
        }
        kernels_->start(weights, o.down.taps * words_, source_kind().zero,
                        scratch.start + panel * outputs);
    }
}

// Padding is in the row already.
void ByteConv::copy_row(const Call &call, std::int64_t image, std::int64_t row,
                        std::uint8_t *to) const {
    const auto &o = options_;
    const std::int64_t left = o.pads[1];
    const std::int64_t pixels = std::min(o.across.read_by(out_width_) - left, o.width);
    const std::uint8_t *from = call.source + (image * o.height + row) * o.width * o.channels;
    kernels_->copy(from, pixels * o.channels, source_kind(),
                   to + left * o.channels * kernels_->number_nbytes());
}

// A piece of all pixels, where there is no window.
void ByteConv::copy_piece(const Call &call, std::int64_t image, std::int64_t row,
                          Scratch &scratch) const {
    const auto &o = options_;
    const std::int64_t piece = image * rows_ + row, pixels = out_height_ * out_width_;
    if (scratch.piece == piece) return;
    const std::int64_t first = pixels * row / rows_, last = pixels * (row + 1) / rows_;
    kernels_->copy(call.source + (image * pixels + first) * o.channels, (last - first) * o.channels,
                   source_kind(), scratch.ring);
    scratch.piece = piece;
}

void ByteConv::compute_row(const Call &call, const Item &item, std::int64_t row,
                           const Scratch &scratch) const {
    const auto &o = options_;
    const std::int64_t image_pixels = out_height_ * out_width_;
    // Rows are either those of the result or pieces of all of its pixels.
    const std::int64_t first = image_pixels * row / rows_;
    const std::int64_t place = item.image * image_pixels + first;
    const std::int64_t top = row * o.down.stride - o.pads[0];
    for (std::int64_t tap = 0; tap < o.down.taps; ++tap) {
        const std::int64_t at = top + tap * o.down.dilation;
        const bool inside = at >= 0 && at < o.height;
        scratch.taps[tap] =
            inside ? scratch.ring + at % o.down.extent() * row_bytes_ : scratch.outside;
    }
    if (is_flat_) scratch.taps[0] = scratch.ring;
    if (is_direct_) {
        const std::int64_t pixel = is_flat_ ? first : row * o.down.stride * o.width;
        scratch.taps[0] = call.source + (item.image * o.height * o.width + pixel) * o.channels;
    }
    std::copy(call.operands->begin(), call.operands->end(), scratch.operands);
    ByteConvRow work{};
    work.rows = scratch.taps;
    work.down = o.down.taps;
    work.words = words_;
    work.pixel = o.across.stride * o.channels * kernels_->number_nbytes();
    work.count = image_pixels * (row + 1) / rows_ - first;
    work.stages = call.stages;
    work.operands = scratch.operands;
    work.stage_count = static_cast<int>(steps_.size());
    work.addition = has_addition_ ? &addition_ : nullptr;
    work.times = times_;
    work.plus = plus_;
    work.bounds = &bounds_;
    work.type = type_of(o.result);
    work.result_pixel = o.outputs;
    const std::int64_t nbytes = work.type == ElementType::f32 ? sizeof(float) : 1;
    const std::uint8_t *weights = is_packed_ ? call.weights : scratch.weights;
    for (std::int64_t panel = item.panel; panel < item.panel_end; ++panel) {
        const std::int64_t output = panel * kernels_->panel;
        work.weights = weights + panel * panel_nbytes();
        work.start = scratch.start + output;
        work.factor = call.factor + output;
        work.term = call.term + output;
        work.outputs = std::min(o.outputs - output, kernels_->panel);
        work.result = call.result + (place * o.outputs + output) * nbytes;
        for (std::size_t s = 0; s < steps_.size(); ++s) {
            const ByteConvOperand &whole = (*call.operands)[s];
            if (whole.from == nullptr) continue;
            const std::int64_t size = whole.type == ElementType::f32 ? sizeof(float) : 1;
            scratch.operands[s].from = static_cast<const std::uint8_t *>(whole.from) +
                                       (place * whole.pixel + output) * size;
        }
        kernels_->row[work.outputs > kernels_->panel / 2](work);
    }
}

void ByteConv::compute(const Call &call, const Item &item, Scratch &scratch) const {
    const auto &o = options_;
    const std::int64_t extent = o.down.extent();
    std::int64_t next = 0;  // the first row of the source that is not there
    for (std::int64_t row = item.row; row < item.row_end; ++row) {
        if (is_flat_ && !is_direct_) {
            copy_piece(call, item.image, row, scratch);
        } else if (!is_direct_) {
            const std::int64_t top = row * o.down.stride - o.pads[0];
            const std::int64_t bottom = std::min(top + extent, o.height);
            for (next = std::max(next, top); next < bottom; ++next) {
                copy_row(call, item.image, next, scratch.ring + next % extent * row_bytes_);
            }
        }
        compute_row(call, item, row, scratch);
    }
}

void ByteConv::execute(const std::vector<void *> &data, void *scratchpad) const {
    const auto &o = options_;
    auto *factor = static_cast<float *>(scratchpad);
    float *term = factor + panels_ * kernels_->panel;
    auto *bytes = reinterpret_cast<std::uint8_t *>(term + panels_ * kernels_->panel);
    line_up(data, factor, term);
    std::vector<Stage> stages;
    std::vector<ByteConvOperand> operands;
    for (const Step &step : steps_) {
        stages.push_back(step.stage);
        const void *from =
            step.operand < 0 ? nullptr : data[static_cast<std::size_t>(step.operand)];
        operands.push_back({from, step.type, step.is_row ? 0 : o.outputs});
    }
    const Call call{static_cast<const std::uint8_t *>(data[0]),
                    static_cast<const std::uint8_t *>(data[1]),
                    static_cast<std::uint8_t *>(data[3]),
                    factor,
                    term,
                    stages.data(),
                    &operands};
    // Those of different threads are in different lines of caches.
    const std::int64_t apart = o.down.taps + kLine;
    const auto others = static_cast<std::int64_t>(operands.size()) + kLine;
    std::vector<const std::uint8_t *> taps(static_cast<std::size_t>(o.threads * apart));
    std::vector<ByteConvOperand> shifted(static_cast<std::size_t>(o.threads * others));
    Shares items(o.images * bands_ * splits_, o.threads);
    in_parallel(o.threads, [&](int part, int) {
        Scratch scratch{};
        std::int64_t prepared = -1;
        for (std::int64_t index; (index = items.next(part)) >= 0;) {
            const Item next = item(index);
            if (prepared < 0) {
                scratch = scratch_of(bytes + part * thread_nbytes_);
                scratch.taps = taps.data() + part * apart;
                scratch.operands = shifted.data() + part * others;
            }
            if (prepared != next.panel) prepare(call, next, scratch);
            prepared = next.panel;
            compute(call, next, scratch);
        }
    });
}

}  // namespace stridewise
