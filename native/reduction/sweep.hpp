// Reductions of a tensor in any format over any of its axes.
#pragma once

#include <cstdint>
#include <vector>

#include "pointwise/walk.hpp"
#include "reduction/kernels.hpp"

namespace stridewise {

// The work of a reduction: tasks give results, and slices of a task take in some of its elements.
// Neither depends on the number of threads, so that results don't either.
class Sweep {
  public:
    // Results that lie at place, place + step, ... of the result's memory.
    struct Task {
        std::int64_t from;  // the first element of the source
        std::int64_t place, step, count;
    };

    // `result` has the extents of `source`, or 1 along the axes that are reduced. Throws
    // std::invalid_argument as Walk does.
    Sweep(const MemoryDesc &source, const MemoryDesc &result);

    std::int64_t tasks() const { return tasks_; }
    std::int64_t slices() const { return slices_; }
    // The number of elements that each result is made of.
    std::int64_t terms() const { return terms_; }
    Task task(std::int64_t number) const;
    // Stores what a slice of a task finds in `found`, one for each of its results. `shift` has what
    // the kernel subtracts, by the places of results; null where it subtracts nothing.
    void run(const ReductionKernel &kernel, const Task &task, std::int64_t slice,
             const void *source, const float *shift, double *found) const;

  private:
    struct Loop {
        std::int64_t extent, source, result;
        bool is_block;
    };
    // Elements that are reduced: runs of `run` neighbors, or single ones where neighbors are kept.
    struct Box {
        std::vector<Loop> loops;  // outermost first; there is at least one
        std::int64_t begin, run, rows;
    };
    struct Partial;

    // Makes the innermost loop one over neighbors that are kept, if the run that is reduced is
    // short and those of all results lie side by side: `gone` are the other loops that are reduced.
    void fold_run(const std::vector<Loop> &gone);
    void add_box(std::vector<Loop> loops, std::int64_t begin, std::int64_t run);
    void make_boxes(const std::vector<Loop> &gone, std::int64_t last_run);
    void run_box(const ReductionKernel &kernel, const Task &task, const Box &box,
                 std::int64_t slice, const void *source, Partial &partial) const;

    std::vector<Loop> kept_;  // without the run of neighbors
    std::vector<Box> boxes_;
    Loop run_{};  // the innermost loop
    bool run_is_kept_;
    std::int64_t valid_;     // neighbors in the last block of an axis; 0 where there is no padding
    std::int64_t fold_ = 1;  // neighbors of a run that is kept which are one result
    std::int64_t chunk_ = 0,
                 chunks_ = 1;  // neighbors of a task, and tasks of each run that is kept
    std::int64_t width_ = 4;   // partial results of a run that is reduced, a power of 2
    std::int64_t tasks_ = 1, slices_ = 1, terms_ = 1;
};

}  // namespace stridewise
