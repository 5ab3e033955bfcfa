#include "pointwise/walk.hpp"

#include <algorithm>
#include <array>
#include <string>
#include <type_traits>

#include "support/errors.hpp"
#include "support/images.hpp"

namespace stridewise {
namespace {

// Axes of a descriptor, and one more for the lanes of a block.
constexpr std::size_t kMostLoops = DNNL_MAX_NDIMS + 1;

// The elements of one block of an axis, 1 where it has none.
std::int64_t block_of(const dnnl::memory::desc &desc, int axis) {
    require(desc.get_inner_nblks() <= 1, "pointwise: expected at most one block");
    const bool is_blocked = desc.get_inner_nblks() == 1 && desc.get_inner_idxs()[0] == axis;
    return is_blocked ? desc.get_inner_blks()[0] : 1;
}

template <class To, class From>
To as(From value) {
    if constexpr (std::is_same_v<To, From>) {
        return value;
    } else {
        return as_float(value);
    }
}

// How far the elements of a block lie apart in an operand, and the blocks themselves.
struct Strides {
    std::int64_t block, lane;
};

Strides strides_of(const MemoryDesc &operand, const MemoryDesc &whole, int axis) {
    const auto &desc = operand.get();
    const auto at = static_cast<std::size_t>(axis);
    const std::int64_t extent = operand.dims()[at], wanted = whole.dims()[at];
    const std::int64_t own = block_of(desc, axis), block = block_of(whole.get(), axis);
    require(extent == wanted || extent == 1, "pointwise: expected an extent of 1 or " +
                                                 std::to_string(wanted) + ", got " +
                                                 std::to_string(extent));
    if (extent == 1 && (wanted > 1 || own != block)) return {0, 0};
    require(own == 1 || own == block, "pointwise: expected the blocks of the result, or none");
    const std::int64_t stride = desc.get_strides()[at];
    return own == block && block > 1 ? Strides{stride, 1} : Strides{stride * block, stride};
}

}  // namespace

std::int64_t Walk::valid_lanes(const MemoryDesc &whole) {
    const auto &desc = whole.get();
    if (desc.get_inner_nblks() == 0) return 0;
    const std::int64_t extent = whole.dims()[static_cast<std::size_t>(desc.get_inner_idxs()[0])];
    return extent % desc.get_inner_blks()[0];
}

std::vector<Walk::Loop> Walk::loops_of(const MemoryDesc &whole,
                                       const std::vector<MemoryDesc> &operands) {
    std::vector<Loop> loops;
    for (int axis = 0; axis < whole.ndims(); ++axis) {
        const std::int64_t extent = whole.dims()[static_cast<std::size_t>(axis)];
        const std::int64_t block = block_of(whole.get(), axis);
        const Strides own = strides_of(whole, whole, axis);
        Loop outer{ceil_div(extent, block), own.block, {}, axis, block > 1, false};
        Loop inner{block, own.lane, {}, axis, false, true};
        for (const auto &operand : operands) {
            require(operand.ndims() == whole.ndims(),
                    "pointwise: operands and result have different ranks");
            const Strides found = strides_of(operand, whole, axis);
            outer.operands.push_back(found.block);
            inner.operands.push_back(found.lane);
        }
        if (outer.extent > 1) loops.push_back(std::move(outer));
        if (inner.extent > 1) loops.push_back(std::move(inner));
    }
    std::stable_sort(loops.begin(), loops.end(),
                     [](const Loop &x, const Loop &y) { return x.stride > y.stride; });
    return loops;
}

Walk::Walk(const MemoryDesc &whole, const std::vector<MemoryDesc> &operands)
    : valid_(valid_lanes(whole)) {
    for (const auto &operand : operands) has_padding_.push_back(valid_lanes(operand) > 0);
    bool is_last_block = valid_ > 0;  // where there is a single block, no loop counts blocks
    for (auto &loop : loops_of(whole, operands)) {
        const auto follows = [&](const Loop &outer) {
            if (outer.stride != loop.stride * loop.extent) return false;
            if (valid_ > 0 && (outer.is_block || loop.is_block || loop.is_lane)) return false;
            for (std::size_t at = 0; at < operands.size(); ++at) {
                if (outer.operands[at] != loop.operands[at] * loop.extent) return false;
            }
            return true;
        };
        if (!loops_.empty() && follows(loops_.back())) {
            loop.extent *= loops_.back().extent;
            loops_.back() = std::move(loop);
        } else {
            loops_.push_back(std::move(loop));
        }
        if (valid_ > 0 && loops_.back().is_block) {
            block_ = static_cast<int>(loops_.size()) - 1;
            is_last_block = false;
        }
    }
    if (is_last_block) {
        const Loop one{1, 0, std::vector<std::int64_t>(operands.size()), 0, true, false};
        loops_.insert(loops_.begin(), one);
        block_ = 0;
    }
    if (loops_.empty()) {
        loops_.push_back({1, 1, std::vector<std::int64_t>(operands.size()), 0, false, false});
    }
    for (auto loop = loops_.rbegin(); loop != loops_.rend(); ++loop) {
        require(loop->extent == 1 || loop->stride == size_, "pointwise: expected a dense result");
        size_ *= loop->extent;
    }
}

bool Walk::is_whole(std::size_t operand) const {
    // The channels of one pixel lie like those of blocks, but end before the padding does.
    if (lacks_padding(operand)) return false;
    return std::all_of(loops_.begin(), loops_.end(), [&](const Loop &loop) {
        return loop.extent == 1 || loop.operands[operand] == loop.stride;
    });
}

bool Walk::is_scalar(std::size_t operand) const {
    return std::all_of(loops_.begin(), loops_.end(),
                       [&](const Loop &loop) { return loop.operands[operand] == 0; });
}

Walk::Repetition Walk::repetition(std::size_t operand) const {
    if (lacks_padding(operand)) return {0, 0};
    Repetition found{1, 1};
    auto loop = loops_.rbegin();
    for (; loop != loops_.rend() && loop->operands[operand] != 0; ++loop)
        found.period *= loop->extent;
    found.span = found.period;
    for (; loop != loops_.rend() && loop->operands[operand] == 0; ++loop)
        found.span *= loop->extent;
    return found.span > found.period ? found : Repetition{0, 0};
}

std::int64_t Walk::row(std::size_t operand) const {
    return lacks_padding(operand) || loops_.back().operands[operand] != 1 ? 1
                                                                          : loops_.back().extent;
}

std::int64_t Walk::offset_in_row(std::size_t operand, std::int64_t begin,
                                 std::int64_t count) const {
    const std::int64_t extent = row(operand), first = begin % extent;
    if (first + count > extent) return -1;
    std::int64_t offset = first, rest = begin / extent;
    for (std::size_t at = loops_.size() - 1; at-- > 0 && rest > 0;) {
        offset += rest % loops_[at].extent * loops_[at].operands[operand];
        rest /= loops_[at].extent;
    }
    return offset;
}

template <typename Body>
void Walk::each_run(std::size_t operand, std::int64_t begin, std::int64_t count, std::size_t levels,
                    const Body &body) const {
    std::array<std::int64_t, kMostLoops + 1> index;
    const std::size_t outer = loops_.size() - levels;
    const bool lacks = lacks_padding(operand);
    std::int64_t extent = 1, offset = 0;
    for (std::size_t at = outer; at < loops_.size(); ++at) extent *= loops_[at].extent;
    std::int64_t first = begin % extent, rest = begin / extent;
    for (std::size_t at = outer; at-- > 0;) {
        index[at] = rest % loops_[at].extent;
        rest /= loops_[at].extent;
        offset += index[at] * loops_[at].operands[operand];
    }
    for (std::int64_t done = 0; done < count;) {
        const std::int64_t length = std::min(count - done, extent - first);
        std::int64_t read = length;
        if (lacks && index[static_cast<std::size_t>(block_)] ==
                         loops_[static_cast<std::size_t>(block_)].extent - 1) {
            read = std::clamp<std::int64_t>(valid_ - first, 0, length);
        }
        body(done, read, length - read, offset, first);
        done += length;
        first = 0;
        for (std::size_t at = outer; at-- > 0;) {
            offset += loops_[at].operands[operand];
            if (++index[at] < loops_[at].extent) break;
            offset -= index[at] * loops_[at].operands[operand];
            index[at] = 0;
        }
    }
}

bool Walk::repeats_few(std::size_t operand) const {
    constexpr std::int64_t kFew = 64;
    if (lacks_padding(operand) || loops_.size() < 2) return false;
    const Loop &inner = loops_.back(), &outer = loops_[loops_.size() - 2];
    return inner.extent <= kFew && inner.operands[operand] != 0 && outer.operands[operand] == 0;
}

// Copies `count` elements that are `step` apart.
template <class From, class To>
void copy_each(const From *from, std::int64_t count, std::int64_t step, To *to) {
    if (step == 1) {
        for (std::int64_t i = 0; i < count; ++i) to[i] = as<To>(from[i]);
    } else {
        for (std::int64_t i = 0; i < count; ++i) to[i] = as<To>(from[i * step]);
    }
}

template <class From, class To>
void Walk::gather(std::size_t operand, const From *from, std::int64_t begin, std::int64_t count,
                  To *to) const {
    const std::int64_t step = loops_.back().operands[operand];
    if (repeats_few(operand)) {
        // The elements of a period, and then copies of what is there already.
        const std::int64_t extent = loops_.back().extent;
        each_run(operand, begin, count, 2,
                 [&](std::int64_t at, std::int64_t read, std::int64_t, std::int64_t offset,
                     std::int64_t first) {
                     To *target = to + at;
                     std::int64_t there = std::min(extent, read);
                     const std::int64_t place = first % extent;
                     const std::int64_t rest = std::min(extent - place, there);
                     copy_each(from + offset + place * step, rest, step, target);
                     copy_each(from + offset, there - rest, step, target + rest);
                     for (; there < read; there += std::min(there, read - there)) {
                         std::copy_n(target, std::min(there, read - there), target + there);
                     }
                 });
        return;
    }
    each_run(operand, begin, count, 1,
             [&](std::int64_t at, std::int64_t read, std::int64_t padding, std::int64_t offset,
                 std::int64_t first) {
                 const From *source = from + offset + first * step;
                 To *target = to + at;
                 if (step == 0) {
                     if (read > 0) std::fill_n(target, read, as<To>(*source));
                 } else {
                     copy_each(source, read, step, target);
                 }
                 std::fill_n(target + read, padding, To{});
             });
}

template <class T>
void Walk::clear_padding(std::int64_t begin, std::int64_t count, T *data) const {
    if (!is_padded()) return;
    const std::int64_t lanes = loops_.back().extent, end = begin + count;
    std::int64_t block = 1;  // elements of one block of channels
    for (auto at = static_cast<std::size_t>(block_) + 1; at < loops_.size(); ++at) {
        block *= loops_[at].extent;
    }
    const std::int64_t all = block * loops_[static_cast<std::size_t>(block_)].extent;
    for (std::int64_t last = begin / all * all + all - block; last < end; last += all) {
        const std::int64_t to = std::min(last + block, end);
        for (auto at = std::max(last, begin / lanes * lanes); at < to; at += lanes) {
            const std::int64_t first = std::max(at + valid_, begin);
            const std::int64_t after = std::min(at + lanes, to);
            if (first < after) std::fill(data + first - begin, data + after - begin, T{});
        }
    }
}

template void Walk::gather(std::size_t, const float *, std::int64_t, std::int64_t, float *) const;
template void Walk::gather(std::size_t, const Bfloat16 *, std::int64_t, std::int64_t,
                           float *) const;
template void Walk::gather(std::size_t, const std::uint8_t *, std::int64_t, std::int64_t,
                           std::uint8_t *) const;
template void Walk::clear_padding(std::int64_t, std::int64_t, float *) const;
template void Walk::clear_padding(std::int64_t, std::int64_t, Bfloat16 *) const;
template void Walk::clear_padding(std::int64_t, std::int64_t, std::uint8_t *) const;

}  // namespace stridewise
