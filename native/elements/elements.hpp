// Operators on single elements of any type, and copies of them, with any broadcast and any strides.
// Chains of float32 are expressions (pointwise/); this is for integers, truth values and float64,
// and for what is computed of them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "executor/kernel.hpp"

namespace stridewise {

// Elements of a type by its short name ("f32", "s64", "bool", ...), and where they lie. The library
// has no descriptors of integers of 64 bits or of truth values.
struct ElementView {
    std::string type;
    Dims dims, strides;  // in elements
};

// Computes `count` elements; addresses and steps are in bytes.
using ElementLoop = void (*)(const char *const *from, const std::int64_t *steps, char *to,
                             std::int64_t step, std::int64_t count);

// Bytes of an element of a type. Throws std::invalid_argument for unknown names.
std::int64_t element_nbytes(const std::string &type);

// The loop of an operator with sources and a result of these types; null if there is none.
ElementLoop find_element_loop(const std::string &op, const std::vector<std::string> &sources,
                              const std::string &result);

class Elements : public Kernel {
  public:
    static constexpr std::size_t kMostSources = 3;

    // Sources have the extents of the result, or 1 where they are broadcast. Throws
    // std::invalid_argument for other extents, for strides below 0, and where there is no loop.
    Elements(const std::string &op, const std::vector<ElementView> &sources,
             const ElementView &result, int threads);

    std::string impl() const override { return "elements:portable"; }
    // As bytes.
    MemoryDesc arg_desc(int arg) const override;
    void execute(const std::vector<void *> &data, void *scratchpad) const override;

  private:
    // An axis, or several that are one in all tensors: its extent, and steps of the sources, then
    // of the result, in bytes.
    struct Axis {
        std::int64_t extent;
        std::int64_t steps[kMostSources + 1];
    };

    void run(const std::vector<void *> &data, std::int64_t begin, std::int64_t end) const;

    ElementLoop loop_;
    std::vector<Axis> axes_;
    std::int64_t size_ = 1;
    std::vector<std::int64_t> nbytes_;  // of the sources, then of the result
};

}  // namespace stridewise
