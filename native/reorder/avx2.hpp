// The parts of the table of AVX2 kernels, one per file.
#pragma once

#include "reorder/kernels.hpp"

namespace stridewise {

void add_avx2_copies(ReorderKernels &kernels);
void add_avx2_transpositions(ReorderKernels &kernels);
void add_avx2_conversions(ReorderKernels &kernels);
void add_avx2_converted_transpositions(ReorderKernels &kernels);

}  // namespace stridewise
