// Kernels of several primitives of the library, with tensors between them in the scratchpad.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "executor/kernel.hpp"
#include "onednn/primitives.hpp"

namespace stridewise {

class Sequence final : public Kernel {
  public:
    // A tensor that stages read or write, by its number.
    using Tensor = std::size_t;
    using Bound = std::vector<std::pair<int, Tensor>>;

    explicit Sequence(int threads);

    // Declares an argument of the kernel.
    Tensor argument(int id, const MemoryDesc &desc, bool written = false);
    // Declares a tensor in the scratchpad.
    Tensor between(const MemoryDesc &desc);
    // Declares a tensor in the memory of another one.
    Tensor within(Tensor tensor, const MemoryDesc &desc);
    // Adds a stage that sets all bytes of a tensor in the scratchpad to zero.
    void clear(Tensor tensor);
    // Adds a primitive, without its scratchpad among the arguments. The name of the kernel is that
    // of the last primitive with `names`.
    void add(const dnnl::primitive_desc_base &desc, const Bound &args, bool names = true);
    // Returns a tensor in another format, after a reorder if it has another one.
    Tensor read_as(Tensor tensor, const MemoryDesc &desc);
    // Returns a tensor to write in another format; convert() stores it afterwards.
    Tensor write_as(Tensor tensor, const MemoryDesc &desc);
    // Adds a reorder, unless both are one tensor.
    void convert(Tensor from, Tensor to);

    std::string impl() const override { return impl_; }
    std::size_t scratchpad_nbytes() const override { return between_nbytes_ + stage_nbytes_; }
    std::vector<int> written() const override { return written_; }
    MemoryDesc arg_desc(int arg) const override;
    void execute(const std::vector<void *> &data, void *scratchpad) const override;

  private:
    struct Place {
        MemoryDesc desc;
        bool is_argument;
        std::size_t at;  // the position in args_, or bytes from the start of the scratchpad
    };
    struct Stage {
        dnnl::primitive primitive;  // null for a stage that clears its only argument
        MemoryDesc scratchpad;
        Bound args;
    };

    std::vector<Place> places_;
    std::vector<Stage> stages_;
    std::vector<int> written_;
    std::size_t between_nbytes_ = 0, stage_nbytes_ = 0;
    std::string impl_;
};

}  // namespace stridewise
