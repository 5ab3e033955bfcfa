#include "attention/lanes.hpp"
#include "isa/avx512.hpp"
#include "reduction/row_lanes.hpp"

namespace stridewise {
namespace {

// Instructions round to whole numbers and multiply by any power of 2.
template <>
inline Functions<16>::V Functions<16>::exponential(V x) {
    x = L::smaller(L::all(89.0F), L::larger(L::all(-104.0F), x));
    const V n = L::whole(x * 1.44269504088896341F);
    const V r = (x - n * 0.693359375F) + n * 2.12194440e-4F;
    return _mm512_maskz_scalef_ps(kAll, near_exponential<16>(r), n);
}

template <>
inline SingleWords<16>::V SingleWords<16>::power(V x) {
    x = L::larger(L::all(-150.0F), x);
    const V n = L::whole(x);
    return _mm512_maskz_scalef_ps(kAll, near_power_of_two<16>(x - n), n);
}

}  // namespace

const RowKernels &avx512_row_kernels(HalfSides halves) {
    return find_row_kernels<16>(halves);
}

const AttentionKernels &avx512_attention_kernels() {
    return kAttentionKernels<16>;
}

}  // namespace stridewise
