#include "lookup/lookup.hpp"

#include <algorithm>

#include "isa/choice.hpp"
#include "lookup/kernels.hpp"
#include "support/errors.hpp"
#include "threads/regions.hpp"

namespace stridewise {
namespace {

constexpr std::int64_t kEntries = 256;

bool is_bytes(const MemoryDesc &desc) {
    const auto type = desc.is_any() ? "" : desc.dtype();
    return (type == "s8" || type == "u8") && desc.offset() == 0 && desc.extent() == desc.nbytes();
}

}  // namespace

void portable_lookup(const std::uint8_t *table, const std::uint8_t *from, std::uint8_t *to,
                     std::int64_t count) {
    std::transform(from, from + count, to, [table](std::uint8_t byte) { return table[byte]; });
}

Lookup::Lookup(const MemoryDesc &src, const MemoryDesc &dst, int threads, const std::string &isa)
    : Kernel(threads, {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST}),
      src_(src),
      dst_(dst),
      table_({kEntries}, "u8", "a") {
    // Layouts begin with the element type.
    require(is_bytes(src) && is_bytes(dst) && src.layout().substr(2) == dst.layout().substr(2),
            "lookup: expected two dense tensors of bytes in one format, got " + src.repr() +
                " and " + dst.repr());
    const auto known = lookup_isas();
    isa_ = isa.empty() ? known.front() : isa;
    require(std::find(known.begin(), known.end(), isa_) != known.end(),
            "lookup: there are no " + isa_ + " kernels here");
}

MemoryDesc Lookup::arg_desc(int arg) const {
    if (arg == DNNL_ARG_SRC) return src_;
    if (arg == DNNL_ARG_WEIGHTS) return table_;
    require(arg == DNNL_ARG_DST, "lookup: there is no argument " + std::to_string(arg));
    return dst_;
}

void Lookup::execute(const std::vector<void *> &data, void *) const {
    const auto *from = static_cast<const std::uint8_t *>(data[0]);
    const auto *table = static_cast<const std::uint8_t *>(data[1]);
    auto *to = static_cast<std::uint8_t *>(data[2]);
    const auto count = static_cast<std::int64_t>(src_.nbytes());
    auto *run = portable_lookup;
#ifdef STRIDEWISE_AVX2
    if (isa_ == "vbmi") run = vbmi_lookup;
#endif
    // Parts end with cache lines, so that no two threads write to one.
    constexpr std::int64_t kLine = 64;
    const std::int64_t lines = (count + kLine - 1) / kLine;
    in_parallel(threads_, [&](int part, int parts) {
        const std::int64_t begin = lines * part / parts * kLine;
        const std::int64_t end = std::min(count, lines * (part + 1) / parts * kLine);
        if (begin < end) run(table, from + begin, to + begin, end - begin);
    });
}

std::vector<std::string> lookup_isas() {
    std::vector<std::string> found;
#ifdef STRIDEWISE_AVX2
    if (kernel_isas(16).front() == "avx512" && __builtin_cpu_supports("avx512vbmi") != 0) {
        found.emplace_back("vbmi");
    }
#endif
    found.emplace_back("portable");
    return found;
}

}  // namespace stridewise
