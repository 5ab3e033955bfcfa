// Gradients by the library's backward primitives, and primitives on weights in the user's order.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "executor/kernel.hpp"
#include "onednn/primitives.hpp"

namespace stridewise {

// A primitive with some of the arguments that it reads in other formats than its own. These are
// reordered before each execution. Given weights may have more groups than the primitive has, which
// computes several of them as one that is zero between them.
std::shared_ptr<Kernel> fitted(const PrimitiveDesc &desc, const std::map<int, MemoryDesc> &given);

// The gradient of a convolution's weights, DST, of its source SRC and the gradient DIFF_DST of its
// result. Sums are in the same order in every execution. `groups_together` groups are computed as
// one, whose products of one group with another are left out of the result; 1 for each by itself.
std::shared_ptr<Kernel> conv_weight_gradient(const MemoryDesc &src, const MemoryDesc &diff_dst,
                                             const MemoryDesc &diff_weights, const Window &window,
                                             int groups_together, int threads);

// A max pooling DST of SRC that also gives the position in its window of each maximum, WORKSPACE.
// Positions are bytes, for windows of up to 255 elements.
std::shared_ptr<Kernel> pooling_places(const MemoryDesc &src, const MemoryDesc &dst,
                                       const MemoryDesc &places, const Dims &kernel,
                                       const Window &window, int threads);

// The gradient of a pooling's source, DST, of the gradient DIFF_DST of its result. The algorithm
// "max" also reads the positions WORKSPACE, or without `places` the source SRC, where it finds the
// maxima again.
std::shared_ptr<Kernel> pooling_gradient(const std::string &algorithm, const MemoryDesc &src,
                                         const MemoryDesc &diff_dst,
                                         const std::optional<MemoryDesc> &places,
                                         const Dims &kernel, const Window &window, int threads);

// A batch norm by the statistics of the batch: DST, MEAN and VARIANCE of SRC, SCALE and SHIFT.
std::shared_ptr<Kernel> batch_norm_training(const MemoryDesc &src, const MemoryDesc &dst,
                                            float epsilon, int threads);

// The gradients of a batch norm's source, DST, scale and shift, DIFF_SCALE and DIFF_SHIFT, of SRC,
// DIFF_DST, SCALE, MEAN and VARIANCE.
std::shared_ptr<Kernel> batch_norm_gradient(const MemoryDesc &src, const MemoryDesc &diff_dst,
                                            const MemoryDesc &diff_src, float epsilon, int threads);

}  // namespace stridewise
