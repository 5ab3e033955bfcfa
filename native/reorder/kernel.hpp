// A reorder as a step of a program.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "executor/kernel.hpp"
#include "reorder/reorder.hpp"

namespace stridewise {

class ReorderKernel : public Kernel {
  public:
    // Throws std::invalid_argument if the reorder does not fit memory of these sizes.
    ReorderKernel(Reorder reorder, MemoryDesc src, MemoryDesc dst, int threads, std::string isa);

    std::string impl() const override { return "reorder:" + isa_; }
    std::size_t scratchpad_nbytes() const override { return reorder_.scratch_nbytes(threads_); }
    MemoryDesc arg_desc(int arg) const override;
    void execute(const std::vector<void *> &data, void *scratchpad) const override;

  private:
    Reorder reorder_;
    MemoryDesc src_, dst_;
    std::string isa_;
};

}  // namespace stridewise
