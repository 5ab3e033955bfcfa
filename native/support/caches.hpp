// The sizes of this processor's caches, in bytes.
#pragma once

#include <cstdint>

namespace stridewise {

struct Caches {
    std::int64_t first, second;  // of one core, for data
    std::int64_t third;          // shared by a group of cores
};

// The sizes that the operating system reports, or those of a small server processor. Read once.
const Caches &caches();

// The size of one cache by its level: 1 to 3.
std::int64_t cache_nbytes(int level);

}  // namespace stridewise
