// The sizes of this processor's caches, in bytes.
#pragma once

#include <cstdint>

namespace stridewise {

struct Caches {
    std::int64_t first, second;  // of one core, for data
    std::int64_t third;          // of all cores together
};

// As the operating system tells them; where it does not, those of a small processor of the server
// kind. Read once.
const Caches &caches();

}  // namespace stridewise
