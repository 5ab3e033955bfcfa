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

// Sums are over tiles in one order, which does not depend on the number of threads.
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
    void transform(const Call &call, std::int64_t first, std::int64_t count) const;
    void multiply(const Call &call, std::int64_t count, bool resumes) const;
    void finish(const Call &call) const;

    Winograd forward_;
    const WinogradWeightsKernels *kernels_;
    std::int64_t lanes_, window_;
    std::int64_t block_ = 0;  // tiles that are transformed together
    Transformed pixels_, gradients_;
    std::int64_t sums_stride_;                   // from one place of the window to the next
    std::vector<double> vertical_, horizontal_;  // the transforms of weights, [place][tap]
};

}  // namespace stridewise
