#include <immintrin.h>

#include "depthwise/lanes.hpp"
#include "pointwise/lanes.hpp"
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

const PointwiseKernels *avx2_pointwise_kernels(const char *name) {
    return find_pointwise(name);
}

}  // namespace stridewise
