// Which instruction sets the kernels of Stridewise may use.
#pragma once

#include <string>
#include <vector>

namespace stridewise {

// The instruction sets with kernels for vectors of 8 or 16 lanes that this processor has and that
// oneDNN is allowed to use, best first; those for bfloat16 tensors where there are some.
std::vector<std::string> kernel_isas(int lanes, bool halves = false);
// Those with kernels for tensors of bytes, best first.
std::vector<std::string> byte_isas();

}  // namespace stridewise
