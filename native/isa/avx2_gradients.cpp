#include "batch_norm/lanes.hpp"
#include "isa/avx2.hpp"
#include "winograd/weights_lanes.hpp"

namespace stridewise {

const WinogradWeightsKernels *avx2_winograd_weights(const WinogradTile &tile) {
    return find_winograd_weights<8, 4>(tile);
}

const NormKernels &avx2_norm_kernels(const NormKind &kind) {
    return find_norm<8>(kind);
}

}  // namespace stridewise
