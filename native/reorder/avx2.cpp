// The inner loops of a reorder for processors with AVX2 and F16C.
#include "reorder/avx2.hpp"

namespace stridewise {
namespace {

ReorderKernels make() {
    ReorderKernels kernels{};
    add_avx2_copies(kernels);
    add_avx2_transpositions(kernels);
    add_avx2_conversions(kernels);
    add_avx2_converted_transpositions(kernels);
    return kernels;
}

}  // namespace

const ReorderKernels &avx2_reorder_kernels() {
    static const ReorderKernels kernels = make();
    return kernels;
}

}  // namespace stridewise
