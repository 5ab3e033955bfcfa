// Convolution of bytes; each file that includes it compiles one instruction set.
#pragma once

#include "conv_int8/kernels.hpp"
#include "post_ops/lanes.hpp"

namespace stridewise {
namespace {

constexpr int kTogether = 4;  // pixels that are finished together
// Bytes of weights that are fetched before they are read.
constexpr std::int64_t kAheadBytes = 2048;
constexpr int kLineBytes = 64;

// Files for instruction sets define a class `Q` with
//
//     kLanes, kNumbers, kPixels   outputs of a vector, numbers of a word, and pixels of a block
//     spread(from)                copies a word of the source to all lanes
//     weights(from)               loads the weights of the outputs of a vector
//     add_products(sum, word, weights)
//                                 adds the products of the numbers of each word by the weights
//     widen(from, count, is_signed)
//                                 returns up to a vector of bytes as numbers
//     narrow<Vectors>(values, bounds, to, pixel, count, outputs)
//                                 rounds the numbers of four vectors to the nearest, ties to even,
//                                 and stores what bounds make of them: of `Vectors` vectors one
//                                 after the other, of which `outputs` numbers are valid, and then
//                                 `pixel` bytes further, for `count` pixels

// Pixels in blocks, with `Vectors` vectors of outputs.
template <class Q, int Vectors>
struct ByteConvRows {
    static constexpr int kLanes = Q::kLanes, kMost = Q::kPixels;
    // Bytes of the weights of a vector, and of a panel, for a word.
    static constexpr int kVectorBytes = kLanes * Q::kNumbers, kPanelBytes = 2 * kVectorBytes;
    using L = Lanes<kLanes>;
    using V = typename L::V;
    using Integers = typename VectorOf<kLanes>::Mask;
    using Steps = Stages<kLanes>;
    // With few pixels, instructions that advance take as long as products.
    static constexpr bool kUnrolls = kMost < 8;
    static constexpr int kSpan = (kMost + kTogether - 1) / kTogether * kTogether;
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

    // Stores sums behind the most frequent single stage, in registers, too.
    template <int Count>
    static inline void store_swish(const ByteConvRow &row, std::int64_t first,
                                   const Integers (*sums)[Vectors], const V *factor,
                                   const V *term) {
        const ByteBounds bounds = *row.bounds;
        constexpr int kPixels = 4 / Vectors;
        const std::int64_t pixel = row.result_pixel, outputs = row.outputs;
        const V alpha = L::all(row.stages->alpha);
        const float times = row.times, plus = row.plus;
        auto *to = static_cast<std::uint8_t *>(row.result) + first * pixel;
#pragma GCC unroll 16
        for (int k = 0; k < Count; k += kPixels, to += kPixels * pixel) {
            V values[4];
#pragma GCC unroll 4
            for (int i = 0; i < 4; ++i) {
                const int at = k + i / Vectors < Count ? k + i / Vectors : Count - 1;
                const int v = i % Vectors;
                values[i] = __builtin_convertvector(sums[at][v], V) * factor[v] + term[v];
            }
#pragma GCC unroll 4
            for (int i = 0; i < 4; ++i) {
                values[i] = L::coarse_swish(values[i], alpha) * times + plus;
            }
            Q::template narrow<Vectors>(values, bounds, to, pixel, Count - k, outputs);
        }
    }

    // Stores residual sums, which stay in registers, too.
    template <int Count>
    static inline void store_added(const ByteConvRow &row, std::int64_t first,
                                   const Integers (*sums)[Vectors], const V *factor,
                                   const V *term) {
        const ByteBounds bounds = *row.bounds;
        const ByteConvAddition addition = *row.addition;
        const ByteConvOperand addend = row.operands[addition.operand];
        const bool is_signed = addend.type == ElementType::s8;
        constexpr int kPixels = 4 / Vectors;
        const std::int64_t pixel = row.result_pixel, outputs = row.outputs;
        const float times = row.times, plus = row.plus;
        const auto *from = static_cast<const std::uint8_t *>(addend.from) + first * addend.pixel;
        auto *to = static_cast<std::uint8_t *>(row.result) + first * pixel;
#pragma GCC unroll 16
        for (int k = 0; k < Count; k += kPixels, to += kPixels * pixel) {
            V values[4];
#pragma GCC unroll 4
            for (int i = 0; i < 4; ++i) {
                const int at = k + i / Vectors < Count ? k + i / Vectors : Count - 1;
                const int v = i % Vectors;
                V value = __builtin_convertvector(sums[at][v], V) * factor[v] + term[v];
                if (addition.rounds) {
                    value = L::smaller(L::all(addition.high),
                                       L::larger(L::all(addition.low), L::whole(value)));
                    value = L::all(addition.times) * value + L::all(addition.plus);
                }
                value += Q::widen(from + at * addend.pixel + v * kLanes, outputs - v * kLanes,
                                  is_signed);
                values[i] = value * times + plus;
            }
            Q::template narrow<Vectors>(values, bounds, to, pixel, Count - k, outputs);
        }
    }

    // Fetches what results are stored in and what is added to them: pixels lie far from each other,
    // so the processor does not fetch them ahead.
    template <int Count>
    static inline void prefetch(const ByteConvRow &row, std::int64_t first) {
        const auto each = [&](const void *from, ElementType type, std::int64_t pixel) {
            const std::int64_t nbytes = type == ElementType::f32 ? sizeof(float) : 1;
            const auto *at = static_cast<const std::uint8_t *>(from) + first * pixel * nbytes;
            for (int k = 0; k < Count; ++k, at += pixel * nbytes) __builtin_prefetch(at);
        };
        each(row.result, row.type, row.result_pixel);
        for (int s = 0; s < row.stage_count; ++s) {
            const ByteConvOperand &from = row.operands[s];
            if (from.from != nullptr && from.pixel > 0) each(from.from, from.type, from.pixel);
        }
    }

    template <int Count>
    static inline void block(const ByteConvRow &row, std::int64_t first) {
        prefetch<Count>(row, first);
        // Pixels are addressed from every third one, so that addresses stay in registers.
        constexpr int kAnchors = (Count + 2) / 3;
        const std::int64_t step = row.pixel;
        Integers sums[Count][Vectors];
#pragma GCC unroll 2
        for (int v = 0; v < Vectors; ++v) {
            Integers start;
            __builtin_memcpy(&start, row.start + v * kLanes, sizeof start);
#pragma GCC unroll 16
            for (int k = 0; k < Count; ++k) sums[k][v] = start;
        }
        const std::uint8_t *weights = row.weights;
        for (std::int64_t down = 0; down < row.down; ++down) {
            const std::uint8_t *anchors[kAnchors];
#pragma GCC unroll 8
            for (int i = 0; i < kAnchors; ++i) {
                anchors[i] = row.rows[down] + (first + 3 * i) * step;
            }
            const auto add_word = [&] {
                Integers weight[Vectors];
#pragma GCC unroll 2
                for (int v = 0; v < Vectors; ++v) {
                    weight[v] = Q::weights(weights + v * kVectorBytes);
                    // Weights come from memory, and are read once for each row of pixels.
                    if (v * kVectorBytes % kLineBytes == 0) {
                        __builtin_prefetch(weights + kAheadBytes + v * kVectorBytes);
                    }
                }
#pragma GCC unroll 16
                for (int k = 0; k < Count; ++k) {
                    const Integers numbers = Q::spread(anchors[k / 3] + k % 3 * step);
#pragma GCC unroll 2
                    for (int v = 0; v < Vectors; ++v) {
                        sums[k][v] = Q::add_products(sums[k][v], numbers, weight[v]);
                    }
                }
                weights += kPanelBytes;
#pragma GCC unroll 8
                for (int i = 0; i < kAnchors; ++i) {
                    anchors[i] += kWordBytes;
                    if constexpr (!kUnrolls) asm("" : "+r"(anchors[i]));
                }
            };
            if constexpr (kUnrolls) {
#pragma GCC unroll 4
                for (std::int64_t word = 0; word < row.words; ++word) add_word();
            } else {
                for (std::int64_t word = 0; word < row.words; ++word) add_word();
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
        if (row.stage_count == 1 && row.stages->op == StageOp::swish &&
            row.type != ElementType::f32) {
            return store_swish<Count>(row, first, sums, factor, term);
        }
        if (row.addition != nullptr) return store_added<Count>(row, first, sums, factor, term);
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
        const std::int64_t blocks = (row.count + kMost - 1) / kMost;
        for (std::int64_t i = 0; i < blocks; ++i) {
            const std::int64_t first = row.count * i / blocks;
            some<kMost>(row, first, row.count * (i + 1) / blocks - first);
        }
    }
};

// The weights of a panel; and the source.
template <class Q>
struct ByteConvWords {
    static constexpr int kLanes = Q::kLanes, kNumbers = Q::kNumbers, kPanel = 2 * kLanes;
    static constexpr bool kWidens = kNumbers < kWordBytes;

    static void pack(const std::uint8_t *from, std::int64_t count, std::uint8_t *to) {
        for (std::int64_t first = 0; first < count; first += kNumbers) {
            for (std::int64_t output = 0; output < kPanel; ++output) {
                for (std::int64_t at = first; at < first + kNumbers; ++at) {
                    *to++ = at < count ? from[at * kPanel + output] : 0;
                }
            }
        }
    }

    static void start(const std::uint8_t *weights, std::int64_t words, std::uint8_t zero,
                      std::int32_t *to) {
        using Integers = typename VectorOf<kLanes>::Mask;
        const std::uint8_t zeros[kWordBytes] = {zero, zero, zero, zero};
        for (int v = 0; v < 2; ++v) {
            Integers sum{};
            for (std::int64_t word = 0; word < words && !kWidens; ++word) {
                const std::uint8_t *at = weights + (word * kPanel + v * kLanes) * kNumbers;
                sum = Q::add_products(sum, Q::spread(zeros), Q::weights(at));
            }
            sum = -sum;
            __builtin_memcpy(to + v * kLanes, &sum, sizeof sum);
        }
    }

    static void copy(const std::uint8_t *from, std::int64_t count, const ByteConvSource &source,
                     std::uint8_t *to) {
        // Copies, because stored bytes could be the members: then one byte is stored at a time.
        const std::uint8_t flip = source.flip;
        if constexpr (kWidens) {
            const int zero = source.zero;
            for (std::int64_t at = 0; at < count; ++at) {
                const auto number = static_cast<std::int16_t>((from[at] ^ flip) - zero);
                __builtin_memcpy(to + 2 * at, &number, sizeof number);
            }
        } else if (flip == 0) {
            __builtin_memcpy(to, from, static_cast<std::size_t>(count));
        } else {
            for (std::int64_t at = 0; at < count; ++at) to[at] = from[at] ^ flip;
        }
    }
};

template <class Q>
constexpr ByteConvKernels kByteConv{2 * Q::kLanes,
                                    Q::kNumbers,
                                    Q::kPixels,
                                    {ByteConvRows<Q, 1>::run, ByteConvRows<Q, 2>::run},
                                    ByteConvWords<Q>::pack,
                                    ByteConvWords<Q>::start,
                                    ByteConvWords<Q>::copy};

}  // namespace
}  // namespace stridewise
