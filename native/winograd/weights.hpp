// The gradient of the weights of a convolution by Winograd's algorithm.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "winograd/weights_kernels.hpp"
#include "winograd/winograd.hpp"

namespace stridewise {

// The kernels for a tile and an instruction set, with vectors of some lanes; null if there are
// none.
const WinogradWeightsKernels *winograd_weights_kernels(const std::string &isa, int lanes,
                                                       const WinogradTile &tile);
// The transform of the taps of a line of a window: [place][tap].
std::vector<double> winograd_transform_matrix(int places, int taps);

// Sums are over the tiles of a slice in one order, and then over slices. Neither depends on the
// number of threads. If it divides the number of slices, each thread computes whole slices, so that
// no transformed tile passes from one core to another. On two virtual cores of Zen 4 this takes 1
// to 12 % less time, and at times, when exchanges between these are slow, half.
//
// Sums of many channels over few tiles, which exceed the caches, are those of a chunk of outputs
// after the other, each of which is finished at once: 15 to 25 % less time for 512 channels and 64
// tiles.
class WinogradWeightGradient : public Kernel {
  public:
    // Of the weights of `forward`, a convolution without groups or pooling and with square windows.
    // Throws std::invalid_argument if the kernels do not support the operation.
    explicit WinogradWeightGradient(Winograd forward);

    std::string impl() const override { return "weights_of_" + forward_.impl(); }
    std::size_t scratchpad_nbytes() const override;
    MemoryDesc arg_desc(int arg) const override;
    void execute(const std::vector<void *> &data, void *scratchpad) const override;

  private:
    struct Call;
    // A transformed image in the scratchpad, [xi][chunk][tile][lane].
    struct Transformed {
        std::int64_t chunks;
        TransformedTiles tiles;
    };

    Transformed transformed(std::int64_t channels) const;
    // Whether each thread computes slices of its own; otherwise all threads share a slice.
    bool works_apart() const { return slices_ % threads() == 0; }
    // Blocks of tiles that are transformed at the same time.
    std::int64_t blocks() const { return works_apart() ? threads() : 1; }
    // Elements of the transformed tiles of a block, and of the sums of a slice.
    std::int64_t block_count() const {
        return window_ * (pixels_.tiles.xi_stride + gradients_.tiles.xi_stride);
    }
    std::int64_t sums_count() const { return window_ * sums_stride_; }
    // Calls `body` with each item, on the calling thread if it works apart.
    template <class Body>
    void each(std::int64_t count, const Body &body) const;
    void transform(const Call &call, std::int64_t first, std::int64_t count) const;
    std::int64_t columns() const { return pixels_.chunks * lanes_; }
    // Elements from one place of the window to the next in sums of one chunk of outputs.
    std::int64_t chunk_stride() const;
    void multiply(const Call &call, std::int64_t count, bool resumes, std::int64_t xi,
                  std::int64_t output, float *sums) const;
    void transform_sums(const float *sums, std::int64_t xi_stride, std::int64_t output,
                        float *result) const;
    void add_slice(const Call &call, std::int64_t slice) const;
    void finish(float *sums, float *result) const;
    void by_outputs(const Call &call, float *result) const;

    Winograd forward_;
    const WinogradWeightsKernels *kernels_;
    std::int64_t lanes_, window_;
    std::int64_t slices_ = 1;
    std::int64_t block_ = 0;  // tiles that are transformed together
    // Whether all tiles are one block, and each chunk of outputs is finished before the next one.
    bool is_by_outputs_ = false;
    Transformed pixels_, gradients_;
    std::int64_t sums_stride_;                   // from one place of the window to the next
    std::vector<double> vertical_, horizontal_;  // the transforms of weights, [place][tap]
};

}  // namespace stridewise
