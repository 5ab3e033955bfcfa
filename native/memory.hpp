// Descriptions of tensors in memory (MemoryDesc) and the memory itself (Buffer).
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "onednn.hpp"

namespace stridewise {

using Dims = std::vector<std::int64_t>;

// The library's engine for this CPU; engines hold no state on the CPU, so one serves everybody.
const dnnl::engine &cpu_engine();

// What a tensor's bytes mean: dimensions, element type and format. Immutable.
class MemoryDesc {
  public:
    explicit MemoryDesc(dnnl::memory::desc desc) : desc_(std::move(desc)) {}
    MemoryDesc(const Dims &dims, const std::string &dtype, const std::string &tag);
    static MemoryDesc strided(const Dims &dims, const std::string &dtype, const Dims &strides);

    // A view of a box inside this tensor. The view keeps this tensor's base address and carries
    // the distance to its own first element itself (see offset()).
    MemoryDesc submemory(const Dims &dims, const Dims &offsets) const;

    const dnnl::memory::desc &get() const { return desc_; }
    Dims dims() const { return desc_.get_dims(); }
    int ndims() const { return desc_.get_ndims(); }
    bool is_any() const;
    bool is_empty() const { return desc_.get_ndims() == 0; }
    std::size_t nbytes() const { return desc_.get_size(); }
    std::size_t offset() const;
    // Bytes from the base address to just past the last byte that may be touched. Smaller than
    // offset() + nbytes() for a strided view, because nbytes() rounds up to whole strides.
    std::size_t extent() const;
    std::string dtype() const;
    std::string repr() const;
    std::size_t hash() const;
    bool operator==(const MemoryDesc &other) const { return desc_ == other.desc_; }

  private:
    dnnl::memory::desc desc_;
};

// Owned, zeroed, aligned memory of fixed size. Large memory takes pages as it is first written.
class Buffer {
  public:
    explicit Buffer(std::size_t nbytes);

    std::byte *data() { return data_.get(); }
    const std::byte *data() const { return data_.get(); }
    std::size_t nbytes() const { return nbytes_; }

  private:
    // Large memory comes from the kernel and goes back to it, small memory is the allocator's.
    struct Free {
        std::size_t mapped = 0;
        void operator()(std::byte *data) const;
    };
    using Memory = std::unique_ptr<std::byte, Free>;
    static Memory allocate(std::size_t nbytes);

    std::size_t nbytes_;
    Memory data_;
};

// Reorders `bytes` (laid out as `src`) into a buffer from an offset in bytes on, laid out as `dst`.
void prepack_into(const void *bytes, const MemoryDesc &src, const MemoryDesc &dst, Buffer &buffer,
                  std::size_t offset, int threads);

// Reorders `bytes` (laid out as `src`) into a new buffer laid out as `dst`.
std::unique_ptr<Buffer> prepack(const void *bytes, const MemoryDesc &src, const MemoryDesc &dst,
                                int threads);

}  // namespace stridewise
