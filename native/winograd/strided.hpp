// Winograd convolution with strides: s x s pixels of the source become the channels of one pixel,
// of which the convolution has strides of 1 and a window of 1/s as many taps along each axis.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "winograd/winograd.hpp"

namespace stridewise {

class StridedWinograd : public Kernel {
  public:
    // `options` are those of the convolution with strides; a source that is not channels-last is
    // row-major NCHW. Throws std::invalid_argument if the kernels do not support the operation.
    StridedWinograd(const WinogradOptions &options, const std::array<std::int64_t, 2> &strides,
                    const PostOps &post_ops);

    std::string impl() const override { return "strided_" + kernel_.impl(); }
    std::size_t scratchpad_nbytes() const override;
    MemoryDesc arg_desc(int arg) const override;
    void execute(const std::vector<void *> &data, void *scratchpad) const override;

    // Like those of Winograd; weights have the user's window.
    void pack(const float *weights, void *packed, std::int64_t first, std::int64_t count) const;
    std::int64_t outputs() const { return options_.outputs; }
    std::int64_t pair_outputs() const { return kernel_.pair_outputs(); }
    std::size_t weights_nbytes() const;

  private:
    std::size_t folded_nbytes() const;
    template <class T>
    void fold(const T *source, T *folded) const;
    template <class T>
    void fold_row(const T *image, std::int64_t row, T *folded) const;

    WinogradOptions options_;
    std::array<std::int64_t, 2> strides_;
    Winograd kernel_;  // of the folded source
};

}  // namespace stridewise
