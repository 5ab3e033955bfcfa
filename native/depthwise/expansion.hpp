// Products of the 1x1 convolution, alone or joined to a depthwise one, in vectors of any width;
// each file that includes it compiles one width.
//
// It includes no standard templates, for the reason in winograd/kernels.hpp.
#pragma once

#include "depthwise/kernels.hpp"
#include "support/vectors.hpp"

namespace stridewise {
namespace {

// Matrix products of up to `Most` pixels over all channels, or pairs of channels. With a `Width` of
// 1 only the first vector of each pair is computed. Pixels are one vector apart, or `Strided`.
// Results are of type T.
template <int N, int Most, bool InPairs, int Width = 2, bool Strided = false, class T = float>
struct Expansion {
    using L = Lanes<N>;
    using V = typename L::V;
    // Pixels that share a pointer: addresses have one index, times 0, 1 or 2 of these elements.
    static constexpr int kShare = Strided ? 3 : Most;
    static constexpr int kPointers = (Most + kShare - 1) / kShare;
    static constexpr std::int64_t kLine = 64 / sizeof(float);  // elements of a cache line

    static inline V added(V sum, V value, V weights) {
        return InPairs ? L::add_pairs(sum, value, weights) : sum + value * weights;
    }

    static inline void add(const float *const *pixels, std::int64_t stride, int lane,
                           const float *weights, V (*sums)[Width]) {
        V factors[Width];
        for (int i = 0; i < Width; ++i) factors[i] = L::load(weights + i * N);
#pragma GCC unroll 16
        for (int row = 0; row < Most; ++row) {
            const V value = L::spread(pixels[row / kShare] + row % kShare * stride + lane);
            for (int i = 0; i < Width; ++i) sums[row][i] = added(sums[row][i], value, factors[i]);
        }
    }

    // Chunks of pixels lie far from each other, so the processor does not fetch the next one. These
    // are the pixels of one chunk after the other, and of the next product behind the last.
    struct Fetch {
        static constexpr std::int64_t kChunks = 6;  // ahead
        const ExpandProduct &product;
        std::int64_t chunk;
        const float *from;

        explicit Fetch(const ExpandProduct &of)
            : product(of), chunk(kChunks), from(of.pixels + kChunks * of.chunk_stride) {
            // Few chunks are fetched while the product before is computed.
            if (product.channels <= kChunks * N) from = of.pixels + Most * N, chunk = 0;
        }
        inline void next() {
            if (chunk * N >= product.channels) from = product.pixels + Most * N, chunk = 0;
            for (std::int64_t at = 0; at < Most * N; at += kLine) __builtin_prefetch(from + at);
            from += product.chunk_stride;
            ++chunk;
        }
    };

    // A few lines of expected results with each chunk: many at once would fill the buffers for
    // misses, and the product would wait for them.
    struct Expect {
        const ExpectedResults &expected;
        std::int64_t row, step;

        explicit Expect(const ExpandProduct &of)
            : expected(of.expected),
              row(0),
              step((of.expected.rows * N + of.runs * of.channels - 1) / (of.runs * of.channels)) {}
        inline void next() {
            const std::int64_t rows = expected.rows - row < step ? expected.rows : row + step;
            for (; row < rows; ++row) {
                const std::int64_t at = row * expected.pixel;
                __builtin_prefetch(expected.results + at, 1);
                __builtin_prefetch(expected.results + at + expected.half, 1);
                if (expected.others == nullptr) continue;
                __builtin_prefetch(expected.others + at);
                __builtin_prefetch(expected.others + at + expected.half);
            }
        }
    };

    static void multiply(const ExpandProduct &product) {
        const float *weights = product.weights, *next = product.next, *pixels[kPointers];
        Fetch fetch(product);
        Expect expect(product);
        const std::int64_t stride = Strided ? product.pixel_stride : N;
        for (int i = 0; i < kPointers; ++i) pixels[i] = product.pixels + i * kShare * stride;
        const auto advance = [&](std::int64_t count) {
            for (int i = 0; i < kPointers; ++i) pixels[i] += count;
        };
        V sums[Most][Width];
#pragma GCC unroll 16
        for (int row = 0; row < Most; ++row) {
            const float *start = product.start + row * product.start_pixel;
            for (int i = 0; i < Width; ++i) sums[row][i] = L::load(start + i * N);
        }
        for (std::int64_t run = 0;;) {
            std::int64_t left = product.channels;
            for (; left >= N; left -= N, advance(product.chunk_stride)) {
                if (!Strided && product.fetches) fetch.next();
                for (std::int64_t line = 0; line < product.next_lines; ++line) {
                    __builtin_prefetch(next, 0, 3);
                    next += kLine;
                }
                expect.next();
#pragma GCC unroll 4
                for (int lane = 0; lane < N; ++lane, weights += 2 * N) {
                    add(pixels, stride, lane, weights, sums);
                }
            }
            if (left > 0 && product.channels < N) expect.next();
            for (; left > 0; --left, advance(1), weights += 2 * N) {
                add(pixels, stride, 0, weights, sums);
            }
            if (++run >= product.runs) break;
            const float *start = product.pixels + (product.offsets[run] - product.offsets[0]);
            for (int i = 0; i < kPointers; ++i) pixels[i] = start + i * kShare * stride;
        }
        if (product.others != nullptr) {
#pragma GCC unroll 16
            for (int row = 0; row < Most; ++row) {
                const T *others =
                    static_cast<const T *>(product.others) + row * product.result_pixel;
                for (int i = 0; i < Width; ++i) {
                    sums[row][i] += L::load(others + i * product.result_half);
                }
            }
        }
        if (product.clips) {
            const V low = L::all(product.low), high = L::all(product.high);
#pragma GCC unroll 16
            for (int row = 0; row < Most; ++row) {
                for (int i = 0; i < Width; ++i) {
                    sums[row][i] = L::smaller(high, L::larger(low, sums[row][i]));
                }
            }
        }
#pragma GCC unroll 16
        for (int row = 0; row < Most; ++row) {
            for (int i = 0; i < Width; ++i) {
                T *to = static_cast<T *>(product.results) + row * product.result_pixel;
                L::store(to + i * product.result_half, sums[row][i]);
            }
        }
    }

    static void run(const ExpandProduct &product) {
        if (product.rows == Most) {
            multiply(product);
        } else if constexpr (Most > 1) {
            Expansion<N, Most - 1, InPairs, Width, Strided, T>::run(product);
        }
    }
};

}  // namespace
}  // namespace stridewise
