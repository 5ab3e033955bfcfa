#include "depthwise/lanes.hpp"
#include "pointwise/lanes.hpp"
#include "winograd/lanes.hpp"

namespace stridewise {
namespace {

template <>
inline Lanes<8>::V Lanes<8>::spread(const float *from) {
    return all(*from);
}

template <>
inline Lanes<16>::V Lanes<16>::spread(const float *from) {
    return all(*from);
}

}  // namespace

const WinogradKernels *portable_winograd_kernels(const WinogradTile &tile, int lanes) {
    return lanes == 16 ? KernelTable<16, 2>::find(tile) : KernelTable<8, 3>::find(tile);
}

const DepthwiseKernels &portable_depthwise_kernels(const DepthwiseAxis &axis, int lanes) {
    return lanes == 16 ? depthwise_kernels<16, 2>(axis) : depthwise_kernels<8, 3>(axis);
}

const PointwiseKernels *portable_pointwise_kernels(const char *name) {
    return find_pointwise(name);
}

}  // namespace stridewise
