// Elementwise operators of two operands with any broadcast, in any format without padding.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "executor/kernel.hpp"
#include "pointwise/kernels.hpp"

namespace stridewise {

// The library's binary operators with operands that are broadcast along inner axes, or along axes
// of a block, are loops over single elements.
class Pointwise : public Kernel {
  public:
    // `algorithm` is one of add, sub, mul, div, max and min. Operands have the extents of the
    // result, or 1 where they are broadcast. `isa` is one of pointwise_isas(), "" for the best.
    // Throws std::invalid_argument where the operation is none of this kind: another dtype, a
    // format with padding, or blocks that the result does not have.
    Pointwise(const std::string &algorithm, const MemoryDesc &a, const MemoryDesc &b,
              const MemoryDesc &result, int threads, const std::string &isa);

    std::string impl() const override { return "pointwise:" + isa_; }
    int threads() const override { return threads_; }
    std::size_t scratchpad_nbytes() const override { return 0; }
    const std::vector<int> &args() const override { return args_; }
    MemoryDesc arg_desc(int arg) const override;
    void execute(const std::vector<void *> &data, void *scratchpad) const override;

  private:
    // A loop over results; distances in elements.
    struct Axis {
        std::int64_t extent, result, a, b;
    };

    static std::vector<Axis> axes_of(const MemoryDesc &a, const MemoryDesc &b,
                                     const MemoryDesc &result);
    void run(std::int64_t first, std::int64_t last, PointwiseRows rows) const;

    MemoryDesc a_, b_, result_;
    std::string isa_;
    void (*kernel_)(const PointwiseRows &rows);
    int threads_;
    std::vector<int> args_;
    Axis inner_;               // results that follow one another
    std::vector<Axis> outer_;  // the others, the last one fastest; there is at least one
    std::int64_t pieces_;      // that each inner row is cut into, where there are few rows
    std::int64_t units_;       // pieces of all rows
};

// The instruction sets with kernels that this processor has and the library may use, best first.
std::vector<std::string> pointwise_isas();

}  // namespace stridewise
