// Post-ops as they are described, made into those that our own kernels apply.
#pragma once

#include "onednn/primitives.hpp"
#include "post_ops/stages.hpp"

namespace stridewise {

// Throws std::invalid_argument for what the kernels cannot do.
Stage stage_of(const PostOp &post_op);

}  // namespace stridewise
