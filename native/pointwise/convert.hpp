// Loops over elements that are stored in bfloat16, in vectors of any width.
//
// It includes no standard templates, for the reason in winograd/kernels.hpp.
#pragma once

#include "pointwise/kernels.hpp"
#include "support/vectors.hpp"

namespace stridewise {
namespace {

template <int N, class From, class To>
void convert(const From *from, To *to, std::int64_t count) {
    using L = Lanes<N>;
    for (; count >= N; count -= N, from += N, to += N) L::store(to, L::load(from));
    L::store_some(to, L::load_some(from, count), count);
}

template <int N>
constexpr Bfloat16Loops kBfloat16Loops{convert<N, Bfloat16, float>, convert<N, float, Bfloat16>};

}  // namespace
}  // namespace stridewise
