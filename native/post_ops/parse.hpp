// Conversion of descriptions of post-ops to stages of the kernels of Stridewise.
#pragma once

#include "onednn/primitives.hpp"
#include "post_ops/stages.hpp"

namespace stridewise {

// Throws std::invalid_argument if the kernels do not support the post-op.
Stage stage_of(const PostOp &post_op);

}  // namespace stridewise
