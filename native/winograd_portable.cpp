#include "winograd_lanes.hpp"

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

const WinogradKernels &portable_winograd_kernels(int tile, int lanes) {
    static constexpr WinogradKernels table[2][2] = {
        {kernels_of<8, 2, 3>(), kernels_of<8, 4, 3>()},
        {kernels_of<16, 2, 2>(), kernels_of<16, 4, 2>()},
    };
    return table[lanes == 16][tile == 4];
}

}  // namespace stridewise
