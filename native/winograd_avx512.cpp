#include <immintrin.h>

#include "winograd_lanes.hpp"

namespace stridewise {
namespace {

template <>
inline Lanes<16>::V Lanes<16>::spread(const float *from) {
    return _mm512_set1_ps(*from);
}

}  // namespace

const WinogradKernels &avx512_winograd_kernels(int tile) {
    static constexpr WinogradKernels small = kernels_of<16, 2, 14>();
    static constexpr WinogradKernels large = kernels_of<16, 4, 14>();
    return tile == 2 ? small : large;
}

}  // namespace stridewise
