// Where the operands of a dense tensor lie, in the order in which the tensor is stored.
#pragma once

#include <cstdint>
#include <vector>

#include "onednn/memory.hpp"
#include "support/bfloat16.hpp"

namespace stridewise {

class Walk {
  public:
    // Operands have the extents of `whole`, or 1 where they are broadcast. Formats are strides or
    // blocks of one axis; operands have the blocks of `whole`, or none. Throws
    // std::invalid_argument otherwise, and where elements of `whole` leave gaps.
    Walk(const MemoryDesc &whole, const std::vector<MemoryDesc> &operands);

    // Of all elements that are stored, padding included.
    std::int64_t size() const { return size_; }
    bool is_padded() const { return block_ >= 0; }
    // Each element lies where that of the tensor does, padding included.
    bool is_whole(std::size_t operand) const;
    bool is_scalar(std::size_t operand) const;  // all elements are the same one
    // An operand repeats the same elements every `period` elements of the tensor, and does so
    // within each `span` of them; both are 0 where it repeats nothing.
    struct Repetition {
        std::int64_t period, span;
    };
    Repetition repetition(std::size_t operand) const;
    // Elements of an operand that lie one after the other where those of the tensor do; 1 if none.
    std::int64_t row(std::size_t operand) const;
    // The offset in an operand of elements begin, begin + 1, ... if they are of the same row; else
    // -1.
    std::int64_t offset_in_row(std::size_t operand, std::int64_t begin, std::int64_t count) const;
    // Copies the elements of an operand that belong to elements begin, begin + 1, ... as they are
    // stored; for padding of the tensor the operand's own, or zeros if it has none.
    template <class From, class To>
    void gather(std::size_t operand, const From *from, std::int64_t begin, std::int64_t count,
                To *to) const;
    // Sets padding among elements begin, begin + 1, ..., which are stored at `data`, to zero.
    template <class T>
    void clear_padding(std::int64_t begin, std::int64_t count, T *data) const;

    // A loop over the tensor. Distances between elements of the tensor, and of its operands.
    struct Loop {
        std::int64_t extent, stride;
        std::vector<std::int64_t> operands;
        int axis;       // of the tensor
        bool is_block;  // counts blocks of that axis
        bool is_lane;   // counts elements of a block
    };
    // Loops that follow one another are one, except around padding. There is at least one.
    const std::vector<Loop> &loops() const { return loops_; }
    // All loops of a tensor with extents above 1, outermost first.
    static std::vector<Loop> loops_of(const MemoryDesc &whole,
                                      const std::vector<MemoryDesc> &operands);
    // The elements of the last block of a padded axis, 0 where there is no padding.
    static std::int64_t valid_lanes(const MemoryDesc &whole);

  private:
    // Whether the tensor has padding and an operand has none, which must not be read there.
    bool lacks_padding(std::size_t operand) const { return is_padded() && !has_padding_[operand]; }
    // Calls body(position, elements, padding, offset, first) for each part of the innermost loops,
    // of which there are one or, if the operand lacks no padding, two: the offset of their element
    // 0 in the operand, and the element that the part begins with.
    template <typename Body>
    void each_run(std::size_t operand, std::int64_t begin, std::int64_t count, std::size_t levels,
                  const Body &body) const;
    // Whether the second loop from inside repeats the few elements of the first one.
    bool repeats_few(std::size_t operand) const;

    std::vector<Loop> loops_;
    std::int64_t size_ = 1;
    int block_ = -1;                 // the loop over the blocks of a padded axis
    std::int64_t valid_ = 0;         // elements in the last of them
    std::vector<bool> has_padding_;  // of each operand
};

}  // namespace stridewise
