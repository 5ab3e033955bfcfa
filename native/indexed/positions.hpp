// Positions of the greatest or the least elements along an axis.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "executor/kernel.hpp"

namespace stridewise {

// Element [outer, inner] of the result is where the source [outer, rows, inner] has its greatest or
// least element along the rows. NaN counts as greatest and as least, as in NumPy.
class Positions : public Kernel {
  public:
    // `what` is "arg_max" or "arg_min". The source is f32 and dense. The result has 64-bit
    // integers, described as two s32 each: [outer, inner, 2]. Of equal elements the first one
    // counts, or the last one.
    Positions(const std::string &what, bool is_last, const MemoryDesc &src, const MemoryDesc &dst,
              int threads);

    std::string impl() const override { return "positions:portable"; }
    MemoryDesc arg_desc(int arg) const override;
    void execute(const std::vector<void *> &data, void *scratchpad) const override;

  private:
    // Writes the positions of `count` columns that are `step` elements from row to row.
    using Find = void (*)(const float *from, std::int64_t *to, std::int64_t rows, std::int64_t step,
                          std::int64_t count);

    MemoryDesc src_, dst_;
    std::int64_t outer_, rows_, inner_;
    Find find_;
};

}  // namespace stridewise
