// Weight gradients by Winograd's algorithm in vectors of any width.
//
// dW = G^T [sum over tiles of (B^T d B) * (A dY A^T)] G, which is the derivative of the forward
// form; points.hpp has the polynomials behind the matrices.
#pragma once

#include "winograd/lanes.hpp"
#include "winograd/weights_kernels.hpp"

namespace stridewise {
namespace {

template <int N, int Tile, int Taps>
struct WinogradWeights {
    using L = Lanes<N>;
    using V = typename L::V;
    using T = Transform<N, Tile, Taps>;
    using W = Winograd<N, T, T>;
    static constexpr int kPlaces = T::kPlaces;

    // The transpose of the transform of results.
    static inline void spread(const V *y, int step, V *t, int to) {
        t[0] = y[0];
        t[(kPlaces - 1) * to] = y[(Tile - 1) * step];
#pragma GCC unroll 8
        for (int k = 0; k < T::kPairs; ++k) {
            V even = y[0], odd = T::power(k, 1) * y[step];
#pragma GCC unroll 8
            for (int j = 2; j < Tile; ++j)
                (j % 2 == 0 ? even : odd) += T::power(k, j) * y[j * step];
            t[(2 * k + 1) * to] = even + odd;
            t[(2 * k + 2) * to] = even - odd;
        }
    }

    static void gradient(const WinogradShape &shape, const float *gradient, std::int64_t first,
                         std::int64_t count, std::int64_t chunk, std::int64_t chunk_end,
                         const TransformedTiles &tiles, float *transformed) {
        const PhaseSteps steps = W::steps_of(shape, shape.result);
        for (std::int64_t t = 0; t < count; ++t) {
            const TilePlace place = W::place_of(shape, first + t);
            const std::int64_t high = W::rows_within(shape, place);
            const std::int64_t wide = W::columns_within(shape, place);
            for (std::int64_t c = chunk; c < chunk_end; ++c) {
                const std::int64_t left = shape.outputs - c * N, lanes = left < N ? left : N;
                const float *corner = gradient + W::corner_of(shape.result, place, c);
                V values[Tile * Tile];
                for (int i = 0; i < Tile; ++i) {
                    for (int j = 0; j < Tile; ++j) {
                        const float *from = corner + i * steps.row + j * steps.pixel;
                        V &value = values[i * Tile + j];
                        if (i >= high || j >= wide) {
                            value = V{};
                        } else {
                            value = lanes == N ? L::load(from) : L::load_some(from, lanes);
                        }
                    }
                }
                V half[kPlaces * Tile];
                for (int j = 0; j < Tile; ++j) spread(values + j, Tile, half + j, Tile);
                float *to = transformed + c * tiles.chunk_stride + t * N;
                for (int i = 0; i < kPlaces; ++i) {
                    V line[kPlaces];
                    spread(half + i * Tile, 1, line, 1);
                    for (int j = 0; j < kPlaces; ++j) {
                        L::store(to + (i * kPlaces + j) * tiles.xi_stride, line[j]);
                    }
                }
            }
        }
    }

    // Multiplies `count` lines of taps with a matrix [place][tap].
    static inline void transform_lines(const double *matrix, const V *taps, int line, int next,
                                       int count, V *places, int to, int to_next) {
        for (int place = 0; place < kPlaces; ++place) {
            for (int k = 0; k < count; ++k) {
                V sum{};
                for (int tap = 0; tap < Taps; ++tap) {
                    const auto factor = static_cast<float>(matrix[place * Taps + tap]);
                    sum += factor * taps[k * line + tap * next];
                }
                places[k * to + place * to_next] = sum;
            }
        }
    }

    // Transforms the windows of vector `half` of a pair; `windows` are those of one channel.
    static inline void transform(const WinogradFilterPair &pair, const float *windows, int half,
                                 V *values) {
        const std::int64_t left = pair.outputs - half * N;
        const std::int64_t lanes = left < N ? left : N;
        const float *from = windows + half * N * pair.distance;
        V taps[Taps * Taps], lines[kPlaces * Taps];
        for (int tap = 0; tap < Taps * Taps; ++tap) {
            V value{};
            for (int lane = 0; lane < N; ++lane) {
                if (lane < lanes) value[lane] = from[lane * pair.distance + tap * pair.step];
            }
            taps[tap] = value;
        }
        transform_lines(pair.vertical, taps, 1, Taps, Taps, lines, 1, Taps);
        transform_lines(pair.horizontal, lines, Taps, 1, kPlaces, values, kPlaces, 1);
    }

    static void pack(const WinogradFilterPair &pair) {
        for (int half = 0; half < 2; ++half) {
            V values[kPlaces * kPlaces];
            transform(pair, pair.windows, half, values);
            for (int xi = 0; xi < kPlaces * kPlaces; ++xi) {
                L::store(pair.packed + xi * pair.xi_stride + half * N, values[xi]);
            }
        }
    }

    static void pack_halves(const WinogradFilterPair &pair) {
        using Words = typename L::Words;
        for (int half = 0; half < 2; ++half) {
            V even[kPlaces * kPlaces], odd[kPlaces * kPlaces] = {};
            transform(pair, pair.windows, half, even);
            if (pair.odd != nullptr) transform(pair, pair.odd, half, odd);
            for (int xi = 0; xi < kPlaces * kPlaces; ++xi) {
                const Words low = __builtin_convertvector(L::rounded(even[xi]), Words);
                const Words high = __builtin_convertvector(L::rounded(odd[xi]), Words);
                L::store(pair.packed + xi * pair.xi_stride + half * N,
                         L::number(low | (high << 16)));
            }
        }
    }

    static void windows(const WinogradWindows &given) {
        for (std::int64_t channel = 0; channel < given.channels; channel += N) {
            V half[Taps * kPlaces], window[Taps * Taps];
            for (int j = 0; j < kPlaces; ++j) {
                for (int tap = 0; tap < Taps; ++tap) {
                    V sum{};
                    for (int i = 0; i < kPlaces; ++i) {
                        const auto factor = static_cast<float>(given.vertical[i * Taps + tap]);
                        const std::int64_t xi = i * kPlaces + j;
                        sum += factor * L::load(given.sums + xi * given.xi_stride + channel);
                    }
                    half[tap * kPlaces + j] = sum;
                }
            }
            for (int row = 0; row < Taps; ++row) {
                for (int tap = 0; tap < Taps; ++tap) {
                    V sum{};
                    for (int j = 0; j < kPlaces; ++j) {
                        const auto factor = static_cast<float>(given.horizontal[j * Taps + tap]);
                        sum += factor * half[row * kPlaces + j];
                    }
                    window[row * Taps + tap] = sum;
                }
            }
            const std::int64_t left = given.channels - channel, lanes = left < N ? left : N;
            for (std::int64_t lane = 0; lane < lanes; ++lane) {
                float *to = given.windows + (channel + lane) * Taps * Taps;
                for (int tap = 0; tap < Taps * Taps; ++tap) to[tap] = window[tap][lane];
            }
        }
    }
};

template <int N, int Rows>
struct OuterProducts {
    using L = Lanes<N>;
    using V = typename L::V;

    template <int Chunks>
    static inline void add(const WinogradOuterProduct &product) {
        V sums[Rows][Chunks];
#pragma GCC unroll 8
        for (int row = 0; row < Rows; ++row) {
#pragma GCC unroll 2
            for (int c = 0; c < Chunks; ++c) {
                const float *from = product.sums + row * product.sums_stride + c * N;
                sums[row][c] = product.resumes ? L::load(from) : V{};
            }
        }
        const float *gradients = product.gradients, *pixels = product.pixels;
        for (std::int64_t t = 0; t < product.tiles; ++t, gradients += N, pixels += N) {
            V values[Chunks];
#pragma GCC unroll 2
            for (int c = 0; c < Chunks; ++c) values[c] = L::load(pixels + c * product.chunk_stride);
#pragma GCC unroll 8
            for (int row = 0; row < Rows; ++row) {
                const V factor = L::spread(gradients + row);
#pragma GCC unroll 2
                for (int c = 0; c < Chunks; ++c) sums[row][c] += factor * values[c];
            }
        }
#pragma GCC unroll 8
        for (int row = 0; row < Rows; ++row) {
#pragma GCC unroll 2
            for (int c = 0; c < Chunks; ++c) {
                L::store(product.sums + row * product.sums_stride + c * N, sums[row][c]);
            }
        }
    }

    static void run(const WinogradOuterProduct &product) {
        product.chunks == 2 ? add<2>(product) : add<1>(product);
    }
};

// The table of kernels with vectors of N lanes.
template <int N, int Rows>
const WinogradWeightsKernels *find_winograd_weights(const WinogradTile &tile) {
    static constexpr WinogradWeightsKernels kTable[] = {
        {{2, 2, 3, 3},
         Rows,
         WinogradWeights<N, 2, 3>::gradient,
         OuterProducts<N, Rows>::run,
         WinogradWeights<N, 2, 3>::windows,
         WinogradWeights<N, 2, 3>::pack,
         WinogradWeights<N, 2, 3>::pack_halves},
        {{4, 4, 3, 3},
         Rows,
         WinogradWeights<N, 4, 3>::gradient,
         OuterProducts<N, Rows>::run,
         WinogradWeights<N, 4, 3>::windows,
         WinogradWeights<N, 4, 3>::pack,
         WinogradWeights<N, 4, 3>::pack_halves},
    };
    for (const WinogradWeightsKernels &kernels : kTable) {
        if (kernels.tile == tile) return &kernels;
    }
    return nullptr;
}

}  // namespace
}  // namespace stridewise
