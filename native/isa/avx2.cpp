#include <immintrin.h>

#include "depthwise/lanes.hpp"
#include "pointwise/lanes.hpp"
#include "reduction/lanes.hpp"
#include "winograd/lanes.hpp"

namespace stridewise {
namespace {

template <>
inline Lanes<8>::V Lanes<8>::spread(const float *from) {
    return _mm256_broadcast_ss(from);
}

}  // namespace

const WinogradKernels *avx2_winograd_kernels(const WinogradTile &tile) {
    return KernelTable<8, 6>::find(tile);
}

const DepthwiseKernels &avx2_depthwise_kernels(const DepthwiseAxis &axis) {
    return depthwise_kernels<8, 6>(axis);
}

const PointwiseKernel *avx2_pointwise_kernel(const char *name) {
    return find_pointwise<8>(name);
}

const ReductionKernel *avx2_reduction_kernel(const char *name) {
    return find_reduction<8>(name);
}

}  // namespace stridewise
