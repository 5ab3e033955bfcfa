// Descriptions of tensors in memory (MemoryDesc) and the memory itself (Buffer).
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "onednn/onednn.hpp"

namespace stridewise {

using Dims = std::vector<std::int64_t>;

// The library's engine for this CPU; engines hold no state on the CPU, so one serves everybody.
const dnnl::engine &cpu_engine();

// Bytes at `count` multiples of `stride`, from 0 on.
struct ByteLoop {
    std::int64_t count;
    std::int64_t stride;
};

// Whether two sets of bytes meet: each has the sums of one multiple a loop, the second one
// `distance` bytes behind the first. Exact, but for sets whose comparison would take too long:
// those count as meeting.
bool bytes_meet(const std::vector<ByteLoop> &first, const std::vector<ByteLoop> &second,
                std::int64_t distance);

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
    // The bytes that may be touched, from offset() on.
    std::vector<ByteLoop> loops() const;
    std::string dtype() const;
    std::string repr() const;
    // All that says where elements lie. Strides of axes of extent 1 lead nowhere and are left out:
    // equal descriptors have equal texts.
    std::string layout() const;
    std::size_t hash() const;
    bool operator==(const MemoryDesc &other) const { return desc_ == other.desc_; }

  private:
    dnnl::memory::desc desc_;
};

// An open file of the process, closed with this object.
class Descriptor {
  public:
    // Another descriptor of the same open file; std::system_error where there is none left.
    static Descriptor copy_of(int descriptor);
    Descriptor() = default;
    Descriptor(Descriptor &&other) noexcept : number_(std::exchange(other.number_, -1)) {}
    Descriptor &operator=(Descriptor &&other) noexcept {
        std::swap(number_, other.number_);
        return *this;
    }
    ~Descriptor();

    int number() const { return number_; }

  private:
    explicit Descriptor(int number) : number_(number) {}
    int number_ = -1;
};

// Owned, aligned memory of fixed size: zeroed, where large memory takes pages as it is first
// written; or a part of a file, which is read only.
class Buffer {
  public:
    explicit Buffer(std::size_t nbytes);

    // Maps `nbytes` of a file, from a multiple of the page size on; pages are those that the system
    // keeps of the file, so nothing is copied. No buffer where the file system is none of this
    // machine's own: what it has given, others may take back. std::system_error where the system
    // refuses.
    static std::unique_ptr<Buffer> map(int descriptor, std::size_t position, std::size_t nbytes);

    bool is_mapped() const { return file_.number() >= 0; }
    // Throws std::runtime_error where the file is no longer as long as what is mapped of it: pages
    // behind its end can be read no more, and trying to would end the process.
    void check_file() const;

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
    Buffer(std::size_t nbytes, Memory data, Descriptor file, std::size_t file_end)
        : nbytes_(nbytes), data_(std::move(data)), file_(std::move(file)), file_end_(file_end) {}

    std::size_t nbytes_;
    Memory data_;
    Descriptor file_;
    std::size_t file_end_ = 0;
};

// Reorders `bytes` (laid out as `src`) into a buffer from an offset in bytes on, laid out as `dst`.
void prepack_into(const void *bytes, const MemoryDesc &src, const MemoryDesc &dst, Buffer &buffer,
                  std::size_t offset, int threads);

// Reorders `bytes` (laid out as `src`) into a new buffer laid out as `dst`.
std::unique_ptr<Buffer> prepack(const void *bytes, const MemoryDesc &src, const MemoryDesc &dst,
                                int threads);

// Images x channels x height x width of float32 as our own kernels take them: with channels last,
// or in blocks of 8 or 16 channels.
MemoryDesc image_desc(const Dims &dims, bool channels_last, int lanes);

}  // namespace stridewise
