// Winograd convolution with strides and of volumes: pixels of the source become the channels of one
// pixel. With strides these are s x s pixels, of which the convolution has strides of 1 and a
// window of 1/s as many taps along each axis. In volumes they are those at the same place of all
// slices that the window meets, of which the convolution is one over two axes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "winograd/winograd.hpp"

namespace stridewise {

// The slices of a volume, which are images one after the other, and the window along them.
struct WinogradSlices {
    std::int64_t count = 1;  // of the source
    std::int64_t taps = 1, stride = 1, dilation = 1;
    std::int64_t front = 0, back = 0;  // padding

    // Places of the window less one, in steps of one slice; negative if it does not fit.
    std::int64_t room() const { return count + front + back - (taps - 1) * dilation - 1; }
    std::int64_t results() const { return room() / stride + 1; }
};

class StridedWinograd : public Kernel {
  public:
    // `options` are those of the convolution with strides, whose images are slices; a source that
    // is not channels-last is row-major NCHW. Throws std::invalid_argument if the kernels do not
    // support the operation.
    StridedWinograd(const WinogradOptions &options, const std::array<std::int64_t, 2> &strides,
                    const WinogradSlices &slices, const PostOps &post_ops);

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
    std::int64_t result_images() const {
        return options_.images / slices_.count * slices_.results();
    }
    std::size_t folded_nbytes() const;
    // Folds the sources of `count` images of the result from `first` on.
    template <class T>
    void fold(const T *source, std::int64_t first, std::int64_t count, T *folded) const;
    template <class T>
    void fold_row(const T *source, std::int64_t image, std::int64_t row, T *folded) const;
    struct Pixels {
        std::int64_t begin, end;
    };
    Pixels inside(std::int64_t across) const;
    template <class T>
    void fold_phases(const T *row, std::int64_t phase, T *folded) const;
    template <class T>
    void fold_span(const T *row, std::int64_t offset, std::int64_t step, std::int64_t place,
                   std::int64_t span, Pixels pixels, T *folded) const;

    WinogradOptions options_;
    std::array<std::int64_t, 2> strides_;
    WinogradSlices slices_;
    Winograd kernel_;                 // of some images of the folded source, which fit the caches
    std::shared_ptr<Winograd> rest_;  // of fewer images, which are left; may be null
    std::vector<int> images_;         // positions in args_ of the result and tensors like it
};

}  // namespace stridewise
