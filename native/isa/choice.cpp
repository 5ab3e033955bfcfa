#include "isa/choice.hpp"

#include "onednn/primitives.hpp"
#include "support/errors.hpp"

namespace stridewise {
namespace {

#ifdef STRIDEWISE_AVX2
// An instruction set has all bits of the sets that it includes.
bool is_allowed(dnnl_cpu_isa_t isa) {
    const unsigned wanted = isa;
    return (static_cast<unsigned>(dnnl_get_effective_cpu_isa()) & wanted) == wanted;
}
#endif

}  // namespace

std::vector<std::string> kernel_isas(int lanes, [[maybe_unused]] bool halves) {
    require(lanes == 8 || lanes == 16,
            "kernels: expected vectors of 8 or 16 lanes, got " + std::to_string(lanes));
    std::vector<std::string> found;
#ifdef STRIDEWISE_AVX2
    const bool wide = is_allowed(dnnl_cpu_isa_avx512_core) && __builtin_cpu_supports("avx512f") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
                      __builtin_cpu_supports("avx512bw");
    const bool narrow = is_allowed(dnnl_cpu_isa_avx2) && __builtin_cpu_supports("avx2") &&
                        __builtin_cpu_supports("fma");
    const bool rounds =
        is_allowed(dnnl_cpu_isa_avx512_core_bf16) && __builtin_cpu_supports("avx512bf16");
    if (halves && lanes == 16 && wide && rounds) found.emplace_back("avx512_bf16");
    if (lanes == 16 && wide) found.emplace_back("avx512");
    if (lanes == 8 && narrow) found.emplace_back("avx2");
#endif
    found.emplace_back("portable");
    return found;
}

std::vector<std::string> byte_isas() {
    std::vector<std::string> found;
#ifdef STRIDEWISE_AVX2
    if (kernel_isas(16).front() == "avx512" && is_allowed(dnnl_cpu_isa_avx512_core_vnni) &&
        __builtin_cpu_supports("avx512vnni")) {
        found.emplace_back("avx512_vnni");
    }
#endif
    const auto others = kernel_isas(8);
    found.insert(found.end(), others.begin(), others.end());
    return found;
}

}  // namespace stridewise
