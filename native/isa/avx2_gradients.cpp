#include <immintrin.h>

#include "winograd/weights_lanes.hpp"

namespace stridewise {
namespace {

template <>
inline Lanes<8>::V Lanes<8>::spread(const float *from) {
    return _mm256_broadcast_ss(from);
}

}  // namespace

const WinogradWeightsKernels *avx2_winograd_weights(const WinogradTile &tile) {
    return find_winograd_weights<8, 4>(tile);
}

}  // namespace stridewise
