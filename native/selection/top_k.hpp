// The greatest or least elements along an axis, in order, and their positions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "elements/elements.hpp"
#include "executor/kernel.hpp"

namespace stridewise {

class TopK : public Kernel {
  public:
    // The source is [outer, rows, inner], results are [outer, count, inner], all dense: elements,
    // which are f32, s32 or s64, and positions of 64 bits. Of equal elements those with lower
    // positions come first; NaN is greater than any number. Throws std::invalid_argument for other
    // types, and where there are fewer rows than `count`.
    TopK(const std::string &type, const Dims &extents, std::int64_t count, bool is_largest,
         int threads);

    std::string impl() const override { return "top_k:portable"; }
    std::size_t scratchpad_nbytes() const override;
    std::vector<int> written() const override { return {DNNL_ARG_DST, DNNL_ARG_DST_1}; }
    // As bytes.
    MemoryDesc arg_desc(int arg) const override;
    void execute(const std::vector<void *> &data, void *scratchpad) const override;

  private:
    template <class T>
    void find(const std::vector<void *> &data, void *scratchpad) const;

    std::string type_;
    std::int64_t outer_, rows_, inner_, count_, capacity_;
    bool is_largest_;
};

}  // namespace stridewise
