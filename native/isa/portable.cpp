#include "isa/portable.hpp"

#include "conv1x1/lanes.hpp"
#include "depthwise/byte_lanes.hpp"
#include "depthwise/lanes.hpp"
#include "pointwise/convert.hpp"
#include "pointwise/lanes.hpp"
#include "recurrent/lanes.hpp"
#include "reduction/lanes.hpp"
#include "winograd/lanes.hpp"

namespace stridewise {
namespace {

// Without instructions for them, conversions are long, so they are not inlined.
template <int N>
__attribute__((noinline)) typename Lanes<N>::V widen_lanes(const Bfloat16 *from) {
    typename Lanes<N>::V value;
    for (int lane = 0; lane < N; ++lane) value[lane] = as_float(from[lane]);
    return value;
}

template <int N>
__attribute__((noinline)) void round_lanes(Bfloat16 *to, const typename Lanes<N>::V &value) {
    for (int lane = 0; lane < N; ++lane) put(to + lane, value[lane]);
}

template <>
inline Lanes<8>::V Lanes<8>::load(const Bfloat16 *from) {
    return widen_lanes<8>(from);
}

template <>
inline Lanes<16>::V Lanes<16>::load(const Bfloat16 *from) {
    return widen_lanes<16>(from);
}

template <>
inline void Lanes<8>::store(Bfloat16 *to, V value) {
    round_lanes<8>(to, value);
}

template <>
inline void Lanes<16>::store(Bfloat16 *to, V value) {
    round_lanes<16>(to, value);
}

}  // namespace

const WinogradKernels *portable_winograd_kernels(const WinogradTile &tile, HalfSides halves,
                                                 int lanes) {
    return lanes == 16 ? find_winograd<16, 2>(tile, halves) : find_winograd<8, 3>(tile, halves);
}

const WinogradKernels *portable_pair_kernels(const WinogradTile &tile, bool is_half, int lanes) {
    return lanes == 16 ? find_winograd_in_pairs<16, 2>(tile, is_half)
                       : find_winograd_in_pairs<8, 3>(tile, is_half);
}

const DepthwiseKernels &portable_depthwise_kernels(const DepthwiseAxis &axis, HalfSides halves,
                                                   int lanes) {
    return lanes == 16 ? depthwise_kernels<16, 2>(axis, halves)
                       : depthwise_kernels<8, 3>(axis, halves);
}

const ByteDepthwiseKernels &portable_byte_depthwise(std::int64_t /*quads*/, std::int64_t /*phases*/,
                                                    bool is_float) {
    return is_float ? kByteDepthwise<1, 0, 1, true> : kByteDepthwise<1, 0, 1, false>;
}

const Conv1x1Kernels &portable_conv1x1_kernels(int lanes) {
    return lanes == 16 ? kConv1x1Kernels<16, 2> : kConv1x1Kernels<8, 3>;
}

const Conv1x1Kernels &portable_conv1x1_pair_kernels(int lanes, bool half) {
    return lanes == 16 ? conv1x1_pair_kernels<16, 2>(half) : conv1x1_pair_kernels<8, 3>(half);
}

const RecurrentKernels &portable_recurrent_kernels(int lanes) {
    return lanes == 16 ? kRecurrentKernels<16, 4> : kRecurrentKernels<8, 8>;
}

const PointwiseKernel *portable_pointwise_kernel(const char *name) {
    return find_pointwise<8>(name);
}

const Bfloat16Loops &portable_bfloat16_loops() {
    return kBfloat16Loops<8>;
}

const ByteLoops &portable_byte_loops() {
    return kByteLoops;
}

const ReductionKernel *portable_reduction_kernel(const char *name, bool halves) {
    return find_reduction<8>(name, halves);
}

}  // namespace stridewise
