#include "attention/lanes.hpp"
#include "isa/portable.hpp"
#include "reduction/row_lanes.hpp"

namespace stridewise {

const RowKernels &portable_row_kernels(HalfSides halves) {
    return find_row_kernels<8>(halves);
}

const AttentionKernels &portable_attention_kernels() {
    return kAttentionKernels<8>;
}

}  // namespace stridewise
