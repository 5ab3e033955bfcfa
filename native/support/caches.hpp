// The sizes of this processor's caches, in bytes.
#pragma once

#include <cstdint>

namespace stridewise {

struct Caches {
    std::int64_t first, second;  // of one core, for data
    std::int64_t third;          // of those cores together that share it with the first
};

// As the operating system tells them; where it does not, those of a small processor of the server
// kind. Read once.
const Caches &caches();

// One of them, by its level: 1 to 3.
std::int64_t cache_nbytes(int level);

}  // namespace stridewise
