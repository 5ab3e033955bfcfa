#include "onednn/memory.hpp"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <new>
#include <sstream>
#include <string_view>
#include <system_error>

#include "support/errors.hpp"
#include "threads/regions.hpp"

namespace stridewise {
namespace {

using dnnl::memory;

constexpr std::size_t kCacheLine = 64;
constexpr std::size_t kHugePage = std::size_t{2} << 20;
// No x86-64 process can map more than this, so a larger tensor is an error. The limit also keeps
// all sizes that are computed from it (padding, offsets) far from overflow.
constexpr std::int64_t kMaxBytes = std::int64_t{1} << 47;

const std::map<std::string, memory::data_type> &dtypes() {
    static const std::map<std::string, memory::data_type> table = {
        {"f32", memory::data_type::f32},   {"f16", memory::data_type::f16},
        {"bf16", memory::data_type::bf16}, {"s8", memory::data_type::s8},
        {"u8", memory::data_type::u8},     {"s32", memory::data_type::s32},
    };
    return table;
}

memory::data_type parse_dtype(const std::string &dtype) {
    const auto found = dtypes().find(dtype);
    require(found != dtypes().end(),
            "unknown dtype '" + dtype + "'; expected one of f32, f16, bf16, s8, u8, s32");
    return found->second;
}

// The names are queried from the loaded library instead of compiled in, so that all tags of a newer
// 3.x release can be used. Tags are numbered densely from 0; the margin allows for gaps.
std::map<std::string, dnnl_format_tag_t> read_tags() {
    constexpr int margin = 64;
    std::map<std::string, dnnl_format_tag_t> tags;
    int unknown = 0;
    for (int value = dnnl_format_tag_any; unknown < margin; ++value) {
        const auto tag = static_cast<dnnl_format_tag_t>(value);
        const std::string_view name = dnnl_fmt_tag2str(tag);
        if (name.find(' ') != std::string_view::npos || name == "format_tag_last") {
            ++unknown;
        } else {
            unknown = 0;
            tags.emplace(name, tag);
        }
    }
    return tags;
}

memory::format_tag parse_tag(const std::string &tag) {
    static const std::map<std::string, dnnl_format_tag_t> tags = read_tags();
    const auto found = tags.find(tag);
    require(found != tags.end(), "unknown format tag '" + tag +
                                     "'; expected an abstract oneDNN tag such as abcd, acdb, "
                                     "aBcd16b or any");
    return static_cast<memory::format_tag>(found->second);
}

std::string join(const Dims &values) {
    std::ostringstream out;
    for (std::size_t i = 0; i < values.size(); ++i) out << (i ? ", " : "") << values[i];
    return "[" + out.str() + "]";
}

void check_dims(const Dims &dims, memory::data_type dtype) {
    require(!dims.empty() && dims.size() <= DNNL_MAX_NDIMS,
            "dims " + join(dims) + ": expected 1 to 12 dimensions");
    auto total = static_cast<std::int64_t>(memory::data_type_size(dtype));
    for (const auto dim : dims) {
        require(dim > 0, "dims " + join(dims) + ": expected positive dimensions");
        require(!__builtin_mul_overflow(total, dim, &total) && total <= kMaxBytes,
                "dims " + join(dims) + ": the tensor is larger than the address space");
    }
}

void check_strides(const Dims &dims, const Dims &strides) {
    require(strides.size() == dims.size(),
            "strides " + join(strides) + ": expected one for each of dims " + join(dims));
    std::int64_t last = 0;
    for (std::size_t i = 0; i < dims.size(); ++i) {
        require(strides[i] >= 0, "strides " + join(strides) + ": expected none below 0");
        std::int64_t reach = 0;
        require(!__builtin_mul_overflow(dims[i] - 1, strides[i], &reach) &&
                    !__builtin_add_overflow(last, reach, &last) && last <= kMaxBytes,
                "strides " + join(strides) + ": the tensor is larger than the address space");
    }
}

[[noreturn]] void fail(const char *what) {
    throw std::system_error(errno, std::generic_category(), what);
}

// Whether a file system is local, so that only this machine can change its files. Others may drop a
// file that is still mapped here (NFS, if it is removed elsewhere) or depend on a process (FUSE).
bool is_own(int descriptor) {
    constexpr decltype(statfs::f_type) kXfs = 0x58465342, kZfs = 0x2FC12FC1, kBcachefs = 0xCA451A4E;
    constexpr std::array own = {decltype(statfs::f_type){EXT4_SUPER_MAGIC},
                                decltype(statfs::f_type){BTRFS_SUPER_MAGIC},
                                decltype(statfs::f_type){F2FS_SUPER_MAGIC},
                                decltype(statfs::f_type){TMPFS_MAGIC},
                                decltype(statfs::f_type){OVERLAYFS_SUPER_MAGIC},
                                kXfs,
                                kZfs,
                                kBcachefs};
    struct statfs status{};
    if (fstatfs(descriptor, &status) != 0) fail("file system");
    return std::find(own.begin(), own.end(), status.f_type) != own.end();
}

std::size_t file_nbytes(int descriptor) {
    struct stat status{};
    if (fstat(descriptor, &status) != 0) fail("file");
    return static_cast<std::size_t>(status.st_size);
}

std::size_t element_size(const memory::desc &desc) {
    return memory::data_type_size(desc.get_data_type());
}

}  // namespace

const dnnl::engine &cpu_engine() {
    static const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
    return engine;
}

MemoryDesc::MemoryDesc(const Dims &dims, const std::string &dtype, const std::string &tag) {
    const auto type = parse_dtype(dtype);
    check_dims(dims, type);
    desc_ = memory::desc(dims, type, parse_tag(tag));
}

MemoryDesc MemoryDesc::strided(const Dims &dims, const std::string &dtype, const Dims &strides) {
    const auto type = parse_dtype(dtype);
    check_dims(dims, type);
    check_strides(dims, strides);
    return MemoryDesc(memory::desc(dims, type, strides));
}

MemoryDesc MemoryDesc::submemory(const Dims &dims, const Dims &offsets) const {
    const Dims whole = this->dims();
    require(dims.size() == whole.size() && offsets.size() == whole.size(),
            "submemory: expected as many dims and offsets as the " + std::to_string(ndims()) +
                " dimensions of the tensor");
    for (std::size_t i = 0; i < whole.size(); ++i) {
        require(dims[i] > 0 && offsets[i] >= 0 && offsets[i] <= whole[i] - dims[i],
                "submemory: dims " + join(dims) + " at offsets " + join(offsets) +
                    " do not lie inside " + join(whole));
    }
    return MemoryDesc(desc_.submemory_desc(dims, offsets));
}

bool MemoryDesc::is_any() const {
    return desc_.get_format_kind() == memory::format_kind::any;
}

std::size_t MemoryDesc::offset() const {
    if (is_empty() || desc_.get_format_kind() != memory::format_kind::blocked) return 0;
    // This function of oneDNN returns elements, contrary to other parts of its documentation.
    return static_cast<std::size_t>(desc_.get_submemory_offset()) * element_size(desc_);
}

std::size_t MemoryDesc::extent() const {
    if (is_empty() || desc_.get_format_kind() != memory::format_kind::blocked) return nbytes();
    const Dims padded = desc_.get_padded_dims();
    const Dims strides = desc_.get_strides();
    const Dims inner = desc_.get_inner_blks();
    const Dims axes = desc_.get_inner_idxs();
    Dims blocks(padded.size(), 1);
    std::int64_t inner_elements = 1;
    for (std::size_t i = 0; i < inner.size(); ++i) {
        blocks[static_cast<std::size_t>(axes[i])] *= inner[i];
        inner_elements *= inner[i];
    }
    std::int64_t last = inner_elements;
    std::int64_t rounded = inner_elements;
    for (std::size_t i = 0; i < padded.size(); ++i) {
        const std::int64_t outer = padded[i] / blocks[i];
        last += (outer - 1) * strides[i];
        rounded = std::max(rounded, outer * strides[i]);
    }
    // int8 weights have compensation after their elements, which only the total size includes.
    const auto elements = static_cast<std::size_t>(rounded) * element_size(desc_);
    const std::size_t extra = nbytes() > elements ? nbytes() - elements : 0;
    return offset() + static_cast<std::size_t>(last) * element_size(desc_) + extra;
}

std::vector<ByteLoop> MemoryDesc::loops() const {
    const auto all = static_cast<std::int64_t>(extent() - offset());
    if (is_empty() || desc_.get_format_kind() != memory::format_kind::blocked) return {{all, 1}};
    const auto size = static_cast<std::int64_t>(element_size(desc_));
    const Dims inner = desc_.get_inner_blks();
    const Dims axes = desc_.get_inner_idxs();
    Dims counts = desc_.get_padded_dims();
    const Dims strides = desc_.get_strides();
    ByteLoop innermost{size, 1};
    for (std::size_t i = 0; i < inner.size(); ++i) {
        counts[static_cast<std::size_t>(axes[i])] /= inner[i];
        innermost.count *= inner[i];
    }
    std::vector<ByteLoop> found{innermost};
    std::int64_t last = innermost.count;
    for (std::size_t i = 0; i < counts.size(); ++i) {
        if (counts[i] == 0) return {};
        found.push_back({counts[i], strides[i] * size});
        last += (counts[i] - 1) * strides[i] * size;
    }
    if (last != all) return {{all, 1}};  // with something behind the elements
    return found;
}

namespace {

// A factor between two limits, times a stride.
struct Term {
    std::int64_t stride;
    std::int64_t low;
    std::int64_t high;
    std::int64_t least_rest;  // of the sum of the terms behind it
    std::int64_t most_rest;
};

std::int64_t floor_divide(std::int64_t a, std::int64_t b) {
    return a / b - (a % b != 0 && a < 0);
}

// Whether the terms from `first` on can sum up to `wanted`, as far as the budget of steps goes.
bool can_sum(const std::vector<Term> &terms, std::size_t first, std::int64_t wanted,
             std::int64_t &budget) {
    if (first == terms.size()) return wanted == 0;
    if (--budget < 0) return true;
    const Term &term = terms[first];
    const auto low = std::max(term.low, -floor_divide(term.most_rest - wanted, term.stride));
    const auto high = std::min(term.high, floor_divide(wanted - term.least_rest, term.stride));
    for (auto factor = low; factor <= high; ++factor) {
        if (can_sum(terms, first + 1, wanted - factor * term.stride, budget)) return true;
    }
    return false;
}

}  // namespace

bool bytes_meet(const std::vector<ByteLoop> &first, const std::vector<ByteLoop> &second,
                std::int64_t distance) {
    constexpr std::int64_t kBudget = 100000;
    if (first.empty() || second.empty()) return false;
    std::vector<Term> terms;
    const auto add = [&](const ByteLoop &loop, std::int64_t low, std::int64_t high) {
        if (loop.count <= 1) return;
        if (loop.stride <= 0) return;  // all at one place
        const auto same = std::find_if(terms.begin(), terms.end(), [&](const Term &term) {
            return term.stride == loop.stride;
        });
        if (same == terms.end()) {
            terms.push_back({loop.stride, low, high, 0, 0});
        } else {
            same->low += low;
            same->high += high;
        }
    };
    for (const auto &loop : first) add(loop, 0, loop.count - 1);
    for (const auto &loop : second) add(loop, 1 - loop.count, 0);
    std::sort(terms.begin(), terms.end(),
              [](const Term &a, const Term &b) { return a.stride > b.stride; });
    std::int64_t least = 0;
    std::int64_t most = 0;
    for (auto term = terms.rbegin(); term != terms.rend(); ++term) {
        term->least_rest = least;
        term->most_rest = most;
        least += term->low * term->stride;
        most += term->high * term->stride;
    }
    std::int64_t budget = kBudget;
    return can_sum(terms, 0, distance, budget);
}

std::string MemoryDesc::dtype() const {
    for (const auto &[name, type] : dtypes()) {
        if (type == desc_.get_data_type()) return name;
    }
    return "other";
}

std::string MemoryDesc::repr() const {
    if (is_empty()) return "MemoryDesc(empty)";
    std::string text = "MemoryDesc(" + join(dims()) + ", " + dtype();
    if (is_any()) return text + ", any)";
    if (desc_.get_format_kind() != memory::format_kind::blocked) return text + ", opaque)";
    text += ", strides=" + join(desc_.get_strides());
    const Dims inner = desc_.get_inner_blks();
    const Dims axes = desc_.get_inner_idxs();
    if (!inner.empty()) text += ", blocks=";
    for (std::size_t i = 0; i < inner.size(); ++i) {
        text += std::to_string(inner[i]) + static_cast<char>('a' + axes[i]);
    }
    if (offset() != 0) text += ", offset=" + std::to_string(offset());
    return text + ")";
}

std::string MemoryDesc::layout() const {
    if (is_empty() || desc_.get_format_kind() != memory::format_kind::blocked) return repr();
    const Dims padded = desc_.get_padded_dims();
    const Dims inner = desc_.get_inner_blks();
    const Dims axes = desc_.get_inner_idxs();
    Dims outer = padded;
    std::string blocks;
    for (std::size_t i = 0; i < inner.size(); ++i) {
        outer[static_cast<std::size_t>(axes[i])] /= inner[i];
        blocks += std::to_string(inner[i]) + static_cast<char>('a' + axes[i]);
    }
    Dims strides = desc_.get_strides();
    for (std::size_t i = 0; i < strides.size(); ++i) {
        if (outer[i] == 1) strides[i] = 0;
    }
    std::string text =
        dtype() + " " + join(dims()) + ", padded " + join(padded) + ", strides " + join(strides);
    if (!blocks.empty()) text += ", blocks " + blocks;
    if (offset() != 0) text += ", offset " + std::to_string(offset());
    return text + ", " + std::to_string(nbytes()) + " bytes";
}

std::size_t MemoryDesc::hash() const {
    return std::hash<std::string>{}(layout());
}

void Buffer::Free::operator()(std::byte *data) const {
    if (mapped != 0) {
        munmap(data, mapped);
    } else {
        std::free(data);
    }
}

Buffer::Memory Buffer::allocate(std::size_t nbytes) {
    if (nbytes > static_cast<std::size_t>(kMaxBytes)) throw std::bad_alloc();
    const std::size_t alignment = nbytes >= kHugePage ? kHugePage : kCacheLine;
    // Rounding up also keeps vector-wide reads at the end inside the allocation.
    const std::size_t rounded = std::max(alignment, (nbytes + alignment - 1) & ~(alignment - 1));
    if (alignment == kCacheLine) {
        auto *data = static_cast<std::byte *>(std::aligned_alloc(alignment, rounded));
        if (data == nullptr) throw std::bad_alloc();
        std::memset(data, 0, rounded);
        return Memory(data, Free{});
    }
    // The operating system aligns to small pages, so more is mapped and the excess is unmapped.
    void *mapped = mmap(nullptr, rounded + kHugePage, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED) throw std::bad_alloc();
    auto *start = static_cast<std::byte *>(mapped);
    const std::size_t before = -reinterpret_cast<std::uintptr_t>(mapped) & (kHugePage - 1);
    if (before != 0) munmap(start, before);
    munmap(start + before + rounded, kHugePage - before);
    std::byte *data = start + before;
    // The result is ignored: without huge pages the buffer is only slower.
    madvise(data, rounded, MADV_HUGEPAGE);
    return Memory(data, Free{rounded});
}

Buffer::Buffer(std::size_t nbytes) : nbytes_(nbytes), data_(allocate(nbytes)) {}

std::unique_ptr<Buffer> Buffer::map(int descriptor, std::size_t position, std::size_t nbytes) {
    const std::size_t size = file_nbytes(descriptor);
    require(nbytes > 0 && position <= size && nbytes <= size - position,
            "map: expected some of the " + std::to_string(size) + " bytes of the file, got " +
                std::to_string(nbytes) + " bytes from byte " + std::to_string(position) + " on");
    if (!is_own(descriptor)) return nullptr;
    Descriptor file = Descriptor::copy_of(descriptor);
    void *data =
        mmap(nullptr, nbytes, PROT_READ, MAP_PRIVATE, file.number(), static_cast<off_t>(position));
    if (data == MAP_FAILED) fail("map");
    Memory memory(static_cast<std::byte *>(data), Free{nbytes});
    return std::unique_ptr<Buffer>(
        new Buffer(nbytes, std::move(memory), std::move(file), position + nbytes));
}

void Buffer::check_file() const {
    if (!is_mapped() || file_nbytes(file_.number()) >= file_end_) return;
    throw std::runtime_error("the file that has the weights was cut off while they were in use");
}

Descriptor Descriptor::copy_of(int descriptor) {
    const int number = fcntl(descriptor, F_DUPFD_CLOEXEC, 0);
    if (number < 0) fail("descriptor");
    return Descriptor(number);
}

Descriptor::~Descriptor() {
    if (number_ >= 0) close(number_);
}

void prepack_into(const void *bytes, const MemoryDesc &src, const MemoryDesc &dst, Buffer &buffer,
                  std::size_t offset, int threads) {
    require(!dst.is_any() && !src.is_any(), "prepack: expected formats that are not 'any'");
    const std::size_t whole = dst.offset() == 0 ? dst.nbytes() : 0;
    const std::size_t reach = std::max(whole, dst.extent());
    require(offset <= buffer.nbytes() && reach <= buffer.nbytes() - offset,
            "prepack: expected " + std::to_string(reach) + " bytes from offset " +
                std::to_string(offset) + " on, got a buffer of " + std::to_string(buffer.nbytes()));
    // oneDNN takes void* for sources, too, and does not write to them.
    memory from(src.get(), cpu_engine(), const_cast<void *>(bytes));
    memory to(dst.get(), cpu_engine(), buffer.data() + offset);
    with_threads(threads, [&] {
        const dnnl::reorder reorder(from, to);
        dnnl::stream stream(cpu_engine());
        reorder.execute(stream, from, to);
        stream.wait();
    });
}

std::unique_ptr<Buffer> prepack(const void *bytes, const MemoryDesc &src, const MemoryDesc &dst,
                                int threads) {
    auto packed = std::make_unique<Buffer>(std::max(dst.nbytes(), dst.extent()));
    prepack_into(bytes, src, dst, *packed, 0, threads);
    return packed;
}

MemoryDesc image_desc(const Dims &dims, bool halves, bool channels_last, int lanes) {
    const std::string blocks = lanes == 16 ? "aBcd16b" : "aBcd8b";
    return MemoryDesc(dims, halves ? "bf16" : "f32", channels_last ? "acdb" : blocks);
}

}  // namespace stridewise
