#include "dropout/dropout.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "support/errors.hpp"
#include "threads/regions.hpp"

namespace stridewise {
namespace {

using Words = std::array<std::uint32_t, 4>;

constexpr double kWords = 4294967296.0;
constexpr std::int64_t kWord = std::int64_t{1} << 32;

// Source: Salmon et al. (2011), Parallel random numbers: as easy as 1, 2, 3; Philox4x32-10.
Words philox(Words counter, std::uint32_t first, std::uint32_t second) {
    for (int round = 0; round < 10; ++round) {
        const std::uint64_t left = std::uint64_t{counter[0]} * 0xD2511F53U;
        const std::uint64_t right = std::uint64_t{counter[2]} * 0xCD9E8D57U;
        counter = {static_cast<std::uint32_t>(right >> 32) ^ counter[1] ^ first,
                   static_cast<std::uint32_t>(right),
                   static_cast<std::uint32_t>(left >> 32) ^ counter[3] ^ second,
                   static_cast<std::uint32_t>(left)};
        first += 0x9E3779B9U;
        second += 0xBB67AE85U;
    }
    return counter;
}

// A number of a counter. Values that are none count as the nearest one, and NaN as 0.
std::uint32_t word_of(float number) {
    constexpr float kMost = 16777215.0F;
    return number > 0 ? static_cast<std::uint32_t>(std::min(number, kMost)) : 0U;
}

}  // namespace

Dropout::Dropout(const MemoryDesc &images, double share, std::int64_t stream, int threads)
    : Kernel(threads, {DNNL_ARG_SRC, DNNL_ARG_SRC_1, DNNL_ARG_DST}),
      images_(images),
      counter_({4}, "f32", "a"),
      least_(0),
      stream_(0),
      scale_(1.0F) {
    require(share >= 0 && share < 1,
            "dropout: expected a share from 0 to below 1, got " + std::to_string(share));
    require(stream >= 0 && stream < kWord,
            "dropout: expected a stream of 32 bits, got " + std::to_string(stream));
    require(!images.is_any() && images.dtype() == "f32" && images.offset() == 0 &&
                images.extent() == images.nbytes(),
            "dropout: expected a dense tensor of f32, got " + images.repr());
    require(images.nbytes() / sizeof(float) / 4 < static_cast<std::size_t>(kWord),
            "dropout: expected fewer elements, got " + images.repr());
    least_ = static_cast<std::uint32_t>(std::floor(share * kWords));
    stream_ = static_cast<std::uint32_t>(stream);
    scale_ = static_cast<float>(1 / (1 - share));
}

MemoryDesc Dropout::arg_desc(int arg) const {
    if (arg == DNNL_ARG_SRC_1) return counter_;
    require(arg == DNNL_ARG_SRC || arg == DNNL_ARG_DST,
            "dropout: there is no argument " + std::to_string(arg));
    return images_;
}

void Dropout::execute(const std::vector<void *> &data, void *) const {
    const auto *from = static_cast<const float *>(data[0]);
    const auto *numbers = static_cast<const float *>(data[1]);
    auto *to = static_cast<float *>(data[2]);
    const std::uint32_t low = word_of(numbers[0]), high = word_of(numbers[1]);
    const std::uint32_t first = word_of(numbers[2]), second = word_of(numbers[3]);
    const auto count = static_cast<std::int64_t>(images_.nbytes() / sizeof(float));
    // Parts end with cache lines, so that no two threads write to one.
    constexpr std::int64_t kLine = 16;
    const std::int64_t lines = (count + kLine - 1) / kLine;
    in_parallel(threads_, [&](int part, int parts) {
        const std::int64_t begin = lines * part / parts * kLine;
        const std::int64_t end = std::min(count, lines * (part + 1) / parts * kLine);
        for (std::int64_t at = begin; at < end; at += 4) {
            const auto group = static_cast<std::uint32_t>(at / 4);
            const Words drawn = philox({group, stream_, low, high}, first, second);
            const std::int64_t left = std::min<std::int64_t>(4, end - at);
            for (std::int64_t lane = 0; lane < left; ++lane) {
                to[at + lane] = drawn[lane] >= least_ ? from[at + lane] * scale_ : 0.0F;
            }
        }
    });
}

}  // namespace stridewise
