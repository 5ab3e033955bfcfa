// Convolution of bytes; each file that includes it compiles one instruction set.
#pragma once

#include "conv_int8/kernels.hpp"
#include "post_ops/lanes.hpp"

namespace stridewise {
namespace {

constexpr int kLanes = 16, kTogether = 4;  // outputs of a vector; pixels that are finished together
constexpr std::int64_t kAhead = 16;        // quads of weights that are fetched before they are read

// Files for instruction sets define these functions.
struct QuadVector {
    using L = Lanes<kLanes>;
    using V = typename L::V;
    using Integers = typename VectorOf<kLanes>::Mask;

    // Copies a quad to all words.
    static inline Integers spread(const std::uint8_t *from);
    static inline Integers load(const void *from);
    // Adds the products of the four bytes of each word, without a sign, with those of another one,
    // which have a sign.
    static inline Integers add_products(Integers sum, Integers bytes, Integers weights);
    // Returns up to a vector of bytes as numbers.
    static inline V widen(const std::uint8_t *from, std::int64_t count, bool is_signed);
    // Rounds the numbers of four vectors to the nearest, ties to even, and stores what bounds make
    // of them: of `Vectors` vectors one after the other, of which `outputs` numbers are valid, and
    // then `pixel` bytes further, for `count` pixels.
    template <int Vectors>
    static inline void narrow(const V *values, const ByteBounds &bounds, std::uint8_t *to,
                              std::int64_t pixel, std::int64_t count, std::int64_t outputs);
};

// Pixels in blocks of up to `Most`, with `Vectors` vectors of outputs.
template <int Most, int Vectors>
struct ByteConvRows {
    using Q = QuadVector;
    using L = Lanes<kLanes>;
    using V = typename L::V;
    using Integers = typename Q::Integers;
    using Steps = Stages<kLanes>;
    static constexpr int kSpan = (Most + kTogether - 1) / kTogether * kTogether;
    static constexpr int kPart = kTogether * Vectors;

    static inline V operand(const ByteConvOperand &from, std::int64_t pixel, int vector,
                            std::int64_t outputs) {
        const std::int64_t at = pixel * from.pixel + vector * kLanes;
        const std::int64_t left = outputs - vector * kLanes;
        if (from.type == ElementType::f32) {
            const float *numbers = static_cast<const float *>(from.from) + at;
            return left >= kLanes ? L::load(numbers) : L::load_some(numbers, left);
        }
        const auto *bytes = static_cast<const std::uint8_t *>(from.from) + at;
        return Q::widen(bytes, left, from.type == ElementType::s8);
    }

    // Applies the stages to some pixels, of which the last may be repeated.
    static inline void apply(const ByteConvRow &row, std::int64_t first, V *values) {
        for (int s = 0; s < row.stage_count; ++s) {
            const Stage &stage = row.stages[s];
            if (stage.op < StageOp::sum) {
                Steps::template activate<kPart>(stage, values);
                continue;
            }
            const ByteConvOperand &from = row.operands[s];
            V others[kPart];
            for (int k = 0; k < kTogether; ++k) {
                const std::int64_t pixel = first + k < row.count ? first + k : row.count - 1;
                for (int v = 0; v < Vectors; ++v) {
                    others[k * Vectors + v] = operand(from, pixel, v, row.outputs);
                }
            }
            if (stage.op == StageOp::add) {
                for (int i = 0; i < kPart; ++i) values[i] += others[i];
            } else {
                for (int i = 0; i < kPart; ++i) {
                    values[i] = Steps::apply(stage, values[i], others[i]);
                }
            }
        }
    }

    static inline void store(const ByteConvRow &row, std::int64_t pixel, const V *values) {
        auto *to = static_cast<float *>(row.result) + pixel * row.result_pixel;
        for (int v = 0; v < Vectors; ++v) {
            const std::int64_t left = row.outputs - v * kLanes;
            if (left >= kLanes) {
                L::store(to + v * kLanes, values[v]);
            } else {
                L::store_some(to + v * kLanes, values[v], left);
            }
        }
    }

    // Applies stages to some pixels, and stores them.
    __attribute__((noinline)) static void finish(const ByteConvRow &row, std::int64_t first,
                                                 int count, V *all) {
        const ByteBounds bounds = *row.bounds;
        constexpr int kPixels = 4 / Vectors;  // that are narrowed together
        for (int begin = 0; begin < count; begin += kTogether) {
            V *values = all + begin * Vectors;
            if (row.stage_count > 0) {
                apply(row, first + begin, values);
                for (int i = 0; i < kPart; ++i) values[i] = values[i] * row.times + row.plus;
            }
            const int left = count - begin < kTogether ? count - begin : kTogether;
            if (row.type == ElementType::f32) {
                for (int k = 0; k < left; ++k) store(row, first + begin + k, values + k * Vectors);
                continue;
            }
            auto *to = static_cast<std::uint8_t *>(row.result) + (first + begin) * row.result_pixel;
            for (int k = 0; k < left; k += kPixels, to += kPixels * row.result_pixel) {
                Q::template narrow<Vectors>(values + k * Vectors, bounds, to, row.result_pixel,
                                            left - k, row.outputs);
            }
        }
    }

    // Stores sums without stages as bytes, which stay in registers until then.
    template <int Count>
    static inline void store_bytes(const ByteConvRow &row, std::int64_t first,
                                   const Integers (*sums)[Vectors], const V *factor,
                                   const V *term) {
        // Stored bytes may be anything to the compiler, so what it reads again is copied.
        const ByteBounds bounds = *row.bounds;
        constexpr int kPixels = 4 / Vectors;
        const std::int64_t pixel = row.result_pixel, outputs = row.outputs;
        auto *to = static_cast<std::uint8_t *>(row.result) + first * pixel;
#pragma GCC unroll 16
        for (int k = 0; k < Count; k += kPixels, to += kPixels * pixel) {
            V values[4];
#pragma GCC unroll 4
            for (int i = 0; i < 4; ++i) {
                const int at = k + i / Vectors < Count ? k + i / Vectors : Count - 1;
                values[i] =
                    __builtin_convertvector(sums[at][i % Vectors], V) * factor[i % Vectors] +
                    term[i % Vectors];
            }
            Q::template narrow<Vectors>(values, bounds, to, pixel, Count - k, outputs);
        }
    }

    template <int Count>
    static inline void block(const ByteConvRow &row, std::int64_t first) {
        // Pixels are addressed from every third one, so that addresses stay in registers.
        constexpr int kAnchors = (Count + 2) / 3;
        const std::int64_t step = row.pixel;
        Integers sums[Count][Vectors];
#pragma GCC unroll 2
        for (int v = 0; v < Vectors; ++v) {
            const Integers start = Q::load(row.start + v * kLanes);
#pragma GCC unroll 16
            for (int k = 0; k < Count; ++k) sums[k][v] = start;
        }
        const std::uint32_t *weights = row.weights;
        for (std::int64_t down = 0; down < row.down; ++down) {
            const std::uint8_t *anchors[kAnchors];
#pragma GCC unroll 8
            for (int i = 0; i < kAnchors; ++i) {
                anchors[i] = row.rows[down] + (first + 3 * i) * step;
            }
            for (std::int64_t quad = 0; quad < row.quads; ++quad, weights += kPanel) {
                Integers weight[Vectors];
#pragma GCC unroll 2
                for (int v = 0; v < Vectors; ++v) {
                    weight[v] = Q::load(weights + v * kLanes);
                    // Weights come from memory, and are read once for each row of pixels.
                    __builtin_prefetch(weights + kAhead * kPanel + v * kLanes);
                }
#pragma GCC unroll 16
                for (int k = 0; k < Count; ++k) {
                    const Integers bytes = Q::spread(anchors[k / 3] + k % 3 * step);
#pragma GCC unroll 2
                    for (int v = 0; v < Vectors; ++v) {
                        sums[k][v] = Q::add_products(sums[k][v], bytes, weight[v]);
                    }
                }
#pragma GCC unroll 8
                for (int i = 0; i < kAnchors; ++i) {
                    anchors[i] += kQuadBytes;
                    asm("" : "+r"(anchors[i]));
                }
            }
        }
        V factor[Vectors], term[Vectors];
#pragma GCC unroll 2
        for (int v = 0; v < Vectors; ++v) {
            factor[v] = L::load(row.factor + v * kLanes);
            term[v] = L::load(row.term + v * kLanes);
        }
        if (row.stage_count == 0 && row.type != ElementType::f32) {
            return store_bytes<Count>(row, first, sums, factor, term);
        }
        V all[kSpan * Vectors];
#pragma GCC unroll 16
        for (int k = 0; k < kSpan; ++k) {
#pragma GCC unroll 2
            for (int v = 0; v < Vectors; ++v) {
                const Integers sum = sums[k < Count ? k : Count - 1][v];
                all[k * Vectors + v] = __builtin_convertvector(sum, V) * factor[v] + term[v];
            }
        }
        finish(row, first, Count, all);
    }

    template <int Count>
    static inline void some(const ByteConvRow &row, std::int64_t first, std::int64_t count) {
        if (count == Count) {
            block<Count>(row, first);
        } else if constexpr (Count > 1) {
            some<Count - 1>(row, first, count);
        }
    }

    static void run(const ByteConvRow &row) {
        const std::int64_t blocks = (row.count + Most - 1) / Most;
        for (std::int64_t i = 0; i < blocks; ++i) {
            const std::int64_t first = row.count * i / blocks;
            some<Most>(row, first, row.count * (i + 1) / blocks - first);
        }
    }
};

inline void pack_quads(const std::uint8_t *from, std::int64_t count, std::uint32_t *to) {
    for (std::int64_t quad = 0; quad * kQuadBytes < count; ++quad, to += kPanel) {
        const std::int64_t left = count - quad * kQuadBytes;
        for (std::int64_t output = 0; output < kPanel; ++output) {
            std::uint32_t word = 0;
            for (std::int64_t at = 0; at < kQuadBytes && at < left; ++at) {
                const std::uint32_t byte = from[(quad * kQuadBytes + at) * kPanel + output];
                word |= byte << (8 * at);
            }
            to[output] = word;
        }
    }
}

inline void start_sums(const std::uint32_t *weights, std::int64_t quads, std::uint8_t zero,
                       std::int32_t *to) {
    using Q = QuadVector;
    const std::uint8_t zeros[kQuadBytes] = {zero, zero, zero, zero};
    const auto bytes = Q::spread(zeros);
    for (std::int64_t v = 0; v < kPanel / kLanes; ++v) {
        typename Q::Integers sum{};
        for (std::int64_t quad = 0; quad < quads; ++quad) {
            sum = Q::add_products(sum, bytes, Q::load(weights + quad * kPanel + v * kLanes));
        }
        sum = -sum;
        __builtin_memcpy(to + v * kLanes, &sum, sizeof sum);
    }
}

template <int Most>
constexpr ByteConvKernels kByteConv{
    {ByteConvRows<Most, 1>::run, ByteConvRows<Most, 2>::run}, pack_quads, start_sums};

}  // namespace
}  // namespace stridewise
