#include <immintrin.h>

#include "winograd/weights_lanes.hpp"

namespace stridewise {
namespace {

template <>
inline Lanes<16>::V Lanes<16>::spread(const float *from) {
    return _mm512_set1_ps(*from);
}

}  // namespace

const WinogradWeightsKernels *avx512_winograd_weights(const WinogradTile &tile) {
    return find_winograd_weights<16, 8>(tile);
}

}  // namespace stridewise
