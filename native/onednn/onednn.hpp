// oneDNN's C++ interface without its experimental parts, and the names of its enumerators.
#pragma once

#include <oneapi/dnnl/dnnl_config.h>

// With sparse tensors enabled, the headers call functions that exist only in libraries with the
// same build option. Without them, the core runs with every release 3.x.
#undef DNNL_EXPERIMENTAL_SPARSE

#include <oneapi/dnnl/dnnl_debug.h>

#include <oneapi/dnnl/dnnl.hpp>
