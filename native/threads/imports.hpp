// The functions that a loaded library imports.
#pragma once

#include <string>
#include <vector>

namespace stridewise {

// Binds the functions of OpenMP that a library imports to those of openmp.hpp. Other libraries of
// the process keep their OpenMP runtime. The library is the one that has `inside` in its code, and
// must not be inside of a region.
//
// Returns the names of imported functions of OpenMP that openmp.hpp lacks; if there are any,
// nothing is bound. Throws std::runtime_error if there is no such library, or the system refuses to
// change its table of imported functions.
std::vector<std::string> bind_openmp(const void *inside);

}  // namespace stridewise
