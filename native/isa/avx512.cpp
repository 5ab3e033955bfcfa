#include <immintrin.h>

#include "depthwise/lanes.hpp"
#include "pointwise/lanes.hpp"
#include "reduction/lanes.hpp"
#include "winograd/lanes.hpp"

namespace stridewise {
namespace {

template <>
inline Lanes<16>::V Lanes<16>::spread(const float *from) {
    return _mm512_set1_ps(*from);
}

}  // namespace

const WinogradKernels *avx512_winograd_kernels(const WinogradTile &tile) {
    return KernelTable<16, 14>::find(tile);
}

const DepthwiseKernels &avx512_depthwise_kernels(const DepthwiseAxis &axis) {
    return depthwise_kernels<16, 14>(axis);
}

const PointwiseKernel *avx512_pointwise_kernel(const char *name) {
    return find_pointwise<16>(name);
}

const ReductionKernel *avx512_reduction_kernel(const char *name) {
    return find_reduction<16>(name);
}

}  // namespace stridewise
