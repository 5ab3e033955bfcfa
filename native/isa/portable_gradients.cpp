#include "batch_norm/lanes.hpp"
#include "isa/portable.hpp"
#include "winograd/weights_lanes.hpp"

namespace stridewise {

const WinogradWeightsKernels *portable_winograd_weights(const WinogradTile &tile, int lanes) {
    return lanes == 16 ? find_winograd_weights<16, 2>(tile) : find_winograd_weights<8, 2>(tile);
}

const NormKernels &portable_norm_kernels(const NormKind &kind) {
    return find_norm<8>(kind);
}

}  // namespace stridewise
