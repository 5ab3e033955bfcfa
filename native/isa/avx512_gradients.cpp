#include "batch_norm/lanes.hpp"
#include "isa/avx512.hpp"
#include "winograd/weights_lanes.hpp"

namespace stridewise {

const WinogradWeightsKernels *avx512_winograd_weights(const WinogradTile &tile) {
    return find_winograd_weights<16, 8>(tile);
}

const NormKernels &avx512_norm_kernels(const NormKind &kind) {
    return find_norm<16>(kind);
}

}  // namespace stridewise
