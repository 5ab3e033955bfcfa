// Descriptions of tensors in memory (MemoryDesc), and memory (Buffer).
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

// oneDNN's engine for this CPU. CPU engines have no state, so all callers share one.
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

    // A view of a box inside this tensor. The view has the base address of this tensor and stores
    // the offset of its first element (see offset()).
    MemoryDesc submemory(const Dims &dims, const Dims &offsets) const;

    const dnnl::memory::desc &get() const { return desc_; }
    Dims dims() const { return desc_.get_dims(); }
    int ndims() const { return desc_.get_ndims(); }
    bool is_any() const;
    bool is_empty() const { return desc_.get_ndims() == 0; }
    std::size_t nbytes() const { return desc_.get_size(); }
    std::size_t offset() const;
    // Bytes from the base address to the end of the last byte that may be accessed. For a strided
    // view it is smaller than offset() + nbytes(), because nbytes() rounds up to whole strides.
    std::size_t extent() const;
    // The bytes that may be touched, from offset() on.
    std::vector<ByteLoop> loops() const;
    std::string dtype() const;
    std::string repr() const;
    // The places of all elements as text. Strides of axes of extent 1 have no effect and are
    // omitted, so that equal layouts have equal texts.
    std::string layout() const;
    std::size_t hash() const;
    bool operator==(const MemoryDesc &other) const { return desc_ == other.desc_; }

  private:
    dnnl::memory::desc desc_;
};

// An open file of the process, closed with this object.
class Descriptor {
  public:
    // Duplicates a descriptor; std::system_error if the process has none left.
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

// Owned, aligned memory of fixed size: zeroed memory, whose pages are allocated on first write if
// it is large; or a mapped part of a file, which is read-only.
class Buffer {
  public:
    explicit Buffer(std::size_t nbytes);

    // Maps `nbytes` of a file from a multiple of the page size on, without a copy. Returns null if
    // the file system is not local, because another machine could remove mapped data. Throws
    // std::system_error if mapping fails.
    static std::unique_ptr<Buffer> map(int descriptor, std::size_t position, std::size_t nbytes);

    bool is_mapped() const { return file_.number() >= 0; }
    // Throws std::runtime_error if the file has become shorter than the mapped part. Reading pages
    // beyond its end would terminate the process.
    void check_file() const;

    std::byte *data() { return data_.get(); }
    const std::byte *data() const { return data_.get(); }
    std::size_t nbytes() const { return nbytes_; }

  private:
    // Large memory is mapped and unmapped, small memory comes from the allocator.
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

// Images x channels x height x width for the kernels of Stridewise, of float32 or bfloat16: with
// channels last, or in blocks of 8 or 16 channels.
MemoryDesc image_desc(const Dims &dims, bool halves, bool channels_last, int lanes);

}  // namespace stridewise
