#include "isa/portable.hpp"
#include "reduction/row_lanes.hpp"

namespace stridewise {

const RowKernels &portable_row_kernels() {
    return kRowKernels<8>;
}

}  // namespace stridewise
