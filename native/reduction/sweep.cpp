#include "reduction/sweep.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>

#include "support/images.hpp"

namespace stridewise {
namespace {

// Terms that go into one partial result; joining these in double keeps rounding errors small.
constexpr std::int64_t kTerms = 128;
// With fewer tasks than this, large ones are cut into slices of at least kLeast elements.
constexpr std::int64_t kTasks = 16, kLeast = 8192;

}  // namespace

// What has been taken in so far.
struct Sweep::Partial {
    std::array<float, kReductionLanes> found, shift;
    double *whole;
    std::int64_t count;  // of wholes
    std::int64_t fold;   // neighbors that are one whole
    std::int64_t width;  // of partial results that are the only whole; 0 where neighbors are kept
    std::int64_t terms = 0;

    void clear(const ReductionKernel &kernel) {
        std::fill_n(found.begin(), width > 0 ? width : count * fold, kernel.neutral);
        terms = 0;
    }

    void flush(const ReductionKernel &kernel) {
        if (width > 0) whole[0] = kernel.combine(whole[0], kernel.join(found.data(), width));
        for (std::int64_t i = 0; width == 0 && i < count * fold; ++i) {
            double &own = whole[i / fold];
            own = kernel.combine(own, found[static_cast<std::size_t>(i)]);
        }
        clear(kernel);
    }
};

Sweep::Sweep(const MemoryDesc &source, const MemoryDesc &result)
    : valid_(Walk::valid_lanes(source)) {
    const Walk walk(source, {result});
    std::vector<Loop> gone;
    bool is_padding_kept = false;
    for (const auto &loop : walk.loops()) {
        const Loop own{loop.extent, loop.stride, loop.operands[0], loop.is_block};
        if (own.result != 0 && valid_ > 0 && loop.is_lane) is_padding_kept = true;
        (own.result == 0 ? gone : kept_).push_back(own);
        run_ = own;
    }
    run_is_kept_ = run_.result != 0;
    (run_is_kept_ ? kept_ : gone).pop_back();
    if (!run_is_kept_ && valid_ == 0) fold_run(gone);
    if (run_is_kept_) {
        chunk_ = kReductionLanes / fold_ * fold_;
        chunks_ = ceil_div(run_.extent, chunk_);
        add_box(gone, 0, 1);
    } else {
        make_boxes(gone, is_padding_kept ? 0 : valid_);
    }
    if (!is_padding_kept && run_is_kept_) valid_ = 0;
    for (const auto &loop : kept_) tasks_ *= loop.extent;
    tasks_ *= chunks_;
    terms_ = 0;
    for (const auto &box : boxes_) {
        terms_ += box.rows * box.run;
        while (!run_is_kept_ && width_ < std::min(box.run, kReductionLanes)) width_ *= 2;
    }
    const std::int64_t work = terms_ * (run_is_kept_ ? std::min(run_.extent, chunk_) : 1);
    terms_ *= fold_;
    slices_ =
        std::clamp<std::int64_t>(kTasks / tasks_, 1, std::max<std::int64_t>(work / kLeast, 1));
}

void Sweep::fold_run(const std::vector<Loop> &gone) {
    constexpr std::int64_t kFew = 8;  // rows below which joining neighbors would take longer
    std::int64_t rows = 1;
    for (const auto &loop : gone) rows *= loop.extent;
    const bool is_short = run_.source == 1 && run_.extent <= kReductionLanes / 2;
    if (!is_short || kept_.empty() || rows < kFew) return;
    const Loop &outer = kept_.back();
    if (outer.source != run_.extent) return;
    fold_ = run_.extent;
    run_ = {outer.extent * fold_, 1, outer.result, false};
    run_is_kept_ = true;
    kept_.pop_back();
}

void Sweep::add_box(std::vector<Loop> loops, std::int64_t begin, std::int64_t run) {
    if (loops.empty()) loops.push_back({1, 0, 0, false});
    std::int64_t rows = 1;
    for (const auto &loop : loops) rows *= loop.extent;
    if (rows > 0) boxes_.push_back({std::move(loops), begin, run, rows});
}

// Runs are cut into rows of up to kReductionLanes, and the last block of a padded axis stands
// apart.
void Sweep::make_boxes(const std::vector<Loop> &gone, std::int64_t last_run) {
    if (last_run > 0) {
        std::vector<Loop> full = gone, last;
        std::int64_t begin = 0;
        for (auto &loop : full) {
            if (!loop.is_block) {
                last.push_back(loop);
                continue;
            }
            begin = --loop.extent * loop.source;
        }
        add_box(full, 0, run_.extent);
        add_box(last, begin, last_run);
        return;
    }
    std::int64_t row = kReductionLanes;  // or less, where that leaves no rest
    for (std::int64_t shorter = row; shorter >= row / 4; shorter -= row / 4) {
        if (run_.extent % shorter == 0) {
            row = shorter;
            break;
        }
    }
    const std::int64_t rows = run_.extent / row, rest = run_.extent % row;
    std::vector<Loop> loops = gone;
    if (rows > 1 || gone.empty()) loops.push_back({rows, row * run_.source, 0, false});
    if (rows > 0) add_box(loops, 0, row);
    if (rest > 0) add_box(gone, rows * row * run_.source, rest);
}

Sweep::Task Sweep::task(std::int64_t number) const {
    const std::int64_t first = number % chunks_ * chunk_;
    Task task{0, 0, 0, 1};
    if (run_is_kept_) {
        task = {first * run_.source, first / fold_ * run_.result, run_.result,
                std::min(chunk_, run_.extent - first) / fold_};
    }
    number /= chunks_;
    bool is_last = true;
    for (std::size_t at = kept_.size(); at-- > 0;) {
        const Loop &loop = kept_[at];
        const std::int64_t index = number % loop.extent;
        number /= loop.extent;
        task.from += index * loop.source;
        task.place += index * loop.result;
        if (loop.is_block) is_last = index + 1 == loop.extent;
    }
    if (run_is_kept_ && valid_ > 0 && is_last) task.count = std::min(task.count, valid_ - first);
    return task;
}

void Sweep::run_box(const ReductionKernel &kernel, const Task &task, const Box &box,
                    std::int64_t slice, const void *source, Partial &partial) const {
    const Loop &inner = box.loops.back();
    const bool is_single = box.loops.size() == 1;  // divisions would take longer than the kernel
    const std::int64_t last = box.rows * (slice + 1) / slices_;
    for (std::int64_t row = box.rows * slice / slices_; row < last;) {
        std::int64_t offset = task.from + box.begin, number = row, left = last - row;
        if (is_single) {
            offset += row * inner.source;
        } else {
            left = std::min(left, inner.extent - row % inner.extent);
            for (std::size_t at = box.loops.size(); at-- > 0;) {
                offset += number % box.loops[at].extent * box.loops[at].source;
                number /= box.loops[at].extent;
            }
        }
        const std::int64_t rows = std::min(left, kTerms - partial.terms);
        kernel.run({static_cast<const std::byte *>(source) + offset * kernel.nbytes,
                    run_is_kept_ ? task.count * fold_ : box.run, rows, inner.source,
                    partial.shift.data(), partial.found.data()});
        row += rows;
        partial.terms += rows;
        if (partial.terms == kTerms) partial.flush(kernel);
    }
}

void Sweep::run(const ReductionKernel &kernel, const Task &task, std::int64_t slice,
                const void *source, const float *shift, double *found) const {
    Partial partial;
    partial.whole = found;
    partial.count = task.count;
    partial.fold = fold_;
    partial.width = run_is_kept_ ? 0 : width_;
    partial.clear(kernel);
    const std::int64_t lanes = run_is_kept_ ? task.count * fold_ : width_;
    for (std::int64_t i = 0; i < lanes; ++i) {
        const std::int64_t place = task.place + i / fold_ * task.step;
        partial.shift[static_cast<std::size_t>(i)] = shift == nullptr ? 0.0F : shift[place];
    }
    std::fill_n(found, task.count, static_cast<double>(kernel.neutral));
    for (const auto &box : boxes_) run_box(kernel, task, box, slice, source, partial);
    partial.flush(kernel);
}

}  // namespace stridewise
