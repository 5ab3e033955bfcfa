#include <immintrin.h>

#include "depthwise/lanes.hpp"
#include "pointwise/convert.hpp"
#include "winograd/lanes.hpp"

namespace stridewise {
namespace {

template <>
inline Lanes<16>::V Lanes<16>::spread(const float *from) {
    return _mm512_set1_ps(*from);
}

// Takes denormal numbers for zero, as the library does.
template <>
inline Lanes<16>::Halves Lanes<16>::rounded(V value) {
    const __m256bh found = _mm512_cvtneps_pbh(value);
    Halves halves;
    __builtin_memcpy(&halves, &found, sizeof halves);
    return halves;
}

template <>
inline Lanes<16>::V Lanes<16>::add_pairs(V sum, V a, V b) {
    __m512bh x, y;
    __builtin_memcpy(&x, &a, sizeof x);
    __builtin_memcpy(&y, &b, sizeof y);
    return _mm512_dpbf16_ps(sum, x, y);
}

}  // namespace

const WinogradKernels *avx512_bf16_pair_kernels(const WinogradTile &tile, bool is_half) {
    return find_winograd_in_pairs<16, 14>(tile, is_half);
}

const DepthwiseKernels &avx512_bf16_depthwise_kernels(const DepthwiseAxis &axis, bool is_half) {
    return depthwise_kernels_to<16, 14, Bfloat16>(axis, is_half);
}

const Bfloat16Loops &avx512_bf16_bfloat16_loops() {
    return kBfloat16Loops<16>;
}

}  // namespace stridewise
