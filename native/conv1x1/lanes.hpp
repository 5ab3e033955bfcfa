// 1x1 convolution in vectors of any width; each file that includes it compiles one width.
#pragma once

#include "conv1x1/kernels.hpp"
#include "depthwise/expansion.hpp"
#include "depthwise/lanes.hpp"

namespace stridewise {
namespace {

template <int N>
struct Scaling {
    using L = Lanes<N>;
    using V = typename L::V;

    template <int Count>
    static inline void apply(const ScaleVectors &work, V *values) {
        for (int s = 0; s < work.stage_count; ++s) {
            Stages<N>::template activate<Count>(work.stages[s], values);
        }
    }

    template <int Count>
    static inline void block(const ScaleVectors &work, std::int64_t first) {
        const float *from = work.from + first * work.from_step;
        const float *factors = work.factors + first * work.factor_step;
        float *to = work.to + first * work.to_step;
        V values[Count];
        for (int k = 0; k < Count; ++k) {
            values[k] =
                L::load(from + k * work.from_step) * L::load(factors + k * work.factor_step);
        }
        apply<Count>(work, values);
        for (int k = 0; k < Count; ++k) L::store(to + k * work.to_step, values[k]);
    }

    static void run(const ScaleVectors &work) {
        constexpr int kBlock = 4;
        std::int64_t first = 0;
        for (; first + kBlock <= work.count; first += kBlock) block<kBlock>(work, first);
        for (; first < work.count; ++first) block<1>(work, first);
        if (work.tail == 0) return;
        V value = L::load_some(work.from + first * work.from_step, work.tail) *
                  L::load(work.factors + first * work.factor_step);
        apply<1>(work, &value);
        L::store(work.to + first * work.to_step, L::without(value, work.tail));
    }
};

template <int N, class T>
struct Finish {
    using V = typename Lanes<N>::V;
    static constexpr int kBlock = 8 / kRegisters<N>;

    template <int Count>
    static inline void some(const FinishPixels &pixels, std::int64_t first, int half,
                            std::int64_t count) {
        if (count >= Count) {
            V sums[Count];
            const float *from = pixels.sums + first * 2 * N + half * N;
            for (int k = 0; k < Count; ++k) sums[k] = Lanes<N>::load(from + k * 2 * N);
            Results<N, T>::template put<Count>(pixels, sums, first, half);
        } else if constexpr (Count > 1) {
            some<Count - 1>(pixels, first, half, count);
        }
    }

    static void run(const FinishPixels &pixels) {
        for (int half = 0; half * N < pixels.lanes; ++half) {
            for (std::int64_t first = 0; first < pixels.count; first += kBlock) {
                some<kBlock>(pixels, first, half, pixels.count - first);
            }
        }
    }
};

// Sums of up to `Most` pixels for each of some outputs. All sums of an output are in one order,
// whatever the number of pixels.
template <int N, int Most, int Outputs>
struct Dots {
    using L = Lanes<N>;
    using V = typename L::V;

    template <class Load>
    static inline void add(const ExpandProduct &product, const float *from, const float *weights,
                           std::int64_t each, V (*sums)[Outputs], const Load &load) {
        V factors[Outputs];
#pragma GCC unroll 4
        for (int i = 0; i < Outputs; ++i) factors[i] = load(weights + i * each);
#pragma GCC unroll 8
        for (int row = 0; row < Most; ++row) {
            const V value = load(from + row * product.pixel_stride);
#pragma GCC unroll 4
            for (int i = 0; i < Outputs; ++i) sums[row][i] += value * factors[i];
        }
    }

    static void multiply(const ExpandProduct &product) {
        const std::int64_t count = product.channels, each = product.runs * count;
        V sums[Most][Outputs] = {};
        const float *weights = product.weights;
        for (std::int64_t run = 0; run < product.runs; ++run, weights += count) {
            const float *from = product.pixels + (product.offsets[run] - product.offsets[0]);
            std::int64_t at = 0;
            for (; at + N <= count; at += N) {
                add(product, from + at, weights + at, each, sums,
                    [](const float *some) { return L::load(some); });
            }
            if (at == count) continue;
            add(product, from + at, weights + at, each, sums,
                [&](const float *some) { return L::load_some(some, count - at); });
        }
        auto *results = static_cast<float *>(product.results);
#pragma GCC unroll 8
        for (int row = 0; row < Most; ++row) {
#pragma GCC unroll 4
            for (int i = 0; i < Outputs; ++i) {
                results[row * product.result_pixel + i] = product.start[i] + L::total(sums[row][i]);
            }
        }
    }

    static void run(const ExpandProduct &product) {
        if (product.rows == Most) {
            multiply(product);
        } else if constexpr (Most > 1) {
            Dots<N, Most - 1, Outputs>::run(product);
        }
    }
};

// With a `Count` known here, vectors of several channels are shuffled in registers.
template <int Count, class T>
inline void interleave_channels(const T *__restrict from, std::int64_t plane, std::int64_t pixels,
                                std::int64_t stride, float *__restrict to) {
    for (std::int64_t pixel = 0; pixel < pixels; ++pixel) {
        for (int channel = 0; channel < Count; ++channel) {
            to[pixel * stride + channel] = as_float(from[channel * plane + pixel]);
        }
    }
}

template <class T>
void interleave(const void *source, std::int64_t plane, std::int64_t channels, std::int64_t count,
                float *to) {
    const T *from = static_cast<const T *>(source);
    switch (channels) {
        case 2:
            return interleave_channels<2>(from, plane, count, 2, to);
        case 3:
            return interleave_channels<3>(from, plane, count, 3, to);
        case 4:
            return interleave_channels<4>(from, plane, count, 4, to);
        default:
            for (std::int64_t channel = 0; channel < channels; ++channel) {
                interleave_channels<1>(from + channel * plane, plane, count, channels,
                                       to + channel);
            }
    }
}

// Pixels whose sums of so many outputs stay in registers.
template <int N, int Outputs, int Sums = (N == 16 ? 16 : 9)>
constexpr int kDotRows = Sums / Outputs < kMostDotRows ? Sums / Outputs : kMostDotRows;

template <int N, int Rows>
constexpr Conv1x1Kernels kConv1x1Kernels{
    N,
    Rows,
    Scaling<N>::run,
    {{Expansion<N, Rows, false, 1>::run, Expansion<N, Rows, false>::run},
     {Expansion<N, Rows, false, 1, true>::run, Expansion<N, Rows, false, 2, true>::run}},
    {{Expansion<N, Rows, false, 1>::run, Expansion<N, Rows, false>::run},
     {Expansion<N, Rows, false, 1, true>::run, Expansion<N, Rows, false, 2, true>::run}},
    Finish<N, float>::run,
    Finish<N, Bfloat16>::run,
    {kDotRows<N, 1>, kDotRows<N, 2>, kDotRows<N, 3>, kDotRows<N, 4>},
    {Dots<N, kDotRows<N, 1>, 1>::run, Dots<N, kDotRows<N, 2>, 2>::run,
     Dots<N, kDotRows<N, 3>, 3>::run, Dots<N, kDotRows<N, 4>, 4>::run},
    {interleave<float>, interleave<Bfloat16>}};

template <int N, int Rows, class T>
constexpr Conv1x1Kernels kConv1x1PairKernels{
    N,
    Rows,
    nullptr,
    {{nullptr, nullptr},
     {Expansion<N, Rows, true, 1, true>::run, Expansion<N, Rows, true, 2, true>::run}},
    {{nullptr, nullptr},
     {Expansion<N, Rows, true, 1, true, T>::run, Expansion<N, Rows, true, 2, true, T>::run}},
    Finish<N, T>::run,
    nullptr,
    {},
    {},
    {}};

template <int N, int Rows>
const Conv1x1Kernels &conv1x1_pair_kernels(bool half) {
    return half ? kConv1x1PairKernels<N, Rows, Bfloat16> : kConv1x1PairKernels<N, Rows, float>;
}

}  // namespace
}  // namespace stridewise
