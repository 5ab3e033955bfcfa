// Winograd convolution whose weights change from run to run: each execution transforms them.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "winograd/weights_kernels.hpp"
#include "winograd/winograd.hpp"

namespace stridewise {

class FittedWinograd : public Kernel {
  public:
    // With `is_transposed` the weights are those of a convolution from the outputs to the channels
    // of `kernel`, which then computes the gradient of that convolution's source.
    FittedWinograd(Winograd kernel, bool is_transposed);

    std::string impl() const override { return "fitted_" + kernel_.impl(); }
    std::size_t scratchpad_nbytes() const override;
    MemoryDesc arg_desc(int arg) const override;
    void execute(const std::vector<void *> &data, void *scratchpad) const override;

  private:
    struct Packer;

    std::size_t packed_nbytes() const;
    // Stores the panels of a pair in their part of `packed`.
    void pack(const float *weights, std::int64_t pair, float *packed) const;
    WinogradFilters filters_of(const float *weights, std::int64_t pair) const;
    // Stores the panels of a pair.
    void pack_quickly(const WinogradFilters &filters, std::int64_t pair, float *panels) const;

    Winograd kernel_;
    bool is_transposed_;
    bool packs_pairs_ = false;                   // see Winograd::pack_pairs
    const WinogradWeightsKernels *quick_;        // null if only Winograd::pack has the window
    std::vector<double> vertical_, horizontal_;  // the transforms of weights for `quick_`
};

}  // namespace stridewise
