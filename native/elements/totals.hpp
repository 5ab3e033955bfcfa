// Sums, means and extremes of few elements along an axis, and of any number of integers.
#pragma once

#include <cstdint>
#include <string>

#include "executor/kernel.hpp"

namespace stridewise {

class Totals : public Kernel {
  public:
    // The source is [outer, rows, inner], the result [outer, inner], both dense and of f32, s32 or
    // s64. `op` is "sum", "max", "min" or, for f32, "mean", "l1", "l2" or "sum_square". Sums of
    // integers wrap around; those of f32 are added in their order, so that rows should be few. NaN
    // is propagated.
    Totals(const std::string &op, const std::string &type, const Dims &extents, int threads);

    std::string impl() const override { return "totals:portable"; }
    // As bytes.
    MemoryDesc arg_desc(int arg) const override;
    void execute(const std::vector<void *> &data, void *scratchpad) const override;

  private:
    // Some results beside one another; steps between rows and between results are in elements.
    using Loop = void (*)(const void *from, void *to, std::int64_t rows, std::int64_t row_step,
                          std::int64_t step, std::int64_t count);

    Loop loop_;
    std::int64_t outer_, rows_, inner_, nbytes_;
};

}  // namespace stridewise
