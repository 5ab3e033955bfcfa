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
    static constexpr int kBlock = 8;

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

template <int N, int Rows>
constexpr Conv1x1Kernels kConv1x1Kernels{
    N,
    Rows,
    Scaling<N>::run,
    {{Expansion<N, Rows, false, 1>::run, Expansion<N, Rows, false>::run},
     {Expansion<N, Rows, false, 1, true>::run, Expansion<N, Rows, false, 2, true>::run}},
    {{Expansion<N, Rows, false, 1>::run, Expansion<N, Rows, false>::run},
     {Expansion<N, Rows, false, 1, true>::run, Expansion<N, Rows, false, 2, true>::run}},
    Finish<N, float>::run};

template <int N, int Rows, class T>
constexpr Conv1x1Kernels kConv1x1PairKernels{
    N,
    Rows,
    nullptr,
    {{nullptr, nullptr},
     {Expansion<N, Rows, true, 1, true>::run, Expansion<N, Rows, true, 2, true>::run}},
    {{nullptr, nullptr},
     {Expansion<N, Rows, true, 1, true, T>::run, Expansion<N, Rows, true, 2, true, T>::run}},
    Finish<N, T>::run};

template <int N, int Rows>
const Conv1x1Kernels &conv1x1_pair_kernels(bool half) {
    return half ? kConv1x1PairKernels<N, Rows, Bfloat16> : kConv1x1PairKernels<N, Rows, float>;
}

}  // namespace
}  // namespace stridewise
