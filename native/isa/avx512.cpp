#include "isa/avx512.hpp"

#include "conv1x1/lanes.hpp"
#include "depthwise/lanes.hpp"
#include "pointwise/convert.hpp"
#include "pointwise/lanes.hpp"
#include "recurrent/lanes.hpp"
#include "reduction/lanes.hpp"
#include "winograd/lanes.hpp"

namespace stridewise {
namespace {

// Two instructions for exponents, of any size: very small results are zero.
template <>
inline Lanes<16>::V Lanes<16>::power_of_two(V x) {
    const V r = _mm512_maskz_reduce_ps(kAll, x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    return _mm512_maskz_scalef_ps(kAll, near_power_of_two<16>(r), x - r);
}

}  // namespace

const WinogradKernels *avx512_winograd_kernels(const WinogradTile &tile, HalfSides halves) {
    return find_winograd<16, 14>(tile, halves);
}

const DepthwiseKernels &avx512_depthwise_kernels(const DepthwiseAxis &axis, HalfSides halves) {
    return depthwise_kernels<16, 14>(axis, halves);
}

const Conv1x1Kernels &avx512_conv1x1_kernels() {
    return kConv1x1Kernels<16, 14>;
}

const RecurrentKernels &avx512_recurrent_kernels() {
    return kRecurrentKernels<16, 24>;
}

const PointwiseKernel *avx512_pointwise_kernel(const char *name) {
    return find_pointwise<16>(name);
}

const Bfloat16Loops &avx512_bfloat16_loops() {
    return kBfloat16Loops<16>;
}

const ByteLoops &avx512_byte_loops() {
    return kByteLoops;
}

const ReductionKernel *avx512_reduction_kernel(const char *name, bool halves) {
    return find_reduction<16>(name, halves);
}

}  // namespace stridewise
