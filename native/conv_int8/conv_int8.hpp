// Convolution of integers of 8 bits with channels last, with a filter for all channels.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "conv_int8/kernels.hpp"
#include "depthwise/depthwise.hpp"
#include "executor/kernel.hpp"
#include "onednn/primitives.hpp"

namespace stridewise {

struct ByteConvOptions {
    std::int64_t images, channels, height, width;
    std::int64_t outputs;
    std::array<std::int64_t, 4> pads;  // top, left, bottom, right
    DepthwiseAxis down, across;        // of the window; no dilation across
    std::string source, result;        // u8 or s8; the result also f32
    int source_zero;                   // what padding is
    float result_scale;                // of results of bytes
    int result_zero;
    bool has_bias;
    int threads;
    std::string isa;  // one of byte_isas(); "" for the best
};

// The argument with the numbers that sums of products are multiplied by, one for each output.
constexpr int kConvScales = DNNL_ARG_ATTR_SCALES | DNNL_ARG_WEIGHTS;

// Results are sums of integers, times scales, plus bias, and then post-ops, in float32; those of
// bytes are divided by their scale, rounded to the nearest, ties to even, and saturated.
class ByteConv : public Kernel {
  public:
    // Operands of post-ops are numbers for each output, or tensors of the shape of the result.
    // Throws std::invalid_argument if the kernels do not support the operation.
    ByteConv(ByteConvOptions options, const PostOps &post_ops);

    std::string impl() const override { return "conv_int8:" + options_.isa; }
    std::size_t scratchpad_nbytes() const override;
    MemoryDesc arg_desc(int arg) const override;
    void execute(const std::vector<void *> &data, void *scratchpad) const override;

  private:
    struct Call;
    struct Scratch;
    // A stage, and its operand: the index in args() or -1, and its type.
    struct Step {
        Stage stage;
        int operand;
        ElementType type;
        bool is_row;  // a number for each output
    };
    // Rows and panels of one item of work.
    struct Item {
        std::int64_t image, row, row_end, panel, panel_end;
    };

    Step step_of(const PostOps &post_ops, std::size_t index);
    void plan_stages(const PostOps &post_ops);
    void plan_bounds();
    void plan_addition();
    void plan_items();
    Item item(std::int64_t index) const;
    std::int64_t packed_nbytes() const;
    std::int64_t panel_nbytes() const;
    std::string weights_tag() const;
    ByteConvSource source_kind() const;
    Scratch scratch_of(std::uint8_t *bytes) const;
    void line_up(const std::vector<void *> &data, float *factor, float *term) const;
    void prepare(const Call &call, const Item &item, const Scratch &scratch) const;
    void copy_row(const Call &call, std::int64_t image, std::int64_t row, std::uint8_t *to) const;
    void copy_piece(const Call &call, std::int64_t image, std::int64_t row, Scratch &scratch) const;
    void compute(const Call &call, const Item &item, Scratch &scratch) const;
    void compute_row(const Call &call, const Item &item, std::int64_t row,
                     const Scratch &scratch) const;

    ByteConvOptions options_;
    const ByteConvKernels *kernels_;
    std::uint8_t flip_;  // makes bytes of a source with a sign positive
    bool is_packed_;     // whether weights are groups in memory; otherwise each thread makes them
    bool is_direct_;     // whether products read the source itself
    bool is_flat_;       // whether rows are pieces of all pixels, of similar lengths
    std::int64_t out_height_, out_width_;
    std::int64_t rows_;
    std::int64_t words_, panels_, row_bytes_;  // of a row of the window; of a copied row
    std::int64_t bands_, splits_;              // of the rows of an image, and of the panels
    std::int64_t thread_nbytes_;
    std::vector<Step> linear_, steps_;
    std::map<int, MemoryDesc> operand_descs_;
    float times_ = 1.0F, plus_ = 0.0F;
    ByteConvAddition addition_{};
    bool has_addition_ = false;
    ByteBounds bounds_{};
};

}  // namespace stridewise
