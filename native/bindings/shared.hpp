// Declarations that are shared by the parts of the Python module.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <vector>

#include "onednn/primitives.hpp"

namespace stridewise {

using Entries = std::vector<nanobind::tuple>;
using ReleaseGil = nanobind::call_guard<nanobind::gil_scoped_release>;

// Throws std::invalid_argument for negative numbers; `what` names the argument.
std::size_t as_size(std::int64_t value, const char *what);

// Parses post-ops in the form of the module's signatures: ('eltwise', algorithm, alpha, beta),
// ('sum', scale) or ('binary', algorithm, MemoryDesc).
PostOps parse_post_ops(const Entries &entries);

// Binds the classes of the kernels of Stridewise and their measurement.
void bind_kernels(nanobind::module_ &m);

// Binds the classes of Winograd convolution; needs the class of all kernels.
void bind_winograd(nanobind::module_ &m);

// Binds kernels on elements of any type and by index; needs the class of all kernels.
void bind_elements(nanobind::module_ &m);

// Binds reorders of arrays, and as steps of programs; needs the classes of bind_kernels().
void bind_reorders(nanobind::module_ &m);

// Binds the class that notices changes of tensors of PyTorch.
void bind_tensors(nanobind::module_ &m);

}  // namespace stridewise
