#include "isa/avx2.hpp"
#include "isa/totals.hpp"
#include "reduction/row_lanes.hpp"

namespace stridewise {
namespace {

template <>
inline float Rows<8>::total(V values) {
    return total_of(values);
}

}  // namespace

const RowKernels &avx2_row_kernels(HalfSides halves) {
    return find_row_kernels<8>(halves);
}

}  // namespace stridewise
