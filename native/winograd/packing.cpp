// Transformed weights of Winograd convolution.
#include <algorithm>
#include <cstring>

#include "support/bfloat16.hpp"
#include "winograd/winograd.hpp"

namespace stridewise {

void Winograd::pack(const float *weights, void *packed, std::int64_t first,
                    std::int64_t count) const {
    const std::int64_t taps = options_.window[0] * options_.window[1];
    const std::int64_t channels = options_.channels / options_.groups;
    pack({weights, channels * taps, taps, false}, packed, first, count);
}

void Winograd::pack(const WinogradFilters &filters, void *packed, std::int64_t first,
                    std::int64_t count) const {
    const WindowTransform transformed(kernels_->tile);
    const std::int64_t lanes = kernels_->lanes;
    const std::int64_t taps = options_.window[0] * options_.window[1];
    const std::int64_t panel = panel_count();
    const std::int64_t channels = options_.channels / options_.groups;
    const float *weights = filters.data + (filters.is_rotated ? taps - 1 : 0);
    Doubles values[WindowTransform::kMost * WindowTransform::kMost];
    for (std::int64_t output = first; output < first + count; output += 2 * lanes) {
        const std::int64_t outputs = std::min(2 * lanes, first + count - output);
        const float *from = weights + (output - first) * filters.output;
        float *to = static_cast<float *>(packed) + output / (2 * lanes) * window() * panel;
        if (outputs < 2 * lanes || channels < group_chunks_ * lanes) {
            std::memset(to, 0, static_cast<std::size_t>(window() * panel) * sizeof(float));
        }
        // All outputs of one channel first, because they share cache lines.
        for (std::int64_t channel = 0; channel < channels; ++channel) {
            for (std::int64_t column = 0; column < outputs; column += kWindows) {
                const std::int64_t windows = std::min(kWindows, outputs - column);
                transformed(from + column * filters.output + channel * filters.channel,
                            filters.output, filters.is_rotated ? -1 : 1, windows, values);
                for (std::int64_t xi = 0; xi < window(); ++xi) {
                    const auto rounded = __builtin_convertvector(values[xi], Floats);
                    put_weights(rounded, windows, channel, column, to + xi * panel);
                }
            }
        }
    }
}

void Winograd::put_weights(const Floats &values, std::int64_t count, std::int64_t channel,
                           std::int64_t column, float *panel) const {
    const std::int64_t outputs = 2 * kernels_->lanes;
    if (options_.multiplies_halves) {
        auto *pairs = reinterpret_cast<Bfloat16 *>(panel + channel / 2 * outputs + column);
        for (std::int64_t i = 0; i < count; ++i) put(pairs + 2 * i + channel % 2, values[i]);
        return;
    }
    float *target = panel + channel * outputs + column;
    if (count == kWindows) {
        std::memcpy(target, &values, sizeof values);
        return;
    }
    for (std::int64_t i = 0; i < count; ++i) target[i] = values[i];
}

}  // namespace stridewise
