// Exceptions of the native core. std::invalid_argument (ValueError in Python) is for what the
// caller got wrong and NativeError is for what oneDNN refused.
#pragma once

#include <stdexcept>
#include <string>

#include "onednn/onednn.hpp"
#include "support/require.hpp"

namespace stridewise {

// dnnl::error keeps only a pointer to its message, so it cannot carry a composed one.
class NativeError : public std::runtime_error {
  public:
    NativeError(dnnl_status_t status, const std::string &what)
        : std::runtime_error("oneDNN: " + what + " (status " + dnnl_status2str(status) + ")") {}
};

inline void check(dnnl_status_t status, const char *what) {
    if (status != dnnl_success) throw NativeError(status, what);
}

}  // namespace stridewise
