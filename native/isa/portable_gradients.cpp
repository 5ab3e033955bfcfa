#include "winograd/weights_lanes.hpp"

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

const WinogradWeightsKernels *portable_winograd_weights(const WinogradTile &tile, int lanes) {
    return lanes == 16 ? find_winograd_weights<16, 2>(tile) : find_winograd_weights<8, 2>(tile);
}

}  // namespace stridewise
