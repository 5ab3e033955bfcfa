#include <immintrin.h>

#include "winograd_lanes.hpp"

namespace stridewise {
namespace {

template <>
inline Lanes<8>::V Lanes<8>::spread(const float *from) {
    return _mm256_broadcast_ss(from);
}

}  // namespace

const WinogradKernels &avx2_winograd_kernels(int tile) {
    static constexpr WinogradKernels small = kernels_of<8, 2, 6>();
    static constexpr WinogradKernels large = kernels_of<8, 4, 6>();
    return tile == 2 ? small : large;
}

}  // namespace stridewise
