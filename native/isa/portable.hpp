// Vectors for the files that are compiled without instructions of one set.
#pragma once

#include "support/vectors.hpp"

namespace stridewise {
namespace {

template <>
inline Lanes<8>::V Lanes<8>::spread(const float *from) {
    return all(*from);
}

template <>
inline Lanes<16>::V Lanes<16>::spread(const float *from) {
    return all(*from);
}

}  // namespace
}  // namespace stridewise
