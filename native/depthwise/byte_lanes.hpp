// Depthwise convolution of bytes; each file that includes it compiles one instruction set.
#pragma once

#include "depthwise/byte_kernels.hpp"
#include "post_ops/lanes.hpp"
#include "support/byte_vectors.hpp"

namespace stridewise {
namespace {

constexpr int kVectors = 4, kWords = 8;  // of a group, and of a vector

// Copies up to a group of bytes. Most counts are multiples of 8.
inline void copy_some(const std::uint8_t *from, std::uint8_t *to, std::int64_t count) {
    std::int64_t at = 0;
    for (; at + 16 <= count; at += 16) __builtin_memcpy(to + at, from + at, 16);
    for (; at + 8 <= count; at += 8) __builtin_memcpy(to + at, from + at, 8);
    for (; at < count; ++at) to[at] = from[at];
}

struct Quads {
    using G = ByteGroup;

    // Returns the bytes of a pixel, copied where they are not in a row.
    static inline const std::uint8_t *pixel(const ByteRow &row, const std::uint8_t *from,
                                            std::uint8_t *copy) {
        // What follows the channels of a pixel is read as well, unless the tensor ends there.
        if (row.piece >= kGroup && from + kGroup <= row.end) return from;
        for (std::int64_t at = 0; at < row.channels; at += row.piece, from += row.next) {
            const std::int64_t left = row.channels - at;
            copy_some(from, copy + at, left < row.piece ? left : row.piece);
        }
        return copy;
    }

    // Stores the quads of a position near the ends of a row, or of channels in pieces.
    __attribute__((noinline)) static void gather_some(const ByteRow &row, std::int64_t at,
                                                      std::uint32_t *to) {
        std::uint8_t copies[kQuad][kGroup];  // what follows the channels does not count
        const std::uint8_t *pixels[kQuad];
        for (int tap = 0; tap < kQuad; ++tap) {
            const std::int64_t place = at + tap * row.dilation - row.before;
            const bool inside = place >= 0 && place < row.count;
            pixels[tap] =
                inside ? pixel(row, row.from + place * row.pixel, copies[tap]) : row.outside;
        }
        G::interleave(pixels, row.flip, to);
    }

    static void gather(const ByteRow &row) {
        const std::int64_t positions = row.positions, step = row.step;
        const std::int64_t width = row.pixel, next = row.dilation * width, below = row.row;
        const std::int64_t reach = (kQuad - 1) * row.dilation;
        // Positions from `first` to `last` have pixels for all taps, and read no others than those
        // of the tensor.
        const std::int64_t most = (row.end - row.from - kGroup) / width - reach;
        const std::int64_t own = row.count - (row.taps - 1) * row.dilation - 1;
        const std::int64_t inner = own < most ? own : most;
        const std::int64_t first = row.piece < kGroup ? positions : row.before;
        const std::int64_t last = row.before + inner;
        const std::uint8_t flip = row.flip, *from = row.from;
        std::uint32_t *to = row.to;
        for (std::int64_t at = 0; at < positions; at += step, to += kGroup) {
            if (at < first || at > last) {
                gather_some(row, at, to);
                continue;
            }
            const std::uint8_t *pixel = from + (at - first) * width;
            const std::uint8_t *pixels[kQuad] = {pixel, pixel + next, pixel + 2 * next,
                                                 pixel + 3 * next};
            // The next row is read after the results of this row.
            __builtin_prefetch(pixel + below);
            G::interleave(pixels, flip, to);
        }
    }

    template <int Phases>
    static void pack(const ByteWeights &weights) {
        typename G::Integers sums[kVectors] = {};
        const std::uint8_t *from = weights.from;
        std::uint32_t *to = weights.to;
        for (std::int64_t row = 0; row < weights.rows; ++row, from += weights.taps * kGroup) {
            for (std::int64_t quad = 0; quad < weights.quads; ++quad) {
                for (int phase = 0; phase < Phases; ++phase, to += kGroup) {
                    const std::uint8_t *taps[kQuad];
                    for (int at = 0; at < kQuad; ++at) {
                        const std::int64_t tap = quad * kQuad + at - phase * weights.stride;
                        const bool inside = tap >= 0 && tap < weights.taps;
                        taps[at] = inside ? from + tap * kGroup : weights.zeros;
                    }
                    G::interleave(taps, 0, to);
                    for (int v = 0; v < kVectors && phase == 0; ++v) {
                        sums[v] = G::add_products(sums[v], G::load(weights.padded + v * kWords),
                                                  G::load(to + v * kWords));
                    }
                }
            }
        }
        for (int v = 0; v < kVectors; ++v) {
            sums[v] = -sums[v];
            __builtin_memcpy(weights.start + v * kWords, &sums[v], sizeof sums[v]);
        }
    }
};

// A row of results, `Most` at a time, for windows with `Number` quads of taps in a row; with 0, it
// is a run-time parameter. `Phases` results read the same quads.
template <int Most, int Number, int Phases, bool IsFloat>
struct ByteRows {
    using G = ByteGroup;
    using L = Lanes<kWords>;
    using V = typename L::V;
    using Steps = Stages<kWords>;

    // Applies the stages to some results. Each stage is dispatched once, and functions of several
    // vectors are computed at the same time.
    template <int Count>
    __attribute__((noinline)) static void apply(const ByteDepthwiseRow &row, V *values) {
        for (int s = 0; s < row.stage_count; ++s) {
            const Stage &stage = row.stages[s];
            if (stage.op < StageOp::sum) {
                Steps::template activate<Count * kVectors>(stage, values);
                continue;
            }
            const float *others = static_cast<const float *>(stage.operand) + row.offset;
            for (int k = 0; k < Count; ++k) {
                Steps::template combine<kVectors>(stage, values + k * kVectors, others, kWords,
                                                  kWords);
            }
        }
    }

    static inline void put_floats(const ByteDepthwiseRow &row, const V *values, float *to) {
        float copy[kGroup];
        const bool is_whole = row.channels >= kGroup && row.piece >= kGroup;
        float *all = is_whole ? to : copy;
        for (int v = 0; v < kVectors; ++v) {
            float words[kWords];
            __builtin_memcpy(words, &values[v], sizeof words);
            __builtin_memcpy(all + 4 * v, words, sizeof words / 2);
            __builtin_memcpy(all + 16 + 4 * v, words + 4, sizeof words / 2);
        }
        for (std::int64_t at = 0; !is_whole && at < row.channels; at += row.piece, to += row.next) {
            const std::int64_t left = row.channels - at;
            for (std::int64_t i = 0; i < row.piece && (i < left || row.blocked); ++i) {
                to[i] = i < left ? copy[at + i] : 0.0F;
            }
        }
    }

    static inline void put_bytes(const ByteDepthwiseRow &row, V *values, std::uint8_t *to) {
        if (row.stage_count > 0) {
            for (int v = 0; v < kVectors; ++v) values[v] *= row.times;
        }
        if (row.piece >= kGroup) return G::narrow(values, *row.bounds, to, row.channels);
        std::uint8_t copy[kGroup];
        G::narrow(values, *row.bounds, copy, kGroup);
        for (std::int64_t at = 0; at < row.channels; at += row.piece, to += row.next) {
            const std::int64_t left = row.channels - at;
            copy_some(copy + at, to, left < row.piece ? left : row.piece);
            for (std::int64_t i = left; row.blocked && i < row.piece; ++i) to[i] = 0;
        }
    }

    __attribute__((noinline)) static void put(const ByteDepthwiseRow &row, V *values,
                                              std::int64_t at) {
        if constexpr (IsFloat) {
            put_floats(row, values, static_cast<float *>(row.result) + at * row.pixel);
        } else {
            put_bytes(row, values, static_cast<std::uint8_t *>(row.result) + at * row.pixel);
        }
    }

    template <int Count, bool Rounds>
    __attribute__((always_inline)) static inline void store(
        const ByteDepthwiseRow &row, std::int64_t first, typename G::Integers (*sums)[kVectors]) {
        // The most frequent stage is computed in registers, too.
        const bool is_swish = row.stage_count == 1 && row.stages->op == StageOp::swish;
        const bool is_plain = !IsFloat && (row.stage_count == 0 || is_swish) && row.piece >= kGroup;
        // Stored bytes may be anything to the compiler, so what it reads again is copied.
        const ByteBounds bounds = *row.bounds;
        const V low = L::all(row.low), high = L::all(row.high);
        V factor[kVectors], term[kVectors];
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; ++v) {
            factor[v] = L::load(row.real->factor + v * kWords);
            term[v] = L::load(row.real->term + v * kWords);
        }
        const V alpha = L::all(is_swish ? row.stages->alpha : 1.0F);
        const float times = row.times;
        const std::int64_t channels = row.channels, pixel = row.pixel;
        auto *to = static_cast<std::uint8_t *>(row.result) + first * pixel;
        V all[Count * kVectors];
#pragma GCC unroll 4
        for (int k = 0; k < Count; ++k, to += pixel) {
            V values[kVectors];
#pragma GCC unroll 4
            for (int v = 0; v < kVectors; ++v) {
                values[v] = __builtin_convertvector(sums[k][v], V) * factor[v] + term[v];
                if constexpr (Rounds) {
                    values[v] = L::smaller(high, L::larger(low, L::whole(values[v])));
                    values[v] = values[v] * L::load(row.after->factor + v * kWords) +
                                L::load(row.after->term + v * kWords);
                }
            }
            if (is_plain) {
                for (int v = 0; is_swish && v < kVectors; ++v) {
                    values[v] = L::coarse_swish(values[v], alpha) * times;
                }
                G::narrow(values, bounds, to, channels);
            } else {
                for (int v = 0; v < kVectors; ++v) all[k * kVectors + v] = values[v];
            }
        }
        if (is_plain) return;
        if (row.stage_count > 0) apply<Count>(row, all);
        for (int k = 0; k < Count; ++k) put(row, all + k * kVectors, first + k);
    }

    // Computes results from `first` on, a multiple of the phases.
    template <int Count>
    static inline void block(const ByteDepthwiseRow &row, std::int64_t first) {
        const std::int64_t quads = Number > 0 ? Number : row.quads, stride = row.stride;
        const std::uint32_t *weights = row.weights;
        typename G::Integers sums[Count][kVectors];
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; ++v) {
            typename G::Integers start;
            __builtin_memcpy(&start, row.start + v * kWords, sizeof start);
#pragma GCC unroll 4
            for (int k = 0; k < Count; ++k) sums[k][v] = start;
        }
        for (std::int64_t down = 0; down < row.down; ++down) {
            const std::uint32_t *from = row.rows[down] + first / Phases * stride;
            for (std::int64_t quad = 0; quad < quads;
                 ++quad, from += row.ahead, weights += Phases * kGroup) {
#pragma GCC unroll 4
                for (int v = 0; v < kVectors; ++v) {
#pragma GCC unroll 4
                    for (int k = 0; k < Count; ++k) {
                        const auto bytes = G::load(from + k / Phases * stride + v * kWords);
                        const auto weight = G::load(weights + k % Phases * kGroup + v * kWords);
                        sums[k][v] = G::add_products(sums[k][v], bytes, weight);
                    }
                }
            }
        }
        if (row.after == nullptr) {
            store<Count, false>(row, first, sums);
        } else {
            store<Count, true>(row, first, sums);
        }
    }

    // Computes at most Count results.
    template <int Count>
    static inline void some(const ByteDepthwiseRow &row, std::int64_t first, std::int64_t count) {
        if (count == Count) {
            block<Count>(row, first);
        } else if constexpr (Count > 1) {
            some<Count - 1>(row, first, count);
        }
    }

    static void run(const ByteDepthwiseRow &row) {
        const std::int64_t blocks = (row.count + Most - 1) / Most;
        const std::int64_t shared = (row.count + Phases - 1) / Phases;
        for (std::int64_t i = 0; i < blocks; ++i) {
            const std::int64_t first = shared * i / blocks * Phases;
            const std::int64_t end = shared * (i + 1) / blocks * Phases;
            some<Most>(row, first, (end < row.count ? end : row.count) - first);
        }
    }
};

template <int Most, int Number, int Phases, bool IsFloat>
constexpr ByteDepthwiseKernels kByteDepthwise{Phases, Quads::gather, Quads::pack<Phases>,
                                              ByteRows<Most, Number, Phases, IsFloat>::run};

template <int Most, bool IsFloat>
const ByteDepthwiseKernels &byte_depthwise_to(std::int64_t quads, std::int64_t phases) {
    if (quads > 2) return kByteDepthwise<Most, 0, 1, IsFloat>;
    if (phases == 1) {
        return quads == 1 ? kByteDepthwise<Most, 1, 1, IsFloat>
                          : kByteDepthwise<Most, 2, 1, IsFloat>;
    }
    if constexpr (Most >= 4) {
        if (quads == 2 && phases == 4) return kByteDepthwise<Most, 2, 4, IsFloat>;
    }
    return quads == 1 ? kByteDepthwise<Most, 1, 2, IsFloat> : kByteDepthwise<Most, 2, 2, IsFloat>;
}

template <int Most>
const ByteDepthwiseKernels &byte_depthwise(std::int64_t quads, std::int64_t phases, bool is_float) {
    return is_float ? byte_depthwise_to<Most, true>(quads, phases)
                    : byte_depthwise_to<Most, false>(quads, phases);
}

}  // namespace
}  // namespace stridewise
