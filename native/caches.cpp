#include "caches.hpp"

#include <unistd.h>

namespace stridewise {
namespace {

std::int64_t size_of([[maybe_unused]] int level, std::int64_t otherwise) {
    std::int64_t found = 0;
#ifdef _SC_LEVEL1_DCACHE_SIZE
    constexpr int names[] = {_SC_LEVEL1_DCACHE_SIZE, _SC_LEVEL2_CACHE_SIZE, _SC_LEVEL3_CACHE_SIZE};
    found = sysconf(names[level - 1]);
#endif
    return found > 0 ? found : otherwise;
}

}  // namespace

const Caches &caches() {
    static const Caches found = {size_of(1, 32 << 10), size_of(2, 512 << 10), size_of(3, 16 << 20)};
    return found;
}

}  // namespace stridewise
