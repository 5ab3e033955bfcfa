#include "elements/elements.hpp"

#include <algorithm>
#include <array>

#include "threads/regions.hpp"

namespace stridewise {
namespace {

constexpr std::int64_t kStep = 64;  // elements that one thread computes at least

// Bytes from the first element to behind the last one.
std::int64_t extent_nbytes(const ElementView &view) {
    const bool fits =
        view.dims.size() == view.strides.size() && view.dims.size() <= DNNL_MAX_NDIMS &&
        std::all_of(view.dims.begin(), view.dims.end(), [](auto extent) { return extent >= 1; }) &&
        std::all_of(view.strides.begin(), view.strides.end(), [](auto step) { return step >= 0; });
    require(fits, "elements: expected positive extents, and a stride of each that is not negative");
    std::int64_t last = 0;
    for (std::size_t axis = 0; axis < view.dims.size(); ++axis) {
        last += (view.dims[axis] - 1) * view.strides[axis];
    }
    return (last + 1) * element_nbytes(view.type);
}

}  // namespace

Elements::Elements(const std::string &op, const std::vector<ElementView> &sources,
                   const ElementView &result, int threads)
    : Kernel(threads), loop_(nullptr) {
    std::vector<std::string> types;
    for (const auto &source : sources) types.push_back(source.type);
    if (!sources.empty() && sources.size() <= kMostSources) {
        loop_ = find_element_loop(op, types, result.type);
    }
    require(loop_ != nullptr, "elements: there is no loop of " + op + " to " + result.type);
    for (std::size_t at = 0; at < sources.size(); ++at) {
        args_.push_back(DNNL_ARG_MULTIPLE_SRC + static_cast<int>(at));
        nbytes_.push_back(extent_nbytes(sources[at]));
        require(sources[at].dims.size() == result.dims.size(),
                "elements: expected sources with as many axes as the result");
    }
    args_.push_back(DNNL_ARG_DST);
    nbytes_.push_back(extent_nbytes(result));
    for (std::size_t axis = 0; axis < result.dims.size(); ++axis) {
        Axis found{result.dims[axis], {}};
        for (std::size_t at = 0; at < sources.size(); ++at) {
            const std::int64_t extent = sources[at].dims[axis];
            require(extent == found.extent || extent == 1, "elements: expected an extent of 1 or " +
                                                               std::to_string(found.extent) +
                                                               ", got " + std::to_string(extent));
            found.steps[at] =
                extent == 1 ? 0 : sources[at].strides[axis] * element_nbytes(sources[at].type);
        }
        found.steps[sources.size()] = result.strides[axis] * element_nbytes(result.type);
        if (found.extent == 1) continue;
        size_ *= found.extent;
        const auto follows = [&](const Axis &outer) {
            for (std::size_t at = 0; at <= sources.size(); ++at) {
                if (outer.steps[at] != found.steps[at] * found.extent) return false;
            }
            return true;
        };
        if (!axes_.empty() && follows(axes_.back())) {
            found.extent *= axes_.back().extent;
            axes_.back() = found;
        } else {
            axes_.push_back(found);
        }
    }
    if (axes_.empty()) axes_.push_back({1, {}});
}

MemoryDesc Elements::arg_desc(int arg) const {
    const auto found = std::find(args_.begin(), args_.end(), arg);
    require(found != args_.end(), "elements: there is no argument " + std::to_string(arg));
    const auto at = static_cast<std::size_t>(found - args_.begin());
    return {{nbytes_[at]}, "u8", "a"};
}

void Elements::execute(const std::vector<void *> &data, void *) const {
    const std::int64_t steps = (size_ + kStep - 1) / kStep;
    in_parallel(threads_, [&](int part, int parts) {
        const std::int64_t begin = std::min(size_, steps * part / parts * kStep);
        const std::int64_t end = std::min(size_, steps * (part + 1) / parts * kStep);
        if (begin < end) run(data, begin, end);
    });
}

void Elements::run(const std::vector<void *> &data, std::int64_t begin, std::int64_t end) const {
    const std::size_t sources = data.size() - 1, inner = axes_.size() - 1;
    std::array<std::int64_t, DNNL_MAX_NDIMS> places{};
    std::int64_t rest = begin;
    for (std::size_t axis = axes_.size(); axis-- > 0;) {
        places[axis] = rest % axes_[axis].extent;
        rest /= axes_[axis].extent;
    }
    while (begin < end) {
        std::array<char *, kMostSources + 1> at{};
        for (std::size_t i = 0; i <= sources; ++i) {
            at[i] = static_cast<char *>(data[i]);
            for (std::size_t axis = 0; axis <= inner; ++axis) {
                at[i] += places[axis] * axes_[axis].steps[i];
            }
        }
        const std::int64_t count = std::min(axes_[inner].extent - places[inner], end - begin);
        loop_(at.data(), axes_[inner].steps, at[sources], axes_[inner].steps[sources], count);
        begin += count;
        places[inner] = 0;
        for (std::size_t axis = inner; axis-- > 0;) {
            if (++places[axis] < axes_[axis].extent) break;
            places[axis] = 0;
        }
    }
}

}  // namespace stridewise
