// Batch norm in training, with what is fused into it, and its gradients.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "batch_norm/kernels.hpp"
#include "executor/kernel.hpp"

namespace stridewise {

struct BatchNormOptions {
    // Of the source and the result: float32 or bfloat16; plain, channels last, or in blocks.
    MemoryDesc images;
    float epsilon;
    float low, high;  // bounds of results; infinite where there are none
    int threads;
    std::string isa;  // one of pointwise_isas(is_half(images)); "" for the best
};

// The work on a tensor: its channels in groups, the pixels of each in slices. Neither depends on
// the number of threads, so that sums don't either.
class BatchNormWork {
  public:
    // Throws std::invalid_argument if the kernels do not support the operation.
    BatchNormWork(BatchNormOptions options, bool adds, bool masks);

    const BatchNormOptions &options() const { return options_; }
    const NormKernels &kernels() const { return *kernels_; }
    std::int64_t channels() const { return channels_; }
    std::int64_t width() const { return width_; }  // channels of a group
    std::int64_t padded() const { return groups_ * width_; }
    std::int64_t pixels() const { return segments_ * rows_; }
    std::int64_t slices() const { return slices_; }
    std::int64_t slice_pixels(std::int64_t slice) const;
    MemoryDesc row_desc() const { return MemoryDesc({channels_}, "f32", "a"); }

    using Loop = void (*)(const NormRows &rows);
    // Runs a loop over the pixels of a slice of a group, at most `most` of them. The rows have the
    // addresses of whole tensors, and of numbers of all channels.
    void run(Loop loop, const NormRows &whole, std::int64_t group, std::int64_t slice,
             std::int64_t most) const;
    // Calls body(group, slice) for all, on several threads. Backwards, each thread begins with what
    // it had last.
    template <class Body>
    void each(bool backwards, const Body &body) const;
    // Calls body(first, end) for parts of the channels, on several threads.
    template <class Body>
    void each_channels(const Body &body) const;

  private:
    BatchNormOptions options_;
    const NormKernels *kernels_;
    bool of_pixels_;
    std::int64_t channels_, groups_, width_, segments_, rows_, slices_;
    std::int64_t group_stride_, segment_stride_, row_stride_;  // in elements
};

// DST, MEAN and VARIANCE of SRC, SCALE and SHIFT; the first post-op's operand is added if `adds`.
class BatchNorm : public Kernel {
  public:
    BatchNorm(BatchNormOptions options, bool adds);

    std::string impl() const override { return "batch_norm:" + work_.options().isa; }
    std::size_t scratchpad_nbytes() const override;
    std::vector<int> written() const override;
    MemoryDesc arg_desc(int arg) const override;
    void execute(const std::vector<void *> &data, void *scratchpad) const override;

  private:
    BatchNormWork work_;
};

// DST, DIFF_SCALE and DIFF_SHIFT of SRC, DIFF_DST, SCALE, MEAN and VARIANCE. If `masks`, DIFF_DST
// counts where the result, which SHIFT is needed for, lies between the bounds.
class BatchNormGradient : public Kernel {
  public:
    BatchNormGradient(BatchNormOptions options, bool masks);

    std::string impl() const override { return "batch_norm_gradient:" + work_.options().isa; }
    std::size_t scratchpad_nbytes() const override;
    std::vector<int> written() const override;
    MemoryDesc arg_desc(int arg) const override;
    void execute(const std::vector<void *> &data, void *scratchpad) const override;

  private:
    BatchNormWork work_;
    bool masks_;
};

}  // namespace stridewise
