// Functions of tensors of bytes, by a table of 256 results.
#pragma once

#include <string>
#include <vector>

#include "executor/kernel.hpp"

namespace stridewise {

class Lookup : public Kernel {
  public:
    // Both are s8 or u8, in the same dense format. `isa` is one of lookup_isas(), "" for the best.
    Lookup(const MemoryDesc &src, const MemoryDesc &dst, int threads, const std::string &isa);

    std::string impl() const override { return "lookup:" + isa_; }
    // The table is DNNL_ARG_WEIGHTS: the result for each byte of the source, as 0 to 255.
    MemoryDesc arg_desc(int arg) const override;
    void execute(const std::vector<void *> &data, void *scratchpad) const override;

  private:
    MemoryDesc src_, dst_, table_;
    std::string isa_;
};

// The instruction sets with kernels that this processor has and the library may use, best first.
std::vector<std::string> lookup_isas();

}  // namespace stridewise
