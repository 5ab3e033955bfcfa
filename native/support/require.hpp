// Checks of arguments. They are not in errors.hpp, which depends on oneDNN.
#pragma once

#include <stdexcept>
#include <string>

namespace stridewise {

// Throws std::invalid_argument (ValueError in Python) if the condition is false.
inline void require(bool condition, const std::string &what) {
    if (!condition) throw std::invalid_argument(what);
}

}  // namespace stridewise
