#include "isa/avx2.hpp"

#include "conv1x1/lanes.hpp"
#include "depthwise/byte_lanes.hpp"
#include "depthwise/lanes.hpp"
#include "pointwise/convert.hpp"
#include "pointwise/lanes.hpp"
#include "recurrent/lanes.hpp"
#include "reduction/lanes.hpp"
#include "winograd/lanes.hpp"

namespace stridewise {
const WinogradKernels *avx2_winograd_kernels(const WinogradTile &tile, HalfSides halves) {
    return find_winograd<8, 6>(tile, halves);
}

const DepthwiseKernels &avx2_depthwise_kernels(const DepthwiseAxis &axis, HalfSides halves) {
    return depthwise_kernels<8, 6>(axis, halves);
}

const ByteDepthwiseKernels &avx2_byte_depthwise(std::int64_t quads, std::int64_t phases,
                                                bool is_float) {
    return byte_depthwise<2>(quads, phases, is_float);
}

const Conv1x1Kernels &avx2_conv1x1_kernels() {
    return kConv1x1Kernels<8, 6>;
}

const RecurrentKernels &avx2_recurrent_kernels() {
    return kRecurrentKernels<8, 12>;
}

const PointwiseKernel *avx2_pointwise_kernel(const char *name) {
    return find_pointwise<8>(name);
}

const Bfloat16Loops &avx2_bfloat16_loops() {
    return kBfloat16Loops<8>;
}

const ByteLoops &avx2_byte_loops() {
    return kByteLoops;
}

const ReductionKernel *avx2_reduction_kernel(const char *name, bool halves) {
    return find_reduction<8>(name, halves);
}

}  // namespace stridewise
