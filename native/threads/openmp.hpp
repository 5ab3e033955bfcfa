// The functions of OpenMP, served by teams.
#pragma once

#include <string_view>

namespace stridewise {

// Returns a function of OpenMP whose regions belong to the team of the calling thread (team.hpp),
// by its name; null if there is none of that name. The functions are those that GCC calls
// (libgomp's manual, "The libgomp ABI") in code such as oneDNN's.
void *openmp_function(std::string_view name);

}  // namespace stridewise
