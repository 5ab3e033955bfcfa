// The transform of weights for Winograd kernels.
#pragma once

#include <cstdint>
#include <map>
#include <utility>

#include "winograd/kernels.hpp"
#include "winograd/points.hpp"

namespace stridewise {

// Number of windows that are transformed together.
constexpr std::int64_t kWindows = 8;
using Doubles = double __attribute__((vector_size(kWindows * sizeof(double))));
using Floats = float __attribute__((vector_size(kWindows * sizeof(float))));

using TapTransform = void (*)(const Doubles *taps, Doubles *values);

inline TapTransform tap_transform(int places, int taps) {
    static const std::map<std::pair<int, int>, TapTransform> table = {
        {{1, 1}, [](const Doubles *given, Doubles *values) { *values = *given; }},
        {{4, 2}, transform_taps<4, 2>},
        {{4, 3}, transform_taps<4, 3>},
        {{6, 2}, transform_taps<6, 2>},
        {{6, 3}, transform_taps<6, 3>},
        {{6, 5}, transform_taps<6, 5>},
        {{8, 3}, transform_taps<8, 3>},
        {{8, 4}, transform_taps<8, 4>},
        {{8, 5}, transform_taps<8, 5>},
        {{8, 7}, transform_taps<8, 7>},
        {{10, 7}, transform_taps<10, 7>},
    };
    return table.at({places, taps});
}

// Transforms windows of one tile, in double precision.
class WindowTransform {
  public:
    explicit WindowTransform(const WinogradTile &tile)
        : tile_(tile),
          vertical_(tap_transform(tile.places_high(), tile.taps_high)),
          horizontal_(tap_transform(tile.places_wide(), tile.taps_wide)) {}

    // Transforms up to kWindows windows that are `distance` elements apart and whose taps are
    // `step` elements apart: 1, or -1 if `windows` is at the last tap and windows are rotated.
    // `values` must hold places_high() x places_wide() vectors.
    void operator()(const float *windows, std::int64_t distance, std::int64_t step,
                    std::int64_t count, Doubles *values) const {
        Doubles lines[kMost * kMost], taps[kMost], column[kMost];
        for (int j = 0; j < tile_.taps_wide; ++j) {
            for (int i = 0; i < tile_.taps_high; ++i) {
                const float *tap = windows + (i * tile_.taps_wide + j) * step;
                taps[i] = Doubles{};
                for (std::int64_t window = 0; window < count; ++window) {
                    taps[i][window] = static_cast<double>(tap[window * distance]);
                }
            }
            vertical_(taps, column);
            for (int i = 0; i < tile_.places_high(); ++i) {
                lines[i * tile_.taps_wide + j] = column[i];
            }
        }
        for (int i = 0; i < tile_.places_high(); ++i) {
            horizontal_(lines + i * tile_.taps_wide, values + i * tile_.places_wide());
        }
    }

    static constexpr int kMost = 10;  // places along an axis

  private:
    WinogradTile tile_;
    TapTransform vertical_, horizontal_;
};

}  // namespace stridewise
