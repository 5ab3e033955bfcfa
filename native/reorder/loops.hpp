// Positions in loop nests.
#pragma once

#include <array>

#include "reorder/tile.hpp"

namespace stridewise {

// Offsets in source and destination in bytes, and in scales in elements.
struct Place {
    std::int64_t src, dst, scale;

    Place plus(const Place &other) const {
        return {src + other.src, dst + other.dst, scale + other.scale};
    }
};

// The position in a loop nest. `at` counts all iterations; the last loop is innermost.
class Odometer {
  public:
    Odometer(const std::vector<ReorderLoop> &loops, std::int64_t at) : loops_(loops) {
        for (std::size_t i = loops.size(); i-- > 0;) {
            index_[i] = at % loops[i].extent;
            at /= loops[i].extent;
            move(loops[i], index_[i]);
        }
    }
    const Place &place() const { return place_; }
    void next() {
        for (std::size_t i = loops_.size(); i-- > 0;) {
            move(loops_[i], 1);
            if (++index_[i] < loops_[i].extent) return;
            index_[i] = 0;
            move(loops_[i], -loops_[i].extent);
        }
    }

  private:
    void move(const ReorderLoop &loop, std::int64_t rounds) {
        place_.src += rounds * loop.src;
        place_.dst += rounds * loop.dst;
        place_.scale += rounds * loop.scale;
    }

    const std::vector<ReorderLoop> &loops_;
    std::array<std::int64_t, kMostLoops> index_;  // fixed size: no allocation in a parallel region
    Place place_{0, 0, 0};
};

}  // namespace stridewise
