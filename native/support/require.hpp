// Checks of arguments; apart from errors.hpp because it needs nothing of the library.
#pragma once

#include <stdexcept>
#include <string>

namespace stridewise {

// Throws std::invalid_argument (ValueError in Python), for what the caller got wrong.
inline void require(bool condition, const std::string &what) {
    if (!condition) throw std::invalid_argument(what);
}

}  // namespace stridewise
