// What the kernels of gradients of depthwise convolutions have in common.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "depthwise/kernels.hpp"

namespace stridewise {

// A row of results reads at most this many rows at once.
constexpr std::int64_t kMostTaps = 64;

struct GradientOptions {
    std::int64_t images, channels;
    std::array<std::int64_t, 2> from, to;  // extents of the source, and of the other image
    std::array<std::int64_t, 2> pads;      // top, left
    std::array<DepthwiseAxis, 2> window;   // down, across
    int lanes;                             // elements of a vector: 8 or 16
    bool is_half;                          // whether both images are of bfloat16
    bool channels_last;                    // otherwise channels in blocks of one vector
    int threads;
    std::string isa;  // one of kernel_isas(lanes, is_half); "" for the best
};

// Returns the options with the name of the instruction set. Throws std::invalid_argument, with
// `what` in front, if the kernels do not support them.
GradientOptions checked(GradientOptions options, const std::string &what);

}  // namespace stridewise
