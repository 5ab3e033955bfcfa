// Reductions over any axes of what is stored row-major: sums, means, norms, products, extremes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "executor/kernel.hpp"

namespace stridewise {

// The library's reductions of anything but the innermost axes are loops over single elements, and
// its maximum and minimum lose NaN, and infinities where there is nothing else.
class Fold : public Kernel {
  public:
    // `algorithm` is one of max, min, sum, mean, mul, l1, l2 and sum_square; the result has the
    // source's extents, but 1 along the axes that go. Throws std::invalid_argument otherwise.
    Fold(const std::string &algorithm, const Dims &source, const Dims &result, int threads);

    std::string impl() const override { return "fold"; }
    int threads() const override { return threads_; }
    std::size_t scratchpad_nbytes() const override { return 0; }
    const std::vector<int> &args() const override { return args_; }
    MemoryDesc arg_desc(int arg) const override;
    void execute(const std::vector<void *> &data, void *scratchpad) const override;

    struct Digit {
        std::int64_t extent, stride;  // of the source
    };

    // Where the elements of one part of the work lie.
    struct Walk {
        std::vector<Digit> kept;  // without the run of elements that are kept
        std::vector<Digit> gone;  // without the run of elements that go
        std::int64_t run;         // contiguous elements, all kept or all gone
        bool run_is_kept;
        double scale;  // of the whole
    };
    using Part = void (*)(const Walk &walk, const float *source, float *result, int part,
                          int parts);

  private:
    MemoryDesc source_, result_;
    Walk walk_;
    Part part_;
    int threads_;
    std::vector<int> args_;
};

}  // namespace stridewise
