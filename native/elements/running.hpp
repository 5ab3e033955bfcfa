// Running sums and products along an axis.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "executor/kernel.hpp"

namespace stridewise {

class Running : public Kernel {
  public:
    // Source and result are [outer, rows, inner], dense, of f32, f64, s32 or s64. `op` is "cumsum"
    // or "cumprod"; floats are added up and multiplied in double precision, integers wrap around.
    // An exclusive result leaves out the element itself, a reverse one begins at the end.
    Running(const std::string &op, const std::string &type, const Dims &extents, bool is_exclusive,
            bool is_reverse, int threads);

    std::string impl() const override { return "running:portable"; }
    // As bytes.
    MemoryDesc arg_desc(int arg) const override;
    void execute(const std::vector<void *> &data, void *scratchpad) const override;

  private:
    // One part of the columns; steps are in elements, and negative from the end.
    using Loop = void (*)(const void *from, void *to, std::int64_t rows, std::int64_t step,
                          std::int64_t columns, bool is_exclusive);

    Loop loop_;
    std::int64_t outer_, rows_, inner_, nbytes_;
    bool is_exclusive_, is_reverse_;
};

}  // namespace stridewise
