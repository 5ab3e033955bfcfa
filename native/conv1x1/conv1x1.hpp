// 1x1 convolution whose source may be multiplied by a factor for each channel of each image.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "conv1x1/kernels.hpp"
#include "conv1x1/products.hpp"
#include "executor/kernel.hpp"
#include "onednn/primitives.hpp"
#include "support/images.hpp"

namespace stridewise {

struct Conv1x1Options {
    std::int64_t images, channels, height, width;  // of the source
    std::int64_t outputs;
    std::int64_t down, across;  // strides
    std::int64_t groups;        // of channels and outputs; whole vectors in blocked formats
    int lanes;                  // elements of a vector: 8 or 16
    bool channels_last;         // otherwise channels in blocks of one vector
    bool has_bias;
    bool has_factor;
    HalfSides halves;  // products are of pairs of bfloat16 if the source is
    int threads;
    std::string isa;  // one of kernel_isas(lanes); "" for the best
};

// The argument id of the factors.
constexpr int kConv1x1Factor = DNNL_ARG_SRC_1;

class Conv1x1 : public Kernel {
  public:
    // The first `between` post-ops are applied to the source, after the factor, and have no
    // operands. Sources of bfloat16 have whole pairs of channels, which are last, and neither
    // factors, groups nor post-ops of their own. Throws std::invalid_argument if the kernels do not
    // support the operation.
    Conv1x1(Conv1x1Options options, const PostOps &post_ops, std::size_t between);

    std::string impl() const override { return "conv1x1:" + options_.isa; }
    std::size_t scratchpad_nbytes() const override;
    MemoryDesc arg_desc(int arg) const override;
    void execute(const std::vector<void *> &data, void *scratchpad) const override;

  private:
    struct Call;
    // The pixels and the pairs of vectors of results of a group that are one item of work.
    struct Item {
        std::int64_t image, group, pixel, pixel_end, pair, pair_end;
    };

    void plan_stages(const PostOps &post_ops, std::size_t between);
    std::int64_t product_rows() const;
    void plan_items();
    std::int64_t item_count() const { return options_.images * options_.groups * bands_ * splits_; }
    Item item(std::int64_t index) const;
    // Whether products read a copy of the pixels of the source.
    bool gathers() const {
        const bool scales_pixels = options_.has_factor && !scales_weights_;
        return scales_pixels || is_strided() || !before_.empty();
    }
    bool is_strided() const { return options_.down > 1 || options_.across > 1; }
    // Channels of an element of products, which has the size of a float32.
    std::int64_t channels_each() const { return options_.halves.source ? 2 : 1; }
    std::int64_t source_offset(std::int64_t pixel) const;
    const float *source_of(const Call &call, const Item &item) const;
    void gather(const Call &call, const Item &item, float *gathered) const;
    void scale_weights(const Call &call, const Item &item, float *scaled) const;
    void compute(const Call &call, const Item &item, const float *weights, bool is_gathered,
                 float *scratch) const;

    Conv1x1Options options_;
    const Conv1x1Kernels *kernels_;
    std::int64_t height_, width_, pixels_;  // of the result
    // Of a group: elements of channels, outputs, and their vectors.
    std::int64_t channels_, outputs_, chunks_, pairs_;
    std::int64_t bands_, splits_;  // of the pixels of an image, and of the pairs of a group
    bool scales_weights_;          // by the factors, because they are fewer than pixels
    std::optional<Products> products_;
    // Sizes in elements: the copies of source pixels and of weights of an item, and the scratchpad
    // of one thread.
    std::int64_t gathered_count_, scaled_count_, thread_count_;
    ImageStrides source_, result_;
    std::vector<Stage> before_, stages_;
    std::vector<int> operands_;  // for each of stages_, the index of its operand in args(), or -1
};

}  // namespace stridewise
