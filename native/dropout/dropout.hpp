// Dropout: elements that a counter draws become 0, the others are scaled up.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "executor/kernel.hpp"

namespace stridewise {

class Dropout : public Kernel {
  public:
    // `images` is float32 and dense, in row-major order of the user's axes: the random number of an
    // element depends on its place in that order. `share` of the elements are dropped.
    Dropout(const MemoryDesc &images, double share, std::int64_t stream, int threads);

    std::string impl() const override { return "dropout:portable"; }
    // DNNL_ARG_SRC_1 is the counter: four numbers below 2^24, the low and the high half of the
    // run's number and of the seed.
    MemoryDesc arg_desc(int arg) const override;
    void execute(const std::vector<void *> &data, void *scratchpad) const override;

  private:
    MemoryDesc images_, counter_;
    std::uint32_t least_, stream_;
    float scale_;
};

}  // namespace stridewise
