#include "attention/lanes.hpp"
#include "batch_norm/lanes.hpp"
#include "conv1x1/lanes.hpp"
#include "depthwise/lanes.hpp"
#include "isa/avx512.hpp"
#include "pointwise/convert.hpp"
#include "winograd/lanes.hpp"

namespace stridewise {
namespace {

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

// 2^r for 0 <= r <= 1.
constexpr float kShortPowerOfTwo[] = {1.000002593F, 6.930038345e-1F, 2.414427569e-1F,
                                      5.201146062e-2F, 1.353416791e-2F};

// Results are rounded to 8 bits, or are sums of products of such numbers. So 14 bits are
// sufficient: 2^x = 2^floor(x) 2^(x - floor(x)), by a minimax polynomial of relative error 3e-6.
// Very large and very small results are infinite and zero.
template <>
inline Lanes<16>::V Lanes<16>::power_of_two(V x) {
    const V r = _mm512_maskz_reduce_ps(kAll, x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
    V p = all(kShortPowerOfTwo[4]);
#pragma GCC unroll 4
    for (int i = 3; i >= 0; --i) p = p * r + kShortPowerOfTwo[i];
    return _mm512_maskz_scalef_ps(kAll, p, x);
}

template <>
inline Lanes<16>::V Lanes<16>::quotient(V a, V b) {
    return a * static_cast<V>(_mm512_maskz_rcp14_ps(kAll, b));
}

template <>
inline PairWords<16>::V PairWords<16>::power(V x) {
    return L::power_of_two(L::larger(L::all(-150.0F), x));
}

}  // namespace

const WinogradKernels *avx512_bf16_pair_kernels(const WinogradTile &tile, bool is_half) {
    return find_winograd_in_pairs<16, 14>(tile, is_half);
}

const DepthwiseKernels &avx512_bf16_depthwise_kernels(const DepthwiseAxis &axis, bool is_half) {
    return depthwise_kernels_to<16, 14, Bfloat16>(axis, is_half);
}

const Conv1x1Kernels &avx512_bf16_conv1x1_pair_kernels(bool half) {
    return conv1x1_pair_kernels<16, 14>(half);
}

const NormKernels &avx512_bf16_norm_kernels(const NormKind &kind) {
    return find_norm_on<Bfloat16, 16>(kind);
}

const AttentionKernels &avx512_bf16_attention_kernels() {
    return kPairAttentionKernels<16>;
}

const Bfloat16Loops &avx512_bf16_bfloat16_loops() {
    return kBfloat16Loops<16>;
}

}  // namespace stridewise
