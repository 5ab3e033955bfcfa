// Convolution as products of windows: those of neighbors share what has been copied, or the source.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "conv1x1/products.hpp"
#include "executor/kernel.hpp"
#include "onednn/primitives.hpp"
#include "support/images.hpp"

namespace stridewise {

struct ConvWindowsOptions {
    std::int64_t images, channels, height, width;  // of the source
    std::int64_t outputs;
    std::array<std::int64_t, 4> pads;  // top, left, bottom, right
    DepthwiseAxis down, across;        // of the window
    int lanes;                         // elements of a vector: 8 or 16
    bool source_last;                  // channels last; otherwise first
    bool result_last;                  // otherwise channels in blocks of one vector
    bool has_bias;
    HalfSides halves;  // products are in float32
    int threads;
    std::string isa;  // one of kernel_isas(lanes); "" for the best
};

// A row of a window is a run of numbers with channels last, whatever their number. Sources with
// channels first are turned when rows are copied, which also get their padding then.
class ConvWindows : public Kernel {
  public:
    // Throws std::invalid_argument if the kernels do not support the operation.
    ConvWindows(ConvWindowsOptions options, const PostOps &post_ops);

    std::string impl() const override { return "conv_windows:" + options_.isa; }
    std::size_t scratchpad_nbytes() const override;
    MemoryDesc arg_desc(int arg) const override;
    void execute(const std::vector<void *> &data, void *scratchpad) const override;

  private:
    struct Call;
    // Rows, columns and pairs of vectors of results that are one item of work.
    struct Item {
        std::int64_t image, row, row_end, column, column_end, pair, pair_end;
    };

    void plan_stages(const PostOps &post_ops);
    void plan_items();
    void plan_products();
    std::int64_t item_count() const { return options_.images * bands_ * cuts_ * splits_; }
    Item item(std::int64_t index) const;
    // Elements of a copied row, and the rows that so many rows of results read.
    std::int64_t pitch_of(std::int64_t columns) const;
    std::int64_t copied_by(std::int64_t rows) const { return options_.down.read_by(rows); }
    void copy(const Call &call, const Item &item, float *to) const;
    void copy_row(const std::byte *from, std::int64_t first, std::int64_t count, float *to) const;
    void compute(const Call &call, const Item &item, bool is_copied, float *scratch) const;
    void add_up(const ProductTile &tile, const Call &call) const;

    ConvWindowsOptions options_, given_;  // as they are computed, and as they were given
    const Conv1x1Kernels *kernels_;
    std::int64_t height_, width_, pairs_;  // of the result
    bool is_direct_;                       // whether products read the source itself
    bool has_dots_;                        // whether vectors are of channels, for few outputs
    std::int64_t bands_, cuts_, splits_;   // of rows, columns and pairs
    std::int64_t pitch_;                   // elements from one row that products read to the next
    std::int64_t copied_count_, thread_count_;
    ImageStrides source_, result_;
    std::optional<Products> products_;
    std::vector<Stage> stages_;
    std::vector<int> operands_;  // for each of stages_, the index of its operand in args(), or -1
};

}  // namespace stridewise
