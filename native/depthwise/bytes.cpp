#include "depthwise/bytes.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "isa/choice.hpp"
#include "post_ops/parse.hpp"
#include "support/errors.hpp"
#include "threads/regions.hpp"
#include "threads/shares.hpp"

namespace stridewise {
namespace {

// Limit in bytes of the rows of quads, so that they stay in the first-level cache.
constexpr std::int64_t kRingBytes = 24 << 10;
// Limit of taps, strides and dilations along an axis.
constexpr std::int64_t kLargest = 1 << 12;
// Limit of taps, so that sums fit 32 bits.
constexpr std::int64_t kMostTaps = 1 << 16;
// Smallest number of results of an item along an axis. With fewer, too many pixels are copied
// twice.
constexpr std::int64_t kFewest = 7;
// Number of pieces of each thread's share. Idle threads take pieces of others.
constexpr std::int64_t kPieces = 8;
constexpr std::int64_t kWord = sizeof(std::uint32_t);

bool is_byte(const std::string &dtype) {
    return dtype == "u8" || dtype == "s8";
}

int least_of(const std::string &dtype) {
    return dtype == "s8" ? -128 : 0;
}

bool is_of(const std::string &dtype, int number) {
    return number >= least_of(dtype) && number <= least_of(dtype) + 255;
}

void check_numbers(const ByteDepthwiseOptions &o) {
    require(is_byte(o.source) && (is_byte(o.result) || o.result == "f32"),
            "depthwise_int8: expected s8 or u8, and results of these or f32, got " + o.source +
                " and " + o.result);
    require(is_of(o.source, o.source_zero) && (o.result == "f32" || is_of(o.result, o.result_zero)),
            "depthwise_int8: expected zero points that are integers of the tensors");
    require(std::isfinite(o.result_scale) && o.result_scale > 0,
            "depthwise_int8: expected a positive scale of the result, got " +
                std::to_string(o.result_scale));
}

ByteDepthwiseOptions checked(ByteDepthwiseOptions o) {
    const auto known = byte_isas();
    if (o.isa.empty()) o.isa = known.front();
    require(std::find(known.begin(), known.end(), o.isa) != known.end(),
            "depthwise_int8: there are no " + o.isa + " kernels here");
    require(o.lanes == 8 || o.lanes == 16, "depthwise_int8: expected blocks of 8 or 16 channels");
    check_numbers(o);
    require(std::min({o.images, o.channels, o.height, o.width}) >= 1,
            "depthwise_int8: expected positive extents");
    for (const auto &axis : {o.down, o.across}) {
        require(std::min({axis.taps, axis.stride, axis.dilation}) >= 1 &&
                    std::max({axis.taps, axis.stride, axis.dilation}) <= kLargest,
                "depthwise_int8: expected taps, strides and dilations from 1 to " +
                    std::to_string(kLargest));
    }
    require(o.down.taps * o.across.taps <= kMostTaps,
            "depthwise_int8: expected at most " + std::to_string(kMostTaps) + " taps");
    require(*std::min_element(o.pads.begin(), o.pads.end()) >= 0 &&
                std::max(o.pads[0], o.pads[2]) < o.down.extent() &&
                std::max(o.pads[1], o.pads[3]) < o.across.extent(),
            "depthwise_int8: expected a padding smaller than the window");
    return o;
}

// Returns how many neighboring results can read the same quads of a row.
std::int64_t phases_of(const DepthwiseAxis &axis) {
    const std::int64_t quads = ceil_div(axis.taps, kQuad);
    for (std::int64_t phases = kQuad; phases > 1 && axis.dilation == 1; phases /= 2) {
        const std::int64_t step = phases * axis.stride;
        const bool fits = axis.taps + step - axis.stride <= kQuad * quads;
        if (fits && (quads == 1 || kQuad % step == 0)) return phases;
    }
    return 1;
}

const ByteDepthwiseKernels &find_kernels(const ByteDepthwiseOptions &o) {
    const std::int64_t quads = ceil_div(o.across.taps, kQuad), phases = phases_of(o.across);
    const bool is_float = o.result == "f32";
#ifdef STRIDEWISE_AVX2
    if (o.isa == "avx512_vnni") return avx512_vnni_byte_depthwise(quads, phases, is_float);
    if (o.isa == "avx2") return avx2_byte_depthwise(quads, phases, is_float);
#endif
    return portable_byte_depthwise(quads, phases, is_float);
}

bool is_linear(StageOp op) {
    return op == StageOp::linear || op == StageOp::mul || op == StageOp::add || op == StageOp::sub;
}

// Applies a linear function to numbers times factors plus terms.
void follow(const Stage &stage, const float *row, std::int64_t count, double *factor,
            double *term) {
    const double sign = stage.op == StageOp::sub ? -1.0 : 1.0;
    if (stage.op == StageOp::linear) {
        for (std::int64_t c = 0; c < count; ++c) {
            factor[c] *= stage.alpha;
            term[c] = term[c] * stage.alpha + stage.beta;
        }
    } else if (stage.op == StageOp::mul) {
        for (std::int64_t c = 0; c < count; ++c) {
            factor[c] *= row[c];
            term[c] *= row[c];
        }
    } else {
        for (std::int64_t c = 0; c < count; ++c) term[c] += sign * row[c];
    }
}

// Where the number of a channel is among those of all groups.
std::int64_t place_of(std::int64_t channel) {
    return channel / kGroup * kGroup + word_of(channel % kGroup);
}

}  // namespace

struct ByteDepthwise::Call {
    const std::uint8_t *source, *weights;
    const std::uint8_t *end;  // of the source
    std::uint8_t *result;
    void *const *data;    // of args()
    const Stage *stages;  // with operands in the order of words
};

// The scratchpad of one thread.
struct ByteDepthwise::Scratch {
    std::uint32_t *ring, *outside, *weights;  // rows of the source, one of padding, and quads
    std::int32_t *start;                      // a group of words each
    ByteLinear *real, *after;
    std::uint8_t *padding, *zeros;  // a group each
    const std::uint32_t **rows;
};

ByteDepthwise::ByteDepthwise(ByteDepthwiseOptions options, const PostOps &post_ops)
    : Kernel(options.threads, {DNNL_ARG_SRC, kDepthwiseWeights, kDepthwiseScales, DNNL_ARG_DST}),
      options_(checked(std::move(options))),
      kernels_(&find_kernels(options_)) {
    const auto &o = options_;
    const std::int64_t high = o.height + o.pads[0] + o.pads[2] - o.down.extent();
    const std::int64_t wide = o.width + o.pads[1] + o.pads[3] - o.across.extent();
    require(std::min(high, wide) >= 0, "depthwise_int8: the window exceeds the padded source");
    out_height_ = high / o.down.stride + 1;
    out_width_ = wide / o.across.stride + 1;
    flip_ = o.source == "s8" ? 0x80 : 0;
    groups_ = ceil_div(o.channels, kGroup);
    quads_ = ceil_div(o.across.taps, kQuad);
    phases_ = kernels_->phases;
    const bool is_apart = quads_ == 1 || kQuad * o.across.dilation % o.across.stride == 0;
    step_ = is_apart ? phases_ * o.across.stride : 1;
    source_ = strides_of(o.channels_last, o.lanes, o.channels, o.height, o.width);
    result_ = strides_of(o.channels_last, o.lanes, o.channels, out_height_, out_width_);
    if (o.has_bias) args_.push_back(kDepthwiseBias);
    plan_stages(post_ops);
    plan_items();
}

ByteDepthwise::Step ByteDepthwise::step_of(const PostOps &post_ops, std::size_t index) {
    const auto *binary = std::get_if<BinaryPostOp>(&post_ops[index]);
    const Stage stage = stage_of(post_ops[index]);
    require(stage.op != StageOp::sum, "depthwise_int8: nothing is summed up");
    if (binary == nullptr) return {stage, -1};
    require(binary->operand.dims() == Dims({1, options_.channels, 1, 1}) &&
                binary->operand.dtype() == "f32",
            "depthwise_int8: expected operands of post-ops with a float32 for each channel");
    args_.push_back(post_op_arg(static_cast<int>(index)));
    return {stage, static_cast<int>(args_.size()) - 1};
}

// Linear functions at the beginning and the division by the scale of the result become part of
// scales and bias; those behind a rounding, as batch norms that are not folded, become one. A clip
// at the end becomes the bounds of the result.
void ByteDepthwise::plan_stages(const PostOps &post_ops) {
    low_ = -std::numeric_limits<float>::infinity();
    high_ = -low_;
    for (std::size_t index = 0; index < post_ops.size(); ++index) {
        const Step step = step_of(post_ops, index);
        const StageOp op = step.stage.op;
        if (!steps_.empty()) {
            steps_.push_back(step);
        } else if (is_linear(op)) {
            (rounds_ ? after_ : linear_).push_back(step);
        } else if (op == StageOp::round && !rounds_) {
            rounds_ = true;
        } else if (op == StageOp::clip && rounds_ && after_.empty()) {
            low_ = std::min(step.stage.beta, std::max(step.stage.alpha, low_));
            high_ = std::min(step.stage.beta, std::max(step.stage.alpha, high_));
        } else {
            steps_.push_back(step);
        }
    }
    if (is_float()) return;
    plan_bounds();
    const float factor = 1.0F / options_.result_scale;
    if (steps_.empty()) {
        (rounds_ ? after_ : linear_).push_back({{StageOp::linear, factor, 0.0F, nullptr}, -1});
    } else {
        factor_ = factor;
    }
}

void ByteDepthwise::plan_bounds() {
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

// Uses the fewest strips that fit the caches, because pixels at their borders are copied twice.
// Then splits groups, and rows, until all threads have work.
void ByteDepthwise::plan_items() {
    const auto &o = options_;
    const std::int64_t wanted = kPieces * o.threads;
    const std::int64_t positions = kRingBytes / (o.down.extent() * kGroup * kWord) * step_;
    const std::int64_t most = std::max((positions - o.across.extent()) / o.across.stride + 1,
                                       std::max(kFewest, o.across.taps));
    strips_ = ceil_div(out_width_, most);
    const std::int64_t cells = o.images * strips_;
    splits_ = std::clamp<std::int64_t>(ceil_div(wanted, cells), 1, groups_);
    bands_ = std::clamp<std::int64_t>(ceil_div(wanted, cells * splits_), 1,
                                      ceil_div(out_height_, std::max(kFewest, o.down.taps)));
    row_count_ = ceil_div(o.across.read_by(ceil_div(out_width_, strips_)), step_) * kGroup;
    const std::int64_t pointers = ceil_div(o.down.taps * sizeof(void *), kWord);
    const std::int64_t numbers = (o.down.taps * quads_ * phases_ + 5) * kGroup + 2 * kGroup / kWord;
    thread_count_ = (o.down.extent() + 1) * row_count_ + whole_lines(numbers + pointers);
}

ByteDepthwise::Item ByteDepthwise::item(std::int64_t index) const {
    const std::int64_t split = index % splits_, strip = index / splits_ % strips_;
    const std::int64_t band = index / (splits_ * strips_) % bands_;
    return {index / (splits_ * strips_ * bands_), out_height_ * band / bands_,
            out_height_ * (band + 1) / bands_,    out_width_ * strip / strips_,
            out_width_ * (strip + 1) / strips_,   groups_ * split / splits_,
            groups_ * (split + 1) / splits_};
}

ByteDepthwise::Scratch ByteDepthwise::scratch_of(std::uint32_t *words) const {
    const auto &o = options_;
    Scratch found{};
    found.ring = words;
    found.outside = found.ring + o.down.extent() * row_count_;
    found.weights = found.outside + row_count_;
    found.start =
        reinterpret_cast<std::int32_t *>(found.weights + o.down.taps * quads_ * phases_ * kGroup);
    found.real = reinterpret_cast<ByteLinear *>(found.start + kGroup);
    found.after = found.real + 1;
    found.padding = reinterpret_cast<std::uint8_t *>(found.after + 1);
    found.zeros = found.padding + kGroup;
    found.rows = reinterpret_cast<const std::uint32_t **>(found.zeros + kGroup);
    std::fill(found.padding, found.zeros, static_cast<std::uint8_t>(o.source_zero));
    std::fill(found.zeros, found.zeros + kGroup, std::uint8_t{0});
    const std::uint8_t byte = static_cast<std::uint8_t>(o.source_zero) ^ flip_;
    std::fill(found.outside, found.outside + row_count_, byte * 0x01010101U);
    return found;
}

// Operands of stages, and the memory of each thread.
std::size_t ByteDepthwise::scratchpad_nbytes() const {
    const std::int64_t rows = std::count_if(steps_.begin(), steps_.end(),
                                            [](const Step &step) { return step.operand >= 0; });
    const std::int64_t numbers = rows * groups_ * kGroup;
    return static_cast<std::size_t>((numbers + options_.threads * thread_count_) * kWord);
}

MemoryDesc ByteDepthwise::arg_desc(int arg) const {
    const auto &o = options_;
    const std::string blocks = o.lanes == 16 ? "aBcd16b" : "aBcd8b";
    const std::string tag = o.channels_last ? "acdb" : blocks;
    switch (arg) {
        case DNNL_ARG_SRC:
            return MemoryDesc({o.images, o.channels, o.height, o.width}, o.source, tag);
        case DNNL_ARG_DST:
            return MemoryDesc({o.images, o.channels, out_height_, out_width_}, o.result, tag);
        case kDepthwiseWeights:
            return MemoryDesc({o.channels, 1, 1, o.down.taps, o.across.taps}, "s8", "Abcde32a");
        case DNNL_ARG_SCRATCHPAD:
            return MemoryDesc({static_cast<std::int64_t>(scratchpad_nbytes()) / kWord}, "f32", "a");
        default:
            require(takes(arg), "depthwise_int8: there is no argument " + std::to_string(arg));
            if (arg != kDepthwiseScales && arg != kDepthwiseBias) {
                return MemoryDesc({1, o.channels, 1, 1}, "f32", tag);
            }
            return MemoryDesc({o.channels}, "f32", "a");
    }
}

void ByteDepthwise::compute(const Call &call, const Item &item, const Scratch &scratch) const {
    for (std::int64_t group = item.group; group < item.group_end; ++group) {
        compute_group(call, item, group, scratch);
    }
}

GroupPixels ByteDepthwise::pixels_of(const ImageStrides &strides, std::int64_t group) const {
    const auto &o = options_;
    return {strides.pixel, o.channels_last ? kGroup : o.lanes, strides.chunk,
            std::min(o.channels - group * kGroup, kGroup)};
}

// Stores what the linear functions make of sums, and of rounded numbers.
void ByteDepthwise::line_up(const Call &call, std::int64_t group, const Scratch &scratch) const {
    const std::int64_t first = group * kGroup, count = std::min(options_.channels - first, kGroup);
    const auto *scale = static_cast<const float *>(call.data[2]) + first;
    double factor[kGroup] = {}, term[kGroup] = {};
    const auto store = [&](const std::vector<Step> &steps, ByteLinear &to) {
        for (const Step &step : steps) {
            const auto *row =
                step.operand < 0 ? nullptr : static_cast<const float *>(call.data[step.operand]);
            follow(step.stage, row == nullptr ? nullptr : row + first, count, factor, term);
        }
        for (std::int64_t c = 0; c < kGroup; ++c) {
            to.factor[word_of(c)] = static_cast<float>(factor[c]);
            to.term[word_of(c)] = static_cast<float>(term[c]);
        }
    };
    std::copy(scale, scale + count, factor);
    if (options_.has_bias) {
        const auto *bias = static_cast<const float *>(call.data[4]) + first;
        std::copy(bias, bias + count, term);
    }
    store(linear_, *scratch.real);
    if (!rounds_) return;
    std::fill(factor, factor + kGroup, 1.0);
    std::fill(term, term + kGroup, 0.0);
    store(after_, *scratch.after);
}

void ByteDepthwise::compute_group(const Call &call, const Item &item, std::int64_t group,
                                  const Scratch &scratch) const {
    const auto &o = options_;
    const ImageStrides &s = source_;
    const std::int64_t ring_rows = o.down.extent(), chunk = group * (kGroup / o.lanes);
    const std::int64_t left = item.column * o.across.stride - o.pads[1];
    const std::int64_t right = left + o.across.read_by(item.column_end - item.column);
    const std::int64_t first = std::max<std::int64_t>(left, 0), end = std::min(right, o.width);
    ByteRow from{};
    static_cast<GroupPixels &>(from) = pixels_of(s, group);
    from.end = call.end;
    from.row = s.row;
    from.before = first - left;
    from.count = end - first;
    const std::int64_t last = (item.column_end - item.column - 1) / phases_ * phases_;
    from.positions = last * o.across.stride + kQuad * (quads_ - 1) * o.across.dilation + 1;
    from.taps = quads_ == 1 ? o.across.taps + (phases_ - 1) * o.across.stride : kQuad;
    from.step = step_;
    from.dilation = o.across.dilation;
    from.flip = flip_;
    from.outside = scratch.padding;
    ByteDepthwiseRow work{};
    static_cast<GroupPixels &>(work) = pixels_of(result_, group);
    work.count = item.column_end - item.column;
    work.blocked = !o.channels_last;
    work.rows = scratch.rows;
    work.down = o.down.taps;
    work.quads = quads_;
    work.stride = phases_ * o.across.stride / step_ * kGroup;
    work.ahead = kQuad * o.across.dilation / step_ * kGroup;
    work.weights = scratch.weights;
    work.start = scratch.start;
    work.real = scratch.real;
    work.after = rounds_ ? scratch.after : nullptr;
    work.low = low_;
    work.high = high_;
    work.stages = call.stages;
    work.stage_count = static_cast<int>(steps_.size());
    work.offset = group * kGroup;
    work.times = factor_;
    work.bounds = &bounds_;
    kernels_->pack({call.weights + group * o.down.taps * o.across.taps * kGroup, o.down.taps,
                    o.across.taps, quads_, o.across.stride, scratch.zeros, scratch.outside,
                    scratch.weights, scratch.start});
    line_up(call, group, scratch);
    const std::int64_t result_nbytes = is_float() ? sizeof(float) : 1;
    std::int64_t next = 0;  // the first row of the source that is not there
    for (std::int64_t out = item.row; out < item.row_end; ++out) {
        const std::int64_t top = out * o.down.stride - o.pads[0];
        const std::int64_t bottom = std::min(top + ring_rows, o.height);
        for (next = std::max(next, top); next < bottom; ++next) {
            from.from = call.source + item.image * s.image + chunk * s.chunk + next * s.row +
                        first * s.pixel;
            from.to = scratch.ring + next % ring_rows * row_count_;
            kernels_->gather(from);
        }
        for (std::int64_t tap = 0; tap < o.down.taps; ++tap) {
            const std::int64_t row = top + tap * o.down.dilation;
            const bool inside = row >= 0 && row < o.height;
            scratch.rows[tap] =
                inside ? scratch.ring + row % ring_rows * row_count_ : scratch.outside;
        }
        work.result =
            call.result + result_nbytes * (item.image * result_.image + chunk * result_.chunk +
                                           out * result_.row + item.column * result_.pixel);
        kernels_->row(work);
    }
}

void ByteDepthwise::execute(const std::vector<void *> &data, void *scratchpad) const {
    const auto &o = options_;
    const std::int64_t count = groups_ * kGroup;
    auto *next = static_cast<float *>(scratchpad);
    std::vector<Stage> stages;
    for (const Step &step : steps_) {
        stages.push_back(step.stage);
        if (step.operand < 0) continue;
        const auto *row = static_cast<const float *>(data[static_cast<std::size_t>(step.operand)]);
        std::fill(next, next + count, 1.0F);
        for (std::int64_t c = 0; c < o.channels; ++c) next[place_of(c)] = row[c];
        stages.back().operand = next;
        next += count;
    }
    const auto *source = static_cast<const std::uint8_t *>(data[0]);
    const Call call{source,
                    static_cast<const std::uint8_t *>(data[1]),
                    source + o.images * source_.image,
                    static_cast<std::uint8_t *>(data[3]),
                    data.data(),
                    stages.data()};
    auto *words = reinterpret_cast<std::uint32_t *>(next);
    Shares items(o.images * bands_ * strips_ * splits_, o.threads);
    in_parallel(o.threads, [&](int part, int) {
        const Scratch scratch = scratch_of(words + part * thread_count_);
        for (std::int64_t index; (index = items.next(part)) >= 0;) {
            compute(call, item(index), scratch);
        }
    });
}

}  // namespace stridewise
