// The library's C++ interface, without its experimental parts, and the names of its enumerators.
#pragma once

#include <oneapi/dnnl/dnnl_config.h>

// With sparse tensors switched on, the headers call functions that only libraries built the same
// way have; without them, the core runs with every release 3.x.
#undef DNNL_EXPERIMENTAL_SPARSE

#include <oneapi/dnnl/dnnl_debug.h>

#include <oneapi/dnnl/dnnl.hpp>
