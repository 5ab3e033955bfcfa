// Winograd convolution with strides of 1.
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
#include "winograd/window.hpp"

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
    HalfSides halves;
    bool multiplies_halves = false;  // products of pairs of bfloat16, of a source of bfloat16
    bool source_last, result_last;   // channels-last; otherwise in blocks of one vector
    bool has_bias;
    int threads;
    std::string isa;  // one of kernel_isas(lanes); "" for the best
};

// Where the weights of a convolution lie, whose windows are row-major.
struct WinogradFilters {
    const float *data;             // of the first output
    std::int64_t output, channel;  // elements from one output or channel to the next
    bool is_rotated;               // by half a turn, as for the gradient of the source
};

// Transforms weights when they are needed.
class WinogradPacker {
  public:
    // Stores the transformed weights of a pair of vectors of outputs: window() * panel_count()
    // elements. Threads call it at the same time.
    virtual void pack(std::int64_t pair, float *panels) const = 0;

  protected:
    ~WinogradPacker() = default;
};

class Winograd : public Kernel {
  public:
    // Throws std::invalid_argument if the kernels do not support the operation.
    Winograd(WinogradOptions options, const PostOps &post_ops);

    std::string impl() const override;
    std::size_t scratchpad_nbytes() const override;
    MemoryDesc arg_desc(int arg) const override;
    void execute(const std::vector<void *> &data, void *scratchpad) const override;

    // Whether transformed weights of all pairs would come from memory while those of one pair and
    // the pixels of all tiles stay in the caches. From then on, each thread packs those of a pair
    // before it multiplies them, and there are no weights among the data. Results are the same.
    bool pack_pairs();
    void execute(const std::vector<void *> &data, void *scratchpad,
                 const WinogradPacker *packer) const;

    // Transforms the weights of `count` outputs from `first` on, row-major outputs x channels x
    // window, into their part of `packed`, which has the size of arg_desc(DNNL_ARG_WEIGHTS). Parts
    // start at multiples of pair_outputs(). Their sizes are such multiples, except that of the last
    // part.
    void pack(const float *weights, void *packed, std::int64_t first, std::int64_t count) const;
    // Likewise; the weights start with those of output `first`.
    void pack(const WinogradFilters &filters, void *packed, std::int64_t first,
              std::int64_t count) const;
    const WinogradOptions &options() const { return options_; }
    const WinogradShape &shape() const { return shape_; }
    const WinogradKernels &kernels() const { return *kernels_; }
    std::int64_t tile_count() const;
    std::int64_t window() const {
        return kernels_->tile.places_high() * kernels_->tile.places_wide();
    }
    // Elements of the transformed weights of a pair of vectors of outputs at one place.
    std::int64_t panel_count() const { return group_chunks_ * depth_lanes() * 2 * kernels_->lanes; }
    std::int64_t outputs() const { return options_.outputs; }
    std::int64_t pair_outputs() const { return 2 * kernels_->lanes; }
    std::size_t weights_nbytes() const;

  private:
    struct Call;
    struct Panel;

    std::size_t packed_count() const;
    // Stores transformed weights of one channel and `count` outputs from `column` on.
    void put_weights(const Floats &values, std::int64_t count, std::int64_t channel,
                     std::int64_t column, float *panel) const;
    // Lanes of a chunk of channels in products: pairs of channels, or single ones.
    std::int64_t depth_lanes() const {
        return options_.multiplies_halves ? kernels_->lanes / 2 : kernels_->lanes;
    }
    std::int64_t slot() const { return group_tiles_ * depth_lanes() * chunks_; }
    // Transforms chunks `from` to `to` of a block. Chunks are counted through the groups of tiles,
    // each of which has all chunks of channels.
    void transform(const Call &call, std::int64_t first, std::int64_t count, std::int64_t from,
                   std::int64_t to, float *transformed) const;
    void multiply(const Call &call, std::int64_t first, std::int64_t count, std::int64_t pair,
                  std::int64_t pair_end, const float *transformed, float *products) const;
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
    // Sets strides and sizes in the scratchpad from the blocking.
    void lay_out();
    void block_groups();
    void multiply_groups(const Call &call, std::int64_t first, std::int64_t count,
                         std::int64_t pair, std::int64_t chunk, const float *transformed,
                         float *products) const;
    void by_groups(const Call &call, float *scratch) const;

    WinogradOptions options_;
    const WinogradKernels *kernels_;
    WinogradShape shape_;
    std::int64_t chunks_, pairs_;
    std::int64_t group_chunks_;  // chunks of one group
    std::int64_t tail_;          // lanes of the last chunk that are multiplied
    bool is_large_;              // the result exceeds the second-level caches of all threads
    // Convolutions with groups: the smallest number of groups whose results are whole pairs of
    // vectors.
    std::int64_t unit_chunks_ = 0, unit_pairs_ = 0;
    WinogradBlocking blocking_;
    bool packs_pairs_ = false;      // see pack_pairs()
    std::int64_t group_tiles_ = 0;  // tiles of one matrix product, at most
    // Strides in the scratchpad, in elements: of transformed pixels, [xi][group of tiles][chunk]
    // [tile][lane], or [xi][chunk][tile][lane] for convolutions with groups; of products,
    // [xi][pair] [tile][2 * lane]; and of the part of one thread.
    TransformedTiles transformed_;
    std::int64_t products_stride_, pair_stride_;
    std::int64_t thread_stride_;
    std::int64_t shared_ = 0;  // elements that all threads share
    std::vector<Stage> stages_;
    std::vector<int> operands_;  // for each stage, the index of its operand in args(), or -1
};

}  // namespace stridewise
