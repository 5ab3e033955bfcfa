#include "isa/avx2.hpp"
#include "reduction/row_lanes.hpp"

namespace stridewise {

const RowKernels &avx2_row_kernels() {
    return kRowKernels<8>;
}

}  // namespace stridewise
