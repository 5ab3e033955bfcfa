// Images as the kernels of Stridewise access them: in chunks of one contiguous vector of channels.
//
// It includes no standard templates, for the reason in winograd/kernels.hpp.
#pragma once

#include <cstdint>

namespace stridewise {

constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
    return (a + b - 1) / b;
}

// Returns `count` float32 numbers rounded up to whole lines of the cache.
constexpr std::int64_t whole_lines(std::int64_t count) {
    constexpr std::int64_t kLine = 64 / sizeof(float);
    return ceil_div(count, kLine) * kLine;
}

// Returns `count` float32 numbers rounded up to whole lines of the cache, and a page. Processors
// fetch lines ahead within a page, so data of a thread that another one writes must not be near.
constexpr std::int64_t apart(std::int64_t count) {
    constexpr std::int64_t kPage = 4096 / sizeof(float);
    return whole_lines(count) + kPage;
}

// Strides of an image, in elements.
struct ImageStrides {
    std::int64_t image;
    std::int64_t chunk;
    std::int64_t row;
    std::int64_t pixel;
};

// Strides of images with channels last, or with channels in blocks of one vector.
constexpr ImageStrides strides_of(bool channels_last, std::int64_t lanes, std::int64_t channels,
                                  std::int64_t height, std::int64_t width) {
    if (channels_last) return {height * width * channels, lanes, width * channels, channels};
    const std::int64_t chunk = height * width * lanes;
    return {ceil_div(channels, lanes) * chunk, chunk, width * lanes, lanes};
}

}  // namespace stridewise
