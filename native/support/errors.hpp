// Exceptions of the native core: std::invalid_argument (ValueError in Python) for invalid
// arguments, NativeError for errors of oneDNN.
#pragma once

#include <stdexcept>
#include <string>

#include "onednn/onednn.hpp"
#include "support/require.hpp"

namespace stridewise {

// dnnl::error stores only a pointer to its message, so it cannot hold a composed message.
class NativeError : public std::runtime_error {
  public:
    NativeError(dnnl_status_t status, const std::string &what)
        : std::runtime_error("oneDNN: " + what + " (status " + dnnl_status2str(status) + ")") {}
};

inline void check(dnnl_status_t status, const char *what) {
    if (status != dnnl_success) throw NativeError(status, what);
}

}  // namespace stridewise
