#include "reorder/kernel.hpp"

#include <utility>

#include "support/errors.hpp"

namespace stridewise {

ReorderKernel::ReorderKernel(Reorder reorder, MemoryDesc src, MemoryDesc dst, int threads,
                             std::string isa)
    : Kernel(threads, {DNNL_ARG_SRC, DNNL_ARG_DST}),
      reorder_(std::move(reorder)),
      src_(std::move(src)),
      dst_(std::move(dst)),
      isa_(std::move(isa)) {
    const auto fits = [](std::int64_t wanted, const MemoryDesc &desc, const char *what) {
        require(static_cast<std::size_t>(wanted) <= desc.nbytes(),
                std::string(what) + ": expected at least " + std::to_string(wanted) +
                    " bytes, got " + std::to_string(desc.nbytes()));
    };
    fits(reorder_.src_nbytes(), src_, "src");
    fits(reorder_.dst_nbytes(), dst_, "dst");
}

MemoryDesc ReorderKernel::arg_desc(int arg) const {
    if (arg == DNNL_ARG_SRC) return src_;
    if (arg == DNNL_ARG_DST) return dst_;
    require(arg == DNNL_ARG_SCRATCHPAD, "reorder: there is no argument " + std::to_string(arg));
    const auto nbytes = static_cast<std::int64_t>(scratchpad_nbytes());
    return MemoryDesc({nbytes / std::int64_t{sizeof(float)}}, "f32", "a");
}

void ReorderKernel::execute(const std::vector<void *> &data, void *scratchpad) const {
    reorder_.run(data[0], data[1], threads_, false, static_cast<std::byte *>(scratchpad));
}

}  // namespace stridewise
