// The gradient of the weights of a depthwise convolution.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "depthwise/gradients.hpp"
#include "executor/kernel.hpp"
#include "support/images.hpp"

namespace stridewise {

// Sums are over rows in one order, which does not depend on the number of threads.
class DepthwiseWeightGradient : public Kernel {
  public:
    // Throws std::invalid_argument if the kernels do not support the operation.
    explicit DepthwiseWeightGradient(GradientOptions options);

    std::string impl() const override { return "depthwise_weights:" + options_.isa; }
    std::size_t scratchpad_nbytes() const override;
    MemoryDesc arg_desc(int arg) const override;
    void execute(const std::vector<void *> &data, void *scratchpad) const override;

  private:
    struct Call;
    // Rows of gradients of one image.
    struct Band {
        std::int64_t image, first, end;
    };

    Band band_of(std::int64_t number) const;
    void gather(const Call &call, const Band &band, std::int64_t pair, std::int64_t first,
                std::int64_t last, float *ring) const;
    void add_row(const Call &call, const Band &band, std::int64_t pair, std::int64_t y, float *ring,
                 float *sums) const;
    void compute(const Call &call, std::int64_t item, float *rings) const;
    void finish(const Call &call, std::int64_t pair) const;

    GradientOptions options_;
    const DepthwiseKernels *kernels_;
    std::int64_t pairs_, taps_;
    // Bands of an image; parts, each of some bands, that are summed up by themselves; groups of
    // pairs that one item computes.
    std::int64_t bands_, parts_, splits_;
    // Sizes in elements: a row of the source with its margins, and what one pair needs: the rows
    // that a window meets, a row of zeros, and a row of gradients.
    std::int64_t ring_rows_, row_count_, ring_count_;
    ImageStrides source_, gradient_;
};

}  // namespace stridewise
