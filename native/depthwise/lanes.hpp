// Depthwise convolution in vectors of any width; each file that includes it compiles one width.
#pragma once

#include "depthwise/expansion.hpp"
#include "depthwise/kernels.hpp"
#include "post_ops/lanes.hpp"
#include "support/vectors.hpp"

namespace stridewise {
namespace {

// Stores results of type T after the stages that are left.
template <int N, class T>
struct Results {
    using L = Lanes<N>;
    using V = typename L::V;
    using Steps = Stages<N>;

    // Those of one vector, from pixel `first` on.
    template <int Count>
    static inline void put(const ResultPixels &row, V *sums, std::int64_t first, int half) {
        const std::int64_t lanes = row.lanes - half * N;
        const std::int64_t at = first * row.pixel + half * row.half;
        for (int s = 0; s < row.stage_count; ++s) {
            if (row.stages[s].op < StageOp::sum) {
                Steps::template activate<Count>(row.stages[s], sums);
            } else {
                const T *others = static_cast<const T *>(row.stages[s].operand) + row.offset + at;
                Steps::template combine<Count>(row.stages[s], sums, others, row.pixel, lanes);
            }
        }
        T *to = static_cast<T *>(row.result) + at;
        if (lanes >= N) {
#pragma GCC unroll 8
            for (int k = 0; k < Count; ++k) L::store(to + k * row.pixel, sums[k]);
        } else if (row.blocked) {
            for (int k = 0; k < Count; ++k)
                L::store(to + k * row.pixel, L::without(sums[k], lanes));
        } else {
            for (int k = 0; k < Count; ++k) L::store_some(to + k * row.pixel, sums[k], lanes);
        }
    }
};

// A row of results of type T for windows with `Taps` taps, a stride of `Stride` pixels and no
// dilation. With Taps == 0 all three are run-time parameters of the row, with Stride == 0 the
// stride is.
template <int N, int Taps, int Stride, class T>
struct DepthwiseRows {
    using L = Lanes<N>;
    using V = typename L::V;
    // Number of results in flight: enough to hide the latency of multiplications.
    static constexpr int kBlock = 8 / kRegisters<N>;

    // Each pixel is loaded once into a register for all results that use it.
    template <int Count>
    static inline void add_row(const float *from, const float *weights, V *sums) {
        constexpr int kRead = (Count - 1) * Stride + Taps;
        V pixels[kRead];
#pragma GCC unroll 16
        for (int i = 0; i < kRead; ++i) pixels[i] = L::load(from + i * 2 * N);
#pragma GCC unroll 8
        for (int tap = 0; tap < Taps; ++tap) {
            const V weight = L::load(weights + tap * 2 * N);
#pragma GCC unroll 8
            for (int k = 0; k < Count; ++k) sums[k] += pixels[k * Stride + tap] * weight;
        }
    }

    // Each pixel is loaded once per result, as a memory operand of the multiplication.
    template <int Count>
    static inline void add_taps(const float *from, const float *weights, const DepthwiseAxis &axis,
                                V *sums) {
        const std::int64_t step = (Stride > 0 ? Stride : axis.stride) * 2 * N;
        const std::int64_t next = axis.dilation * 2 * N;
        for (std::int64_t tap = 0; tap < axis.taps; ++tap, from += next, weights += 2 * N) {
            const V weight = L::load(weights);
#pragma GCC unroll 8
            for (int k = 0; k < Count; ++k) sums[k] += L::load(from + k * step) * weight;
        }
    }

    // The lanes of a group read one of its channels at a time; `channel` has the lane of that.
    template <int Count>
    static inline void add_channel(const float *from, const float *weights,
                                   const DepthwiseAxis &axis, typename L::Mask channel, V *sums) {
        const std::int64_t step = (Stride > 0 ? Stride : axis.stride) * 2 * N;
        if constexpr (Taps > 0) {
            constexpr int kRead = (Count - 1) * Stride + Taps;
            V pixels[kRead];
#pragma GCC unroll 24
            for (int i = 0; i < kRead; ++i) {
                pixels[i] = L::picked(L::load(from + i * 2 * N), channel);
            }
#pragma GCC unroll 8
            for (int tap = 0; tap < Taps; ++tap) {
                const V weight = L::load(weights + tap * 2 * N);
#pragma GCC unroll 8
                for (int k = 0; k < Count; ++k) sums[k] += pixels[k * Stride + tap] * weight;
            }
        } else {
            for (std::int64_t tap = 0; tap < axis.taps; ++tap, weights += 2 * N) {
                const V weight = L::load(weights);
#pragma GCC unroll 8
                for (int k = 0; k < Count; ++k) {
                    sums[k] += L::picked(L::load(from + k * step), channel) * weight;
                }
                from += axis.dilation * 2 * N;
            }
        }
    }

    template <int Count, bool InGroups>
    static inline void block(const DepthwiseRow &row, std::int64_t first, int half) {
        const std::int64_t stride = Stride > 0 ? Stride : row.axis.stride;
        const float *weights = row.weights + half * N;
        V sums[Count];
        for (int k = 0; k < Count; ++k) sums[k] = L::load(row.bias + half * N);
        for (std::int64_t down = 0; down < row.down; ++down, weights += row.weight_row) {
            const float *from = row.rows[down] + first * stride * 2 * N + half * N;
            if constexpr (InGroups) {
                typename L::Mask channel = L::counted() & static_cast<std::int32_t>(-row.group);
                const float *own = weights;
                for (std::int64_t i = 0; i < row.group; ++i, channel += 1) {
                    add_channel<Count>(from, own, row.axis, channel, sums);
                    own += row.weight_channel;
                }
            } else if constexpr (Taps > 0) {
                add_row<Count>(from, weights, sums);
            } else {
                add_taps<Count>(from, weights, row.axis, sums);
            }
        }
        Results<N, T>::template put<Count>(row, sums, first, half);
    }

    // Computes at most Count results.
    template <int Count, bool InGroups>
    static inline void some(const DepthwiseRow &row, std::int64_t first, int half,
                            std::int64_t count) {
        if (count == Count) {
            block<Count, InGroups>(row, first, half);
        } else if constexpr (Count > 1) {
            some<Count - 1, InGroups>(row, first, half, count);
        }
    }

    template <bool InGroups>
    static void run(const DepthwiseRow &row) {
        const std::int64_t blocks = (row.count + kBlock - 1) / kBlock;
        for (int half = 0; half * N < row.lanes; ++half) {
            for (std::int64_t i = 0; i < blocks; ++i) {
                const std::int64_t first = row.count * i / blocks;
                some<kBlock, InGroups>(row, first, half, row.count * (i + 1) / blocks - first);
            }
        }
    }
};

// The same for pixels of type S of the source itself, without dilation. Pixels outside of a row of
// the source are zero.
template <int N, int Taps, int Stride, class S, class T>
struct DepthwiseRowsInPlace {
    using L = Lanes<N>;
    using V = typename L::V;
    static constexpr int kBlock = 8 / kRegisters<N>;

    // Stores what most networks apply to results while these are in registers.
    template <int Count>
    static inline void store(const DepthwiseInPlace &row, V *sums, std::int64_t first, int half) {
        const bool clips = row.stage_count == 1 && row.stages[0].op == StageOp::clip;
        if (row.lanes - half * N < N || row.stage_count > (clips ? 1 : 0)) {
            return Results<N, T>::template put<Count>(row, sums, first, half);
        }
        T *to = static_cast<T *>(row.result) + first * row.pixel + half * row.half;
        if (clips) {
            const V low = L::all(row.stages[0].alpha), high = L::all(row.stages[0].beta);
#pragma GCC unroll 8
            for (int k = 0; k < Count; ++k) sums[k] = L::smaller(high, L::larger(low, sums[k]));
        }
#pragma GCC unroll 8
        for (int k = 0; k < Count; ++k) L::store(to + k * row.pixel, sums[k]);
    }

    // Vectors are `Whole`, or have fewer lanes. Pixels of a `Clipped` block may be outside.
    template <int Count, bool Whole, bool Clipped>
    static inline void block(const DepthwiseInPlace &row, std::int64_t first, int half) {
        constexpr int kRead = (Count - 1) * Stride + Taps;
        const std::int64_t step = row.from_pixel, lanes = row.lanes - half * N;
        const std::int64_t column = row.start + first * Stride;
        const float *weights = row.weights + half * N;
        const V bias = L::load(row.bias + half * N);
        V sums[Count];
#pragma GCC unroll 8
        for (int k = 0; k < Count; ++k) sums[k] = bias;
        for (std::int64_t down = 0; down < row.down; ++down, weights += row.weight_row) {
            const S *from =
                static_cast<const S *>(row.rows[down]) + column * step + half * row.from_half;
            V pixels[kRead];
#pragma GCC unroll 24
            for (int i = 0; i < kRead; ++i) {
                const S *pixel = from + i * step;
                if (Clipped && (column + i < 0 || column + i >= row.wide)) {
                    pixels[i] = V{};
                } else {
                    pixels[i] = Whole ? L::load(pixel) : L::load_some(pixel, lanes);
                }
            }
#pragma GCC unroll 8
            for (int tap = 0; tap < Taps; ++tap) {
                const V weight = L::load(weights + tap * 2 * N);
#pragma GCC unroll 8
                for (int k = 0; k < Count; ++k) sums[k] += pixels[k * Stride + tap] * weight;
            }
        }
        store<Count>(row, sums, first, half);
    }

    template <int Count, bool Whole, bool Clipped>
    static inline void some(const DepthwiseInPlace &row, std::int64_t first, int half,
                            std::int64_t count) {
        if (count == Count) {
            block<Count, Whole, Clipped>(row, first, half);
        } else if constexpr (Count > 1) {
            some<Count - 1, Whole, Clipped>(row, first, half, count);
        }
    }

    template <bool Whole>
    static inline void run_half(const DepthwiseInPlace &row, int half) {
        const std::int64_t blocks = (row.count + kBlock - 1) / kBlock;
        for (std::int64_t i = 0; i < blocks; ++i) {
            const std::int64_t first = row.count * i / blocks;
            const std::int64_t count = row.count * (i + 1) / blocks - first;
            const std::int64_t column = row.start + first * Stride;
            if (column < 0 || column + (count - 1) * Stride + Taps > row.wide) {
                some<kBlock, Whole, true>(row, first, half, count);
            } else {
                some<kBlock, Whole, false>(row, first, half, count);
            }
        }
    }

    static void run(const DepthwiseInPlace &row) {
        for (int half = 0; half * N < row.lanes; ++half) {
            if (row.blocked || row.lanes - half * N >= N) {
                run_half<true>(row, half);
            } else {
                run_half<false>(row, half);
            }
        }
    }
};

// Sums of products for all taps of a window, some taps of some rows of the source at once.
template <int N>
struct Correlation {
    using L = Lanes<N>;
    using V = typename L::V;
    // Enough sums to hide the latency of multiplications, and few enough for 16 registers.
    static constexpr int kRows = 3, kTaps = 4;

    template <int Rows, int Taps>
    static inline void block(const DepthwiseCorrelation &row, std::int64_t down, std::int64_t tap,
                             int half) {
        const std::int64_t step = row.axis.stride * 2 * N, next = row.axis.dilation * 2 * N;
        const float *from[Rows], *gradients = row.gradients + half * N;
        V found[Rows][Taps] = {};
#pragma GCC unroll 4
        for (int r = 0; r < Rows; ++r) from[r] = row.rows[down + r] + tap * next + half * N;
        for (std::int64_t i = 0; i < row.count; ++i, gradients += 2 * N) {
            const V gradient = L::load(gradients);
#pragma GCC unroll 4
            for (int r = 0; r < Rows; ++r) {
#pragma GCC unroll 4
                for (int t = 0; t < Taps; ++t) {
                    found[r][t] += gradient * L::load(from[r] + t * next);
                }
                from[r] += step;
            }
        }
#pragma GCC unroll 4
        for (int r = 0; r < Rows; ++r) {
            float *sums = row.sums + ((down + r) * row.axis.taps + tap) * 2 * N + half * N;
#pragma GCC unroll 4
            for (int t = 0; t < Taps; ++t) {
                L::store(sums + t * 2 * N, L::load(sums + t * 2 * N) + found[r][t]);
            }
        }
    }

    template <int Rows, int Taps>
    static inline void some(const DepthwiseCorrelation &row, std::int64_t down, std::int64_t rows,
                            std::int64_t tap, std::int64_t taps, int half) {
        if (rows < Rows) {
            if constexpr (Rows > 1) some<Rows - 1, Taps>(row, down, rows, tap, taps, half);
        } else if (taps < Taps) {
            if constexpr (Taps > 1) some<Rows, Taps - 1>(row, down, rows, tap, taps, half);
        } else {
            block<Rows, Taps>(row, down, tap, half);
        }
    }

    static void run(const DepthwiseCorrelation &row) {
        const std::int64_t groups = (row.down + kRows - 1) / kRows, taps = row.axis.taps;
        const std::int64_t pieces = (taps + kTaps - 1) / kTaps;
        for (int half = 0; half * N < row.lanes; ++half) {
            for (std::int64_t i = 0; i < groups; ++i) {
                const std::int64_t down = row.down * i / groups;
                for (std::int64_t k = 0; k < pieces; ++k) {
                    const std::int64_t tap = taps * k / pieces;
                    some<kRows, kTaps>(row, down, row.down * (i + 1) / groups - down, tap,
                                       taps * (k + 1) / pieces - tap, half);
                }
            }
        }
    }
};

template <int N>
struct Activation {
    using L = Lanes<N>;
    using V = typename L::V;
    static constexpr int kBlock = 4;

    template <int Count>
    static inline void block(float *pixels, const Stage *stages, int stage_count) {
        V values[Count];
        for (int k = 0; k < Count; ++k) values[k] = L::load(pixels + k * N);
        for (int s = 0; s < stage_count; ++s) {
            Stages<N>::template activate<Count>(stages[s], values);
        }
        for (int k = 0; k < Count; ++k) L::store(pixels + k * N, values[k]);
    }

    static void run(float *pixels, std::int64_t count, const Stage *stages, int stage_count) {
        for (; count >= kBlock / 2; count -= kBlock / 2, pixels += kBlock * N) {
            block<kBlock>(pixels, stages, stage_count);
        }
        for (; count > 0; --count, pixels += 2 * N) block<2>(pixels, stages, stage_count);
    }
};

template <int N, class T>
struct Gather {
    using L = Lanes<N>;

    static inline typename L::V vector(const T *from, std::int64_t lanes) {
        return lanes >= N ? L::load(from) : L::load_some(from, lanes);
    }

    // Both vectors hold channels of one vector of the source.
    static void run_copies(const GatherPixels &pixels) {
        const T *from = static_cast<const T *>(pixels.from);
        float *to = pixels.to;
        const std::int64_t channels = (pixels.lanes + pixels.copies - 1) / pixels.copies;
        const int shift = __builtin_ctzll(static_cast<unsigned long long>(pixels.copies));
        const typename L::Mask first = L::counted() >> shift, second = first + (N >> shift);
        for (std::int64_t i = 0; i < pixels.count; ++i, from += pixels.pixel, to += 2 * N) {
            __builtin_prefetch(from + pixels.row);
            const typename L::V value = vector(from, channels);
            L::store(to, L::picked(value, first));
            L::store(to + N, L::picked(value, second));
        }
    }

    static void run(const GatherPixels &pixels) {
        if (pixels.copies > 1) return run_copies(pixels);
        const T *from = static_cast<const T *>(pixels.from);
        float *to = pixels.to;
        const std::int64_t lanes = pixels.lanes;
        for (std::int64_t i = 0; i < pixels.count; ++i, from += pixels.pixel, to += 2 * N) {
            // The next row is read after the results of this row.
            __builtin_prefetch(from + pixels.row);
            L::store(to, vector(from, lanes));
            L::store(to + N, lanes > N ? vector(from + pixels.half, lanes - N) : typename L::V{});
        }
    }

    static void run_channels(const GatherChannels &pixel) {
        const T *from = static_cast<const T *>(pixel.from);
        float *to = pixel.to;
        std::int64_t left = pixel.channels;
        for (; left >= N; left -= N, from += pixel.chunk, to += pixel.to_stride) {
            L::store(to, L::load(from));
        }
        for (std::int64_t lane = 0; lane < left; ++lane) to[lane] = as_float(from[lane]);
    }

    // Copies the elements of two chunks of the source to each vector. The last pair of an odd
    // number ends with zero, because its weights are zero.
    static void run_pairs(const GatherChannels &pixel) {
        const T *from = static_cast<const T *>(pixel.from);
        float *to = pixel.to;
        std::int64_t left = pixel.channels;
        for (bool odd = false; left > 0; left -= N, from += pixel.chunk, odd = !odd) {
            T *half = reinterpret_cast<T *>(to) + (odd ? N : 0);
            const std::int64_t count = left < N ? left : N;
            if (count % 2 != 0) half[count] = T{};
            if (count == N) {
                __builtin_memcpy(half, from, N * sizeof(T));
            } else {
                __builtin_memcpy(half, from, static_cast<std::size_t>(count) * sizeof(T));
            }
            if (odd) to += pixel.to_stride;
        }
    }
};

template <int N, int Rows, int Taps, int Stride, class Source, class Result>
constexpr DepthwiseKernels depthwise_of() {
    // Of groups, only the most frequent window has a kernel of its own.
    constexpr int kGroupTaps = Taps == 3 ? 3 : 0;
    DepthwiseKernels found{N,
                           Rows,
                           Expansion<N, Rows, false>::run,
                           Gather<N, Source>::run,
                           Gather<N, Source>::run_channels,
                           nullptr,
                           nullptr,
                           Activation<N>::run,
                           DepthwiseRows<N, Taps, Stride, Result>::template run<false>,
                           DepthwiseRows<N, kGroupTaps, Stride, Result>::template run<true>,
                           nullptr,
                           Correlation<N>::run};
    // Other windows would load pixels once for each tap. Vectors of 8 lanes have no instruction
    // that loads some elements of bfloat16.
    if constexpr (Taps > 0 && (sizeof(Source) == sizeof(float) || N > 8)) {
        found.row_in_place = DepthwiseRowsInPlace<N, Taps, Stride, Source, Result>::run;
    }
    if constexpr (sizeof(Source) < sizeof(float)) {
        found.expand_pairs = Expansion<N, Rows, true>::run;
        found.gather_pairs = Gather<N, Source>::run_pairs;
    }
    return found;
}

// The kernels with vectors of N lanes. Kernels for frequent windows keep pixels in registers.
template <int N, int Rows, class S, class R>
const DepthwiseKernels &typed_depthwise_kernels(const DepthwiseAxis &axis) {
    struct Entry {
        std::int64_t taps, stride;  // 0 for any
        DepthwiseKernels kernels;
    };
    static constexpr Entry kEntries[] = {
        {3, 1, depthwise_of<N, Rows, 3, 1, S, R>()}, {3, 2, depthwise_of<N, Rows, 3, 2, S, R>()},
        {5, 1, depthwise_of<N, Rows, 5, 1, S, R>()}, {5, 2, depthwise_of<N, Rows, 5, 2, S, R>()},
        {0, 1, depthwise_of<N, Rows, 0, 1, S, R>()}, {0, 2, depthwise_of<N, Rows, 0, 2, S, R>()},
    };
    static constexpr DepthwiseKernels kAny = depthwise_of<N, Rows, 0, 0, S, R>();
    for (const Entry &entry : kEntries) {
        const bool suits = entry.taps == 0 || (entry.taps == axis.taps && axis.dilation == 1);
        if (suits && entry.stride == axis.stride) return entry.kernels;
    }
    return kAny;
}

template <int N, int Rows, class Result>
const DepthwiseKernels &depthwise_kernels_to(const DepthwiseAxis &axis, bool is_half) {
    return is_half ? typed_depthwise_kernels<N, Rows, Bfloat16, Result>(axis)
                   : typed_depthwise_kernels<N, Rows, float, Result>(axis);
}

template <int N, int Rows>
const DepthwiseKernels &depthwise_kernels(const DepthwiseAxis &axis, HalfSides halves) {
    return halves.result ? depthwise_kernels_to<N, Rows, Bfloat16>(axis, halves.source)
                         : depthwise_kernels_to<N, Rows, float>(axis, halves.source);
}

}  // namespace
}  // namespace stridewise
