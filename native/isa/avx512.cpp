#include <immintrin.h>

#include "depthwise/lanes.hpp"
#include "pointwise/lanes.hpp"
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

const PointwiseKernels *avx512_pointwise_kernels(const char *name) {
    return find_pointwise(name);
}

}  // namespace stridewise
