// What the parts of the Python module share.
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

// Post-ops as the module's signatures write them: ('eltwise', algorithm, alpha, beta),
// ('sum', scale) or ('binary', algorithm, MemoryDesc).
PostOps parse_post_ops(const Entries &entries);

// Kernels of our own: the classes, and how they are measured.
void bind_kernels(nanobind::module_ &m);

}  // namespace stridewise
