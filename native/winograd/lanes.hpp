// Winograd convolution in vectors of any width; each file that includes it compiles one width.
//
// Y = A^T [(G g G^T) * (B^T d B)] A; winograd_points.hpp has the polynomials behind the matrices.
#pragma once

#include "post_ops/lanes.hpp"
#include "support/vectors.hpp"
#include "winograd/kernels.hpp"
#include "winograd/points.hpp"

namespace stridewise {
namespace {

// F(Results, Taps) along one axis. `step` is the distance between the elements of a line.
template <int N, int Results, int Taps>
struct Transform {
    using V = typename Lanes<N>::V;
    static constexpr int kResults = Results, kTaps = Taps, kPlaces = Results + Taps - 1;
    static constexpr WinogradPolynomials<kPlaces> kPolynomials{};
    static constexpr int kPairs = kPolynomials.kPairs;

    static constexpr float all(int i) { return static_cast<float>(kPolynomials.all[i]); }
    static constexpr float even(int k, int i) {
        return static_cast<float>(kPolynomials.without[k][i]);
    }
    static constexpr float odd(int k, int i) {
        return static_cast<float>(kPolynomials.without[k][i] * kPolynomials.point(k));
    }
    static constexpr float power(int k, int exponent) {
        return static_cast<float>(kPolynomials.power(k, exponent));
    }

    static inline void input(const V *d, int step, V *t, int to) {
        V first = all(0) * d[0], last = all(0) * d[step];
#pragma GCC unroll 8
        for (int i = 1; i <= kPairs; ++i) {
            first += all(i) * d[2 * i * step];
            last += all(i) * d[(2 * i + 1) * step];
        }
        t[0] = first;
        t[(kPlaces - 1) * to] = last;
#pragma GCC unroll 8
        for (int k = 0; k < kPairs; ++k) {
            V evens = even(k, 0) * d[2 * step], odds = odd(k, 0) * d[step];
#pragma GCC unroll 8
            for (int i = 1; i < kPairs; ++i) {
                evens += even(k, i) * d[(2 * i + 2) * step];
                odds += odd(k, i) * d[(2 * i + 1) * step];
            }
            t[(2 * k + 1) * to] = evens + odds;
            t[(2 * k + 2) * to] = evens - odds;
        }
    }

    static inline void output(const V *s, int step, V *y, int to) {
        V sums[kPairs], differences[kPairs];
#pragma GCC unroll 8
        for (int k = 0; k < kPairs; ++k) {
            sums[k] = s[(2 * k + 1) * step] + s[(2 * k + 2) * step];
            differences[k] = s[(2 * k + 1) * step] - s[(2 * k + 2) * step];
        }
#pragma GCC unroll 8
        for (int j = 0; j < kResults; ++j) {
            const V *from = j % 2 == 0 ? sums : differences;
            V result = power(0, j) * from[0];
#pragma GCC unroll 8
            for (int k = 1; k < kPairs; ++k) result += power(k, j) * from[k];
            if (j == 0) result += s[0];
            if (j == kResults - 1) result += s[(kPlaces - 1) * step];
            y[j * to] = result;
        }
    }
};

// Transforms for an axis along which windows have one tap: the identity.
template <int N>
struct Transform<N, 1, 1> {
    using V = typename Lanes<N>::V;
    static constexpr int kResults = 1, kTaps = 1, kPlaces = 1;
    static inline void input(const V *d, int, V *t, int) { t[0] = d[0]; }
    static inline void output(const V *s, int, V *y, int) { y[0] = s[0]; }
};

struct TilePlace {
    std::int64_t image, top, left;  // top and left: the first result
};

// Distances in elements from a pixel of a phase to the next pixel below and to the right.
struct PhaseSteps {
    std::int64_t row, pixel;
};

// Results of one tile are `dilation` apart, and the tiles of all phases are interleaved.
inline std::int64_t first_result(std::int64_t tile, std::int64_t results, std::int64_t dilation) {
    if (dilation == 1) return tile * results;
    return tile / dilation * results * dilation + tile % dilation;
}

// The number of results among `most`, starting at `first` with distance `step`, below `extent`.
inline std::int64_t results_within(std::int64_t first, std::int64_t most, std::int64_t step,
                                   std::int64_t extent) {
    if (first + (most - 1) * step < extent) return most;
    return (extent - first + step - 1) / step;
}

// How transformed pixels are multiplied: channels in float32, or pairs of channels in bfloat16.
template <int N>
struct Channels {
    using L = Lanes<N>;
    using V = typename L::V;
    using Element = float;
    static constexpr int kLanes = N;  // of a chunk of channels
    static inline V add(V sum, V value, V weights) { return sum + value * weights; }
};
template <int N>
struct ChannelPairs {
    using L = Lanes<N>;
    using V = typename L::V;
    using Element = Bfloat16;
    static constexpr int kLanes = N / 2;
    static inline V add(V sum, V value, V weights) { return L::add_pairs(sum, value, weights); }
};

template <int N, typename Vertical, typename Horizontal, typename Products = Channels<N>>
struct Winograd {
    using L = Lanes<N>;
    using V = typename L::V;
    using Steps = Stages<N>;
    static constexpr int kHigh = Vertical::kPlaces, kWide = Horizontal::kPlaces;
    static constexpr int kRows = Vertical::kResults, kColumns = Horizontal::kResults;
    static constexpr int kLine = 64 / sizeof(float);  // elements of a cache line

    static TilePlace place_of(const WinogradShape &shape, std::int64_t tile) {
        const std::int64_t row = tile / shape.tiles_wide;
        return {row / shape.tiles_high,
                first_result(row % shape.tiles_high, Vertical::kResults, shape.dilation_high),
                first_result(tile % shape.tiles_wide, Horizontal::kResults, shape.dilation_wide)};
    }

    static PhaseSteps steps_of(const WinogradShape &shape, const ImageStrides &strides) {
        return {strides.row * shape.dilation_high, strides.pixel * shape.dilation_wide};
    }

    static std::int64_t corner_of(const ImageStrides &strides, const TilePlace &place,
                                  std::int64_t chunk) {
        return place.image * strides.image + chunk * strides.chunk + place.top * strides.row +
               place.left * strides.pixel;
    }

    static TilePlace stored_place(const WinogradShape &shape, const TilePlace &place) {
        return {place.image, place.top / shape.pool, place.left / shape.pool};
    }

    static std::int64_t rows_within(const WinogradShape &shape, const TilePlace &place) {
        return results_within(place.top, kRows, shape.dilation_high, shape.out_height);
    }

    static std::int64_t columns_within(const WinogradShape &shape, const TilePlace &place) {
        return results_within(place.left, kColumns, shape.dilation_wide, shape.out_width);
    }

    template <class T>
    static void load_pixels(const WinogradShape &shape, const T *image, std::int64_t top,
                            std::int64_t left, std::int64_t lanes, V *pixels) {
        for (int i = 0; i < kHigh; ++i) {
            const std::int64_t y = top + i * shape.dilation_high;
            for (int j = 0; j < kWide; ++j) {
                const std::int64_t x = left + j * shape.dilation_wide;
                const bool inside = y >= 0 && y < shape.height && x >= 0 && x < shape.width;
                const T *from = image + y * shape.source.row + x * shape.source.pixel;
                V &pixel = pixels[i * kWide + j];
                if (!inside) {
                    pixel = V{};
                } else {
                    pixel = lanes == N ? L::load(from) : L::load_some(from, lanes);
                }
            }
        }
    }

    template <class T>
    static void input(const WinogradShape &shape, const void *source, std::int64_t first,
                      std::int64_t count, std::int64_t chunk, std::int64_t chunk_end,
                      const TransformedTiles &tiles, float *transformed) {
        // Two tiles at a time, because one cache line holds vectors of both.
        for (std::int64_t begin = 0; begin < count; begin += 2) {
            const std::int64_t tile_count = count - begin < 2 ? count - begin : 2;
            const TilePlace places[] = {place_of(shape, first + begin),
                                        place_of(shape, first + begin + tile_count - 1)};
            for (std::int64_t c = chunk; c < chunk_end; ++c) {
                float *to = transformed + c * tiles.chunk_stride + begin * Products::kLanes;
                for (std::int64_t t = 0; t < tile_count; ++t) {
                    input_tile(shape, static_cast<const T *>(source), places[t], c, tiles.xi_stride,
                               to + t * Products::kLanes);
                }
            }
        }
    }

    template <class T>
    static inline void input_tile(const WinogradShape &shape, const T *source,
                                  const TilePlace &place, std::int64_t chunk,
                                  std::int64_t xi_stride, float *to) {
        const std::int64_t top = place.top - shape.pad_top, left = place.left - shape.pad_left;
        const bool inside = top >= 0 && left >= 0 &&
                            top + (kHigh - 1) * shape.dilation_high < shape.height &&
                            left + (kWide - 1) * shape.dilation_wide < shape.width;
        const T *image = source + place.image * shape.source.image + chunk * shape.source.chunk;
        const std::int64_t rest = shape.channels - chunk * N;
        const std::int64_t lanes = shape.is_blocked || rest > N ? N : rest;
        V pixels[kHigh * kWide];
        V half[kHigh * kWide];
        if (inside && lanes == N) {
            const PhaseSteps steps = steps_of(shape, shape.source);
            const T *corner = image + top * shape.source.row + left * shape.source.pixel;
            for (int i = 0; i < kHigh; ++i) {
                for (int j = 0; j < kWide; ++j) {
                    pixels[i * kWide + j] = L::load(corner + i * steps.row + j * steps.pixel);
                }
            }
        } else {
            load_pixels(shape, image, top, left, lanes, pixels);
        }
        for (int j = 0; j < kWide; ++j) {
            Vertical::input(pixels + j, kWide, half + j, kWide);
        }
        for (int i = 0; i < kHigh; ++i) {
            V line[kWide];
            Horizontal::input(half + i * kWide, 1, line, 1);
            for (int j = 0; j < kWide; ++j) {
                float *place = to + (i * kWide + j) * xi_stride;
                L::store(reinterpret_cast<typename Products::Element *>(place), line[j]);
            }
        }
    }

    template <int Rows>
    static void multiply_rows(const WinogradProduct &product) {
        const float *transformed = product.transformed, *weights = product.weights;
        const float *next = product.next;
        float *products = product.products;
        V sums[Rows][2];
#pragma GCC unroll 16
        for (int row = 0; row < Rows; ++row) {
            sums[row][0] = product.resumes ? L::load(products + row * 2 * N) : V{};
            sums[row][1] = product.resumes ? L::load(products + row * 2 * N + N) : V{};
        }
        for (std::int64_t chunk = 0; chunk < product.chunks; ++chunk) {
            const std::int64_t lanes =
                chunk + 1 < product.chunks ? std::int64_t{Products::kLanes} : product.tail;
            std::int64_t fetched = 0;
            for (std::int64_t begin = 0; begin < lanes; begin += kLaneStep) {
                // Many lines at once would fill the buffers for misses.
                const std::int64_t due =
                    product.next_lines * (begin + kLaneStep) / Products::kLanes;
                for (; fetched < due; ++fetched, next += kLine) __builtin_prefetch(next, 0, 3);
#pragma GCC unroll 4
                for (std::int64_t lane = begin; lane < begin + kLaneStep; ++lane) {
                    const V low = L::load(weights + lane * 2 * N);
                    const V high = L::load(weights + lane * 2 * N + N);
#pragma GCC unroll 16
                    for (int row = 0; row < Rows; ++row) {
                        const V value = L::spread(transformed + row * Products::kLanes + lane);
                        sums[row][0] = Products::add(sums[row][0], value, low);
                        sums[row][1] = Products::add(sums[row][1], value, high);
                    }
                }
            }
            transformed += product.chunk_stride;
            weights += Products::kLanes * 2 * N;
        }
#pragma GCC unroll 16
        for (int row = 0; row < Rows; ++row) {
            L::store(products + row * 2 * N, sums[row][0]);
            L::store(products + row * 2 * N + N, sums[row][1]);
        }
    }

    template <int Most>
    struct Multiplication {
        static void run(const WinogradProduct &product) {
            if (product.rows == Most) {
                multiply_rows<Most>(product);
            } else if constexpr (Most > 1) {
                Multiplication<Most - 1>::run(product);
            }
        }
    };

    template <class T>
    static void output(const WinogradShape &shape, const float *products, std::int64_t xi_stride,
                       std::int64_t first, std::int64_t count, std::int64_t pair,
                       const WinogradResult &result) {
        const PhaseSteps steps = steps_of(shape, shape.result);
        const std::int64_t places = kRows / shape.pool * (kColumns / shape.pool);
        for (std::int64_t t = 0; t < count; ++t) {
            const TilePlace place = place_of(shape, first + t);
            if (t + 1 < count) expect<T>(shape, first + t + 1, 0, places, pair, result);
            const std::int64_t high = rows_within(shape, place);
            const std::int64_t wide = columns_within(shape, place);
            const TilePlace stored = stored_place(shape, place);
            for (int half = 0; half < 2; ++half) {
                const std::int64_t chunk = 2 * pair + half;
                const std::int64_t lanes =
                    shape.outputs - chunk * N < N ? shape.outputs - chunk * N : N;
                if (lanes <= 0) break;
                V values[kRows * kColumns];
                output_tile(products + t * 2 * N + half * N, xi_stride,
                            L::load(result.bias + chunk * N), values);
                const std::int64_t corner = corner_of(shape.result, stored, chunk);
                if constexpr (kRows % 2 == 0 && kColumns % 2 == 0) {
                    if (shape.pool == 2) {
                        store_pooled<T>(steps, result, corner, {high / 2, wide / 2, lanes}, values);
                        continue;
                    }
                }
                if (high == kRows && wide == kColumns && lanes == N) {
                    store_tile<T>(steps, result, corner, values);
                    continue;
                }
                for (std::int64_t i = 0; i < high; ++i) {
                    for (std::int64_t j = 0; j < wide; ++j) {
                        store_result<T>(result, corner + i * steps.row + j * steps.pixel, lanes,
                                        values[i * kColumns + j]);
                    }
                }
            }
        }
    }

    static inline void output_tile(const float *products, std::int64_t xi_stride, V bias,
                                   V *values) {
        V sums[kRows * kWide];
        for (int j = 0; j < kWide; ++j) {
            V column[kHigh];
            for (int i = 0; i < kHigh; ++i) {
                column[i] = L::load(products + (i * kWide + j) * xi_stride);
            }
            Vertical::output(column, 1, sums + j, kWide);
        }
        for (int i = 0; i < kRows; ++i) {
            V line[kColumns];
            Horizontal::output(sums + i * kWide, 1, line, 1);
            for (int j = 0; j < kColumns; ++j) values[i * kColumns + j] = line[j] + bias;
        }
    }

    // Prefetches places of the results of whole tiles: those from `begin` to `end`, which are
    // counted through the tiles.
    template <class T>
    static void expect(const WinogradShape &shape, std::int64_t first, std::int64_t begin,
                       std::int64_t end, std::int64_t pair, const WinogradResult &result) {
        if ((2 * pair + 2) * N > shape.outputs) return;
        const PhaseSteps steps = steps_of(shape, shape.result);
        const std::int64_t wide = kColumns / shape.pool, count = kRows / shape.pool * wide;
        while (begin < end) {
            const std::int64_t tile = begin / count, past = (tile + 1) * count;
            const std::int64_t stop = past < end ? past : end;
            const TilePlace place = place_of(shape, first + tile);
            if (rows_within(shape, place) == kRows && columns_within(shape, place) == kColumns) {
                const T *corner = static_cast<const T *>(result.data) +
                                  corner_of(shape.result, stored_place(shape, place), 2 * pair);
                std::int64_t row = (begin - tile * count) / wide;
                std::int64_t column = (begin - tile * count) % wide;
                for (std::int64_t at = begin; at < stop; ++at) {
                    const T *line = corner + row * steps.row + column * steps.pixel;
                    __builtin_prefetch(line, 1);
                    if (result.blocked || N > kLine / 2) {
                        __builtin_prefetch(line + shape.result.chunk, 1);
                    }
                    if (++column == wide) ++row, column = 0;
                }
            }
            begin = stop;
        }
    }

    // Stores a whole tile of whole vectors.
    template <class T>
    static void store_tile(const PhaseSteps &steps, const WinogradResult &result,
                           std::int64_t corner, V *values) {
        constexpr int kPixels = kRows * kColumns;
        for (int s = 0; s < result.stage_count; ++s) {
            const Stage &step = result.stages[s];
            if (step.op < StageOp::sum) {
                Steps::template activate<kRows * kColumns>(step, values);
                continue;
            }
            V others[kPixels];
            const bool in_place = step.op == StageOp::sum;
            const T *from = static_cast<const T *>(in_place ? result.data : step.operand) + corner;
            for (int i = 0; i < kRows; ++i) {
                for (int j = 0; j < kColumns; ++j) {
                    others[i * kColumns + j] = L::load(from + i * steps.row + j * steps.pixel);
                }
            }
            if (in_place || step.op == StageOp::add) {
                for (int k = 0; k < kPixels; ++k) values[k] += others[k];
            } else {
                for (int k = 0; k < kPixels; ++k)
                    values[k] = Steps::apply(step, values[k], others[k]);
            }
        }
        T *to = static_cast<T *>(result.data) + corner;
        for (int i = 0; i < kRows; ++i) {
            for (int j = 0; j < kColumns; ++j) {
                L::store(to + i * steps.row + j * steps.pixel, values[i * kColumns + j]);
            }
        }
    }

    // The part of a tile, and the number of lanes of its vectors, that are stored.
    struct Part {
        std::int64_t high, wide, lanes;
    };

    // Stores the maxima of 2x2 results. The last result of an odd number belongs to no window.
    template <class T>
    static void store_pooled(const PhaseSteps &steps, const WinogradResult &result,
                             std::int64_t corner, const Part &part, V *values) {
        for (int s = 0; s < result.stage_count; ++s)
            Steps::template activate<kRows * kColumns>(result.stages[s], values);
        for (int i = 0; i < part.high; ++i) {
            for (int j = 0; j < part.wide; ++j) {
                const V *window = values + 2 * (i * kColumns + j);
                const V maximum =
                    L::larger_or_nan(L::larger_or_nan(window[0], window[1]),
                                     L::larger_or_nan(window[kColumns], window[kColumns + 1]));
                store_lanes<T>(result, corner + i * steps.row + j * steps.pixel, part.lanes,
                               maximum);
            }
        }
    }

    template <class T>
    static inline void store_result(const WinogradResult &result, std::int64_t at,
                                    std::int64_t lanes, V value) {
        const bool whole = lanes == N || result.blocked;
        for (int s = 0; s < result.stage_count; ++s) {
            const Stage &step = result.stages[s];
            V other{};
            if (step.op >= StageOp::sum) {
                const void *operand = step.op == StageOp::sum ? result.data : step.operand;
                const T *from = static_cast<const T *>(operand) + at;
                other = whole ? L::load(from) : L::load_some(from, lanes);
            }
            value = Steps::apply(step, value, other);
        }
        store_lanes<T>(result, at, lanes, value);
    }

    template <class T>
    static inline void store_lanes(const WinogradResult &result, std::int64_t at,
                                   std::int64_t lanes, V value) {
        T *to = static_cast<T *>(result.data) + at;
        if (lanes == N) {
            L::store(to, value);
        } else if (result.blocked) {
            L::store(to, L::without(value, lanes));
        } else {
            L::store_some(to, value, lanes);
        }
    }
};

// Matrix products of two groups, one for each vector of a pair.
template <int N, int Most>
struct GroupProducts {
    using L = Lanes<N>;
    using V = typename L::V;

    static void multiply(const float *low, const float *high, std::int64_t chunk_stride,
                         std::int64_t chunks, const float *weights, float *products) {
        V sums[Most][2];
#pragma GCC unroll 16
        for (int row = 0; row < Most; ++row) sums[row][0] = sums[row][1] = V{};
        for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
#pragma GCC unroll 4
            for (int lane = 0; lane < N; ++lane) {
                const V low_weights = L::load(weights + lane * 2 * N);
                const V high_weights = L::load(weights + lane * 2 * N + N);
#pragma GCC unroll 16
                for (int row = 0; row < Most; ++row) {
                    sums[row][0] += L::spread(low + row * N + lane) * low_weights;
                    sums[row][1] += L::spread(high + row * N + lane) * high_weights;
                }
            }
            low += chunk_stride;
            high += chunk_stride;
            weights += 2 * N * N;
        }
#pragma GCC unroll 16
        for (int row = 0; row < Most; ++row) {
            L::store(products + row * 2 * N, sums[row][0]);
            L::store(products + row * 2 * N + N, sums[row][1]);
        }
    }

    static void run(const float *low, const float *high, std::int64_t chunk_stride,
                    std::int64_t chunks, const float *weights, float *products, std::int64_t rows) {
        if (rows == Most) {
            multiply(low, high, chunk_stride, chunks, weights, products);
        } else if constexpr (Most > 1) {
            GroupProducts<N, Most - 1>::run(low, high, chunk_stride, chunks, weights, products,
                                            rows);
        }
    }
};

template <int N, int Rows, class Source, class Result, int High, int Wide, int TapsHigh,
          int TapsWide, typename Products = Channels<N>>
constexpr WinogradKernels kernels_of() {
    using W = Winograd<N, Transform<N, High, TapsHigh>, Transform<N, Wide, TapsWide>, Products>;
    using P = Winograd<N, Transform<N, 1, 1>, Transform<N, 1, 1>, Products>;
    return {{High, Wide, TapsHigh, TapsWide},
            N,
            Rows,
            W::template input<Source>,
            P::template Multiplication<Rows>::run,
            GroupProducts<N, Rows>::run,
            W::template expect<Result>,
            W::template output<Result>};
}

// The table of kernels with vectors of N lanes.
template <int N, int Rows, class S, class R>
const WinogradKernels *find_winograd_of(const WinogradTile &tile) {
    static constexpr WinogradKernels kTable[] = {
        kernels_of<N, Rows, S, R, 2, 2, 3, 3>(), kernels_of<N, Rows, S, R, 4, 4, 3, 3>(),
        kernels_of<N, Rows, S, R, 6, 6, 3, 3>(), kernels_of<N, Rows, S, R, 2, 2, 5, 5>(),
        kernels_of<N, Rows, S, R, 5, 5, 4, 4>(), kernels_of<N, Rows, S, R, 1, 4, 1, 3>(),
        kernels_of<N, Rows, S, R, 1, 4, 1, 5>(), kernels_of<N, Rows, S, R, 1, 2, 1, 7>(),
        kernels_of<N, Rows, S, R, 1, 4, 1, 7>(), kernels_of<N, Rows, S, R, 3, 3, 2, 2>(),
        kernels_of<N, Rows, S, R, 5, 5, 2, 2>(),
    };
    for (const WinogradKernels &kernels : kTable) {
        if (kernels.tile == tile) return &kernels;
    }
    return nullptr;
}

template <int N, int Rows>
const WinogradKernels *find_winograd_in_pairs(const WinogradTile &tile, bool is_half) {
    using Pairs = ChannelPairs<N>;
    static constexpr WinogradKernels kWhole =
        kernels_of<N, Rows, Bfloat16, float, 2, 2, 3, 3, Pairs>();
    static constexpr WinogradKernels kHalf =
        kernels_of<N, Rows, Bfloat16, Bfloat16, 2, 2, 3, 3, Pairs>();
    return !(kWhole.tile == tile) ? nullptr : is_half ? &kHalf : &kWhole;
}

template <int N, int Rows>
const WinogradKernels *find_winograd(const WinogradTile &tile, HalfSides halves) {
    if (halves.source) {
        return halves.result ? find_winograd_of<N, Rows, Bfloat16, Bfloat16>(tile)
                             : find_winograd_of<N, Rows, Bfloat16, float>(tile);
    }
    return halves.result ? find_winograd_of<N, Rows, float, Bfloat16>(tile)
                         : find_winograd_of<N, Rows, float, float>(tile);
}

}  // namespace
}  // namespace stridewise
