#include "depthwise/gradients.hpp"

#include <algorithm>

#include "isa/choice.hpp"
#include "support/errors.hpp"

namespace stridewise {
namespace {

// Limit of taps, strides and dilations along an axis.
constexpr std::int64_t kLargest = 1 << 12;

}  // namespace

GradientOptions checked(GradientOptions o, const std::string &what) {
    const auto known = kernel_isas(o.lanes, o.is_half);
    if (o.isa.empty()) o.isa = known.front();
    require(std::find(known.begin(), known.end(), o.isa) != known.end(),
            what + ": there are no " + o.isa + " kernels of " + std::to_string(o.lanes) +
                " lanes here");
    require(std::min({o.images, o.channels, o.from[0], o.from[1], o.to[0], o.to[1]}) >= 1,
            what + ": expected positive extents");
    for (std::size_t axis = 0; axis < 2; ++axis) {
        const DepthwiseAxis &w = o.window[axis];
        require(std::min({w.taps, w.stride, w.dilation}) >= 1 &&
                    std::max({w.taps, w.stride, w.dilation}) <= kLargest && w.taps <= kMostTaps,
                what + ": taps from 1 to " + std::to_string(kMostTaps) +
                    ", strides and dilations from 1 to " + std::to_string(kLargest));
        require(o.pads[axis] >= 0 && o.pads[axis] < w.extent(),
                what + ": expected a padding smaller than the window");
    }
    return o;
}

}  // namespace stridewise
