// Convolution with strides of 1 in fewer multiplications.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "executor/kernel.hpp"
#include "onednn/primitives.hpp"
#include "winograd/blocking.hpp"
#include "winograd/kernels.hpp"

namespace stridewise {

struct WinogradOptions {
    std::int64_t images, channels, height, width, outputs;
    std::array<std::int64_t, 4> pads;       // top, left, bottom, right
    std::array<std::int64_t, 2> window;     // taps
    std::array<std::int64_t, 2> dilations;  // pixels from one tap to the next, 1 where adjacent
    std::int64_t groups;
    int tile;               // results along each axis that has more than one tap
    std::int64_t pool = 1;  // 2: maxima of 2x2 results are stored in their place
    int lanes;              // elements of a vector: 8 or 16
    bool channels_last;     // else channels in blocks of one vector
    bool has_bias;
    int threads;
    std::string isa;  // one of winograd_isas(lanes); "" for the best
};

// The instruction sets with kernels for vectors of 8 or 16 lanes that this processor has and the
// library is allowed to use, best first.
std::vector<std::string> winograd_isas(int lanes);

class Winograd : public Kernel {
  public:
    // Throws std::invalid_argument where the operation is none of this kind.
    Winograd(WinogradOptions options, const PostOps &post_ops);

    std::string impl() const override;
    int threads() const override { return options_.threads; }
    std::size_t scratchpad_nbytes() const override;
    const std::vector<int> &args() const override { return args_; }
    MemoryDesc arg_desc(int arg) const override;
    void execute(const std::vector<void *> &data, void *scratchpad) const override;

    // Transforms the weights of `count` outputs from `first` on, given row-major as outputs x
    // channels x window, into their part of `packed`, which has the size of
    // arg_desc(DNNL_ARG_WEIGHTS). Parts begin at multiples of pair_outputs(), and consist of such
    // but for the last one.
    void pack(const float *weights, float *packed, std::int64_t first, std::int64_t count) const;
    std::int64_t outputs() const { return options_.outputs; }
    std::int64_t pair_outputs() const { return 2 * kernels_->lanes; }
    std::size_t weights_nbytes() const;

  private:
    struct Call;
    struct Panel;

    std::int64_t window() const {
        return kernels_->tile.places_high() * kernels_->tile.places_wide();
    }
    std::int64_t tile_count() const;
    std::size_t packed_count() const;
    std::int64_t slot() const { return group_tiles_ * kernels_->lanes * chunks_; }
    // The tiles of a block in groups, each of all chunks of channels: `from` to `to` of these.
    void transform(const Call &call, std::int64_t first, std::int64_t count, std::int64_t from,
                   std::int64_t to, float *transformed) const;
    void multiply(const Call &call, std::int64_t count, std::int64_t pair, std::int64_t pair_end,
                  const float *transformed, float *products) const;
    void multiply_panel(const Panel &panel) const;
    void output(const Call &call, std::int64_t first, std::int64_t tile, std::int64_t tiles,
                std::int64_t begin, std::int64_t end, const float *products) const;
    void finish(const Call &call, std::int64_t first, std::int64_t count, std::int64_t pair,
                std::int64_t pair_end, const float *transformed, float *products) const;
    void by_tiles(const Call &call, float *scratch) const;
    void by_outputs(const Call &call, float *scratch) const;
    void by_places(const Call &call, float *scratch) const;
    void transform_together(const Call &call, std::int64_t first, std::int64_t count,
                            float *transformed) const;
    WinogradWork work() const;
    void block_tiles();
    void block_groups();
    void multiply_groups(const Call &call, std::int64_t first, std::int64_t count,
                         std::int64_t pair, std::int64_t chunk, const float *transformed,
                         float *products) const;
    void by_groups(const Call &call, float *scratch) const;

    WinogradOptions options_;
    const WinogradKernels *kernels_;
    WinogradShape shape_;
    std::int64_t chunks_, pairs_;
    std::int64_t group_chunks_;  // of one group
    // Of convolutions with groups: the fewest groups whose results are whole pairs of vectors.
    std::int64_t unit_chunks_ = 0, unit_pairs_ = 0;
    WinogradBlocking blocking_;
    std::int64_t group_tiles_ = 0;  // of one matrix product, at most
    // Distances in the scratch, in elements: of transformed pixels, [xi][group of tiles][chunk]
    // [tile][lane], or [xi][chunk][tile][lane] where channels have groups; of products, [xi][pair]
    // [tile][2 * lane]; and of all that a thread has.
    TransformedTiles transformed_;
    std::int64_t products_stride_, pair_stride_;
    std::int64_t thread_stride_;
    std::int64_t shared_ = 0;  // what all threads have together
    std::vector<int> args_;
    std::vector<Stage> stages_;
    std::vector<int> operands_;  // for each stage, which of args() its operand is, or -1
};

}  // namespace stridewise
