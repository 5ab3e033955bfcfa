#include "attention/lanes.hpp"
#include "isa/avx2.hpp"
#include "reduction/row_lanes.hpp"

namespace stridewise {
const RowKernels &avx2_row_kernels(HalfSides halves) {
    return find_row_kernels<8>(halves);
}

const AttentionKernels &avx2_attention_kernels() {
    return kAttentionKernels<8>;
}

}  // namespace stridewise
