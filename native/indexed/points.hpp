// Elements and rows of a tensor at places that a run computes: reading them, and writing them into
// a tensor.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "executor/kernel.hpp"

namespace stridewise {

// Indices are numbers of 64 bits, or of 32 (`words` 1), negative ones counted from the end. All
// throw std::out_of_range, before anything is written, for an index beyond its axis. Elements have
// 1, 2, 4 or 8 bytes. Memory is described as bytes, indices as words.

// An element for each index: that at its own place, but along one axis at the index.
struct ElementPlaces {
    Dims data, indices;  // of the same rank; indices have the smaller extents, but along the axis
    std::int64_t axis;
    std::int64_t nbytes;  // of an element
    int words;
};

class GatherElements : public Kernel {
  public:
    GatherElements(const ElementPlaces &places, int threads);

    std::string impl() const override { return "gather_elements:portable"; }
    MemoryDesc arg_desc(int arg) const override;
    void execute(const std::vector<void *> &data, void *scratchpad) const override;

  private:
    ElementPlaces places_;
};

// What becomes of an element and an update of it; null where the update stays.
using Combination = float (*)(float, float);

// The result already holds the data. Updates are written or combined in their order. A reduction
// other than "none" is of float32.
class ScatterElements : public Kernel {
  public:
    ScatterElements(const ElementPlaces &places, const std::string &reduction, int threads);

    std::string impl() const override { return "scatter_elements:portable"; }
    MemoryDesc arg_desc(int arg) const override;
    void execute(const std::vector<void *> &data, void *scratchpad) const override;

  private:
    ElementPlaces places_;
    Combination combine_;
};

// Rows at points: an index for each of the first axes of the data.
struct RowPlaces {
    std::int64_t outer;  // the data is [outer, extents..., row], points are [outer, count, depth]
    Dims extents;
    std::int64_t count, row_nbytes;
    int words;
};

class GatherPoints : public Kernel {
  public:
    GatherPoints(const RowPlaces &places, int threads);

    std::string impl() const override { return "gather_points:portable"; }
    MemoryDesc arg_desc(int arg) const override;
    void execute(const std::vector<void *> &data, void *scratchpad) const override;

  private:
    RowPlaces places_;
};

// The result already holds the data; see ScatterElements. One outer part.
class ScatterPoints : public Kernel {
  public:
    ScatterPoints(const RowPlaces &places, const std::string &reduction);

    std::string impl() const override { return "scatter_points:portable"; }
    MemoryDesc arg_desc(int arg) const override;
    void execute(const std::vector<void *> &data, void *scratchpad) const override;

  private:
    RowPlaces places_;
    Combination combine_;
};

}  // namespace stridewise
