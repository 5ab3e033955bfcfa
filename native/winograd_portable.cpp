#include "winograd_lanes.hpp"

namespace stridewise {
namespace {

template <>
inline Lanes<8>::V Lanes<8>::spread(const float *from) {
    return all(*from);
}

}  // namespace

const WinogradKernels &portable_winograd_kernels(int tile) {
    static constexpr WinogradKernels small = kernels_of<8, 2, 3>();
    static constexpr WinogradKernels large = kernels_of<8, 4, 3>();
    return tile == 2 ? small : large;
}

}  // namespace stridewise
