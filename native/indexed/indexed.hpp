// Rows of a tensor by a table of their numbers: reading them, and writing them into a tensor.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "executor/kernel.hpp"

namespace stridewise {

// Row `k` of the result is row `table[k]` of the source, for each of the outer parts.
class GatherRows : public Kernel {
  public:
    // The source is [outer, rows, inner], the result [outer, count, inner]; both are dense and of
    // one element type. The table is DNNL_ARG_WEIGHTS: `count` numbers, negative ones counted from
    // the end, of one s32 each, or of two, the low half first (64-bit integers).
    GatherRows(const MemoryDesc &src, const MemoryDesc &dst, int words, int threads);

    std::string impl() const override { return "gather:portable"; }
    MemoryDesc arg_desc(int arg) const override;
    // Throws std::out_of_range if the table has a number beyond the rows.
    void execute(const std::vector<void *> &data, void *scratchpad) const override;

  private:
    template <typename Index>
    void gather(const std::vector<void *> &data) const;

    MemoryDesc src_, dst_, table_;
    std::int64_t outer_, rows_, count_, row_nbytes_;
    bool is_wide_;
};

// Row `table[k]` of the result becomes, or is combined with, row `k` of the source, in the order of
// the table. Other rows of the result stay as they are.
class ScatterRows : public Kernel {
  public:
    // The source is [count, inner], the result [rows, inner]; both are dense and of one element
    // type, which is f32 for other reductions than "none": "add", "mul", "max" and "min".
    ScatterRows(const std::string &reduction, const MemoryDesc &src, const MemoryDesc &dst,
                int threads);

    std::string impl() const override { return "scatter:portable"; }
    MemoryDesc arg_desc(int arg) const override;
    void execute(const std::vector<void *> &data, void *scratchpad) const override;

  private:
    using Combine = void (*)(float *to, const float *from, std::int64_t count);

    MemoryDesc src_, dst_, table_;
    std::int64_t rows_, count_, row_nbytes_;
    Combine combine_;
};

}  // namespace stridewise
