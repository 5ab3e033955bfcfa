#include "isa/avx512.hpp"

#include "depthwise/lanes.hpp"
#include "pointwise/convert.hpp"
#include "pointwise/lanes.hpp"
#include "reduction/lanes.hpp"
#include "winograd/lanes.hpp"

namespace stridewise {

const WinogradKernels *avx512_winograd_kernels(const WinogradTile &tile, HalfSides halves) {
    return find_winograd<16, 14>(tile, halves);
}

const DepthwiseKernels &avx512_depthwise_kernels(const DepthwiseAxis &axis, HalfSides halves) {
    return depthwise_kernels<16, 14>(axis, halves);
}

const PointwiseKernel *avx512_pointwise_kernel(const char *name) {
    return find_pointwise<16>(name);
}

const Bfloat16Loops &avx512_bfloat16_loops() {
    return kBfloat16Loops<16>;
}

const ReductionKernel *avx512_reduction_kernel(const char *name, bool halves) {
    return find_reduction<16>(name, halves);
}

}  // namespace stridewise
