// Transposed depthwise convolution, which is also the gradient of a depthwise convolution's source.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "depthwise/gradients.hpp"
#include "executor/kernel.hpp"
#include "onednn/primitives.hpp"
#include "support/images.hpp"

namespace stridewise {

// Weights are float32 and row-major, as a run gives them. Each result is one sum in a fixed order.
class TransposedDepthwise : public Kernel {
  public:
    // Throws std::invalid_argument if the kernels do not support the operation.
    TransposedDepthwise(GradientOptions options, const PostOps &post_ops);

    std::string impl() const override { return "transposed_depthwise:" + options_.isa; }
    std::size_t scratchpad_nbytes() const override;
    MemoryDesc arg_desc(int arg) const override;
    void execute(const std::vector<void *> &data, void *scratchpad) const override;

  private:
    // Results whose padded position leaves the same rest when divided by the stride. They form a
    // convolution of stride 1 with some of the taps, in reverse order.
    struct Phase {
        std::int64_t first, count;     // results along the axis, a stride apart
        std::int64_t tap, taps, step;  // the first tap, and from one tap to the next
        std::int64_t source;           // position that the last tap has for the first result
        const DepthwiseKernels *kernels;
    };
    struct Call;

    std::vector<Phase> phases_of(std::size_t axis) const;
    std::int64_t dilation(std::size_t axis) const;
    void plan_items();
    void pack(const float *weights, std::int64_t pair, float *packed) const;
    void compute(const Call &call, std::int64_t item, float *rings) const;
    void compute_row(const Call &call, std::int64_t image, std::int64_t pair, std::int64_t y,
                     const float *ring) const;

    GradientOptions options_;
    std::array<std::vector<Phase>, 2> phases_;
    std::int64_t pairs_, bands_ = 1, splits_ = 1;
    std::int64_t left_ = 0;  // pixels of zeros before each row of the source
    // Sizes in elements: a row of the source with its margins, the rows that one result reads and
    // a row of zeros, and the packed weights of a pair of vectors.
    std::int64_t ring_rows_, row_count_, ring_count_, packed_count_;
    ImageStrides source_, result_;
    std::vector<Stage> stages_;
    std::vector<int> operands_;  // for each stage, the index of its operand in args(), or -1
};

}  // namespace stridewise
