// Pooling of planes: along rows first, then along columns. Where channels are few, no vector of
// them can be filled; here vectors are of columns. A window of k x k takes some 4 log k operations.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "executor/kernel.hpp"

namespace stridewise {

class PlainPooling : public Kernel {
  public:
    // Source [N, C, H, W] and result [N, C, OH, OW] are dense float32. `algorithm` is "max",
    // "avg_include" (padding counts as zeros) or "avg_exclude". Strides and dilations are at least
    // 1; windows may reach beyond the source, and 2^20 elements at most. Throws
    // std::invalid_argument otherwise, and for means of windows without any element.
    PlainPooling(const std::string &algorithm, const MemoryDesc &src, const MemoryDesc &dst,
                 const Dims &window, const Dims &strides, const Dims &dilations, const Dims &begins,
                 int threads);

    std::string impl() const override { return "plain_pooling:portable"; }
    std::size_t scratchpad_nbytes() const override;
    MemoryDesc arg_desc(int arg) const override;
    void execute(const std::vector<void *> &data, void *scratchpad) const override;

  private:
    // One axis: extents of the source and of the result, and the window along it.
    struct Axis {
        std::int64_t size, results, window, stride, dilation, begin;

        std::int64_t reach() const { return (window - 1) * dilation; }
        // From the first window to the last one of some results.
        std::int64_t positions(std::int64_t count) const { return (count - 1) * stride + 1; }
        // Taps inside of the source, for a result.
        std::int64_t taps(std::int64_t result) const;
    };
    // What a thread holds, in elements: a row of the source with its padding; results of a row
    // before some are picked; rows whose columns are pooled; results of these before some are
    // picked.
    struct Scratch {
        std::int64_t line, pooled, held, band;

        std::int64_t total() const { return line + pooled + held + band; }
    };

    template <bool kIsMax>
    void pool_row(const float *from, float *line, float *pooled, float *to) const;
    template <bool kIsMax>
    void pool_band(const float *from, float *to, std::int64_t begin, std::int64_t end,
                   float *scratchpad) const;
    Scratch scratch() const;

    MemoryDesc src_, dst_;
    Axis rows_, columns_;
    std::int64_t planes_, band_;  // rows of results at a time
    bool is_max_, counts_padding_;
    std::vector<float> shares_;  // by column: one over the number of columns that are counted
};

}  // namespace stridewise
