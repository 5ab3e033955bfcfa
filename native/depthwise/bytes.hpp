// Depthwise convolution of integers of 8 bits.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "depthwise/byte_kernels.hpp"
#include "depthwise/depthwise.hpp"
#include "executor/kernel.hpp"
#include "onednn/primitives.hpp"
#include "support/images.hpp"

namespace stridewise {

struct ByteDepthwiseOptions {
    std::int64_t images, channels, height, width;
    std::array<std::int64_t, 4> pads;  // top, left, bottom, right
    DepthwiseAxis down, across;        // of the window
    std::string source, result;        // u8 or s8; the result also f32
    int source_zero;                   // what padding is
    float result_scale;                // of results of bytes
    int result_zero;
    int lanes;           // channels of a block: 8 or 16
    bool channels_last;  // otherwise channels in blocks
    bool has_bias;
    int threads;
    std::string isa;  // one of byte_isas(); "" for the best
};

// The argument with the numbers that sums of products are multiplied by, one for each channel.
constexpr int kDepthwiseScales = DNNL_ARG_ATTR_SCALES | kDepthwiseWeights;

// Results are sums of integers, times scales, plus bias, and then post-ops, in float32; those of
// bytes are divided by their scale, rounded to the nearest, ties to even, and saturated.
class ByteDepthwise : public Kernel {
  public:
    // Operands of post-ops have a number for each channel. Throws std::invalid_argument if the
    // kernels do not support the operation.
    ByteDepthwise(ByteDepthwiseOptions options, const PostOps &post_ops);

    std::string impl() const override { return "depthwise_int8:" + options_.isa; }
    std::size_t scratchpad_nbytes() const override;
    MemoryDesc arg_desc(int arg) const override;
    void execute(const std::vector<void *> &data, void *scratchpad) const override;

  private:
    struct Call;
    struct Scratch;
    // A stage, and the index of its operand in args(), or -1.
    struct Step {
        Stage stage;
        int operand;
    };
    // The results and the groups of channels of one item of work.
    struct Item {
        std::int64_t image, row, row_end, column, column_end, group, group_end;
    };

    bool is_float() const { return options_.result == "f32"; }
    Step step_of(const PostOps &post_ops, std::size_t index);
    void plan_stages(const PostOps &post_ops);
    void plan_bounds();
    void plan_items();
    Item item(std::int64_t index) const;
    Scratch scratch_of(std::uint32_t *words) const;
    void compute(const Call &call, const Item &item, const Scratch &scratch) const;
    void compute_group(const Call &call, const Item &item, std::int64_t group,
                       const Scratch &scratch) const;
    void line_up(const Call &call, std::int64_t group, const Scratch &scratch) const;
    GroupPixels pixels_of(const ImageStrides &strides, std::int64_t group) const;

    ByteDepthwiseOptions options_;
    const ByteDepthwiseKernels *kernels_;
    std::uint8_t flip_;  // makes bytes of a source with a sign positive
    std::int64_t groups_, quads_;
    std::int64_t phases_;  // results that read the same quads
    std::int64_t step_;    // positions of a row from one with a quad to the next
    std::int64_t out_height_, out_width_;
    std::int64_t bands_, strips_, splits_;  // of the rows, columns and groups of an image
    // Sizes in words: one row of quads, and the scratchpad of one thread.
    std::int64_t row_count_, thread_count_;
    ImageStrides source_, result_;
    // Linear functions of sums, a rounding between limits, linear functions of its results, and
    // other stages.
    std::vector<Step> linear_, after_, steps_;
    bool rounds_ = false;
    float low_, high_;
    float factor_ = 1.0F;
    ByteBounds bounds_{};
};

}  // namespace stridewise
