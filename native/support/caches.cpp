#include "support/caches.hpp"

#include <unistd.h>

#include <fstream>
#include <string>

#include "support/errors.hpp"

namespace stridewise {
namespace {

// The size of a cache of the first processor as reported by Linux. sysconf() is not used, because
// it may return the sum over all groups of cores, while a thread uses the cache of one group.
std::int64_t listed(int level) {
    for (int index = 0; index < 8; ++index) {
        const std::string folder =
            "/sys/devices/system/cpu/cpu0/cache/index" + std::to_string(index) + "/";
        std::int64_t found = 0, size = 0;
        std::string type, unit;
        std::ifstream(folder + "level") >> found;
        std::ifstream(folder + "type") >> type;
        std::ifstream(folder + "size") >> size >> unit;
        if (found != level || type == "Instruction" || size <= 0 || size > 1 << 30) continue;
        return unit == "K" ? size << 10 : unit == "M" ? size << 20 : size;
    }
    return 0;
}

std::int64_t size_of(int level, std::int64_t otherwise) {
    std::int64_t found = listed(level);
#ifdef _SC_LEVEL1_DCACHE_SIZE
    constexpr int names[] = {_SC_LEVEL1_DCACHE_SIZE, _SC_LEVEL2_CACHE_SIZE, _SC_LEVEL3_CACHE_SIZE};
    if (found <= 0) found = sysconf(names[level - 1]);
#endif
    return found > 0 ? found : otherwise;
}

}  // namespace

const Caches &caches() {
    static const Caches found = {size_of(1, 32 << 10), size_of(2, 512 << 10), size_of(3, 16 << 20)};
    return found;
}

std::int64_t cache_nbytes(int level) {
    require(level >= 1 && level <= 3, "level: expected 1 to 3, got " + std::to_string(level));
    return level == 1 ? caches().first : level == 2 ? caches().second : caches().third;
}

}  // namespace stridewise
