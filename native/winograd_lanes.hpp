// Winograd convolution in vectors of any width; each file that includes it compiles one width.
//
// F(m x m, 3 x 3): m x m results from (m + 2) x (m + 2) pixels and as many products (Lavin and
// Gray, arXiv:1509.09308). Y = A^T [(G g G^T) * (B^T d B)] A, with polynomials that are
// interpolated at 0, 1, -1 and infinity for m = 2, and at 0, +-1/sqrt(2), +-sqrt(2) and infinity
// for m = 4. These points halve the error of the usual 0, +-1, +-2 and cost as many operations.
#pragma once

#include "winograd_kernels.hpp"

namespace stridewise {
namespace {

template <int N>
struct VectorOf {
    typedef float Type __attribute__((vector_size(N * sizeof(float))));
    typedef float Unaligned
        __attribute__((vector_size(N * sizeof(float)), aligned(sizeof(float)), may_alias));
    typedef std::int32_t Mask __attribute__((vector_size(N * sizeof(float))));
};

template <int N>
struct Lanes {
    using V = typename VectorOf<N>::Type;
    using Unaligned = typename VectorOf<N>::Unaligned;
    using Mask = typename VectorOf<N>::Mask;

    static inline V load(const float *from) { return *reinterpret_cast<const Unaligned *>(from); }
    static inline void store(float *to, V value) { *reinterpret_cast<Unaligned *>(to) = value; }
    static inline V all(float value) { return value - V{}; }
    // From memory to all lanes; each file does it as its instruction set does it best.
    static inline V spread(const float *from);
    static inline V load_some(const float *from, std::int64_t count) {
        V value{};
        for (int lane = 0; lane < N; ++lane) {
            if (lane < count) value[lane] = from[lane];
        }
        return value;
    }
    static inline void store_some(float *to, V value, std::int64_t count) {
        for (int lane = 0; lane < N; ++lane) {
            if (lane < count) to[lane] = value[lane];
        }
    }
    // Comparisons with NaN are false, so that NaN comes through as the second argument.
    static inline V larger(V a, V b) { return a > b ? a : b; }
    static inline V smaller(V a, V b) { return a < b ? a : b; }
    static inline V without(V value, std::int64_t count) {
        for (int lane = 0; lane < N; ++lane) {
            if (lane >= count) value[lane] = 0.0F;
        }
        return value;
    }
    static V exponential(V x);
    static inline V logistic(V x) {
        // The bounds of the exponential keep results of very small x from zero, which shows in a
        // product with x.
        return x < -87.0F ? V{} : 1.0F / (1.0F + exponential(-x));
    }
    static inline V absolute(V x) { return x < 0.0F ? -x : x; }
    static V tangent(V x);
    // For functions that vectors have no quick way to.
    template <typename Function>
    static inline V each(V x, const Function &function) {
        for (int lane = 0; lane < N; ++lane) x[lane] = function(x[lane]);
        return x;
    }
};

// exp(x) = 2^n exp(r), |r| <= ln(2) / 2, by the polynomial of Cephes' expf; relative error 2e-7.
template <int N>
typename Lanes<N>::V Lanes<N>::exponential(V x) {
    x = smaller(all(88.0F), larger(all(-87.0F), x));
    const V scaled = x * 1.44269504088896341F;
    Mask whole = __builtin_convertvector(scaled + (scaled < 0.0F ? all(-0.5F) : all(0.5F)), Mask);
    const V n = __builtin_convertvector(whole, V);
    const V r = (x - n * 0.693359375F) + n * 2.12194440e-4F;
    V p = all(1.9875691500e-4F);
    p = p * r + 1.3981999507e-3F;
    p = p * r + 8.3334519073e-3F;
    p = p * r + 4.1665795894e-2F;
    p = p * r + 1.6666665459e-1F;
    p = p * r + 5.0000001201e-1F;
    p = p * (r * r) + r + 1.0F;
    whole = (whole + 127) << 23;
    V power;
    __builtin_memcpy(&power, &whole, sizeof power);
    return p * power;
}

// tanh(x) = 1 - 2 / (exp(2x) + 1), which cancels near zero; there by a polynomial.
template <int N>
typename Lanes<N>::V Lanes<N>::tangent(V x) {
    // Cephes' tanhf, |x| < 0.625: relative error 1e-7.
    const V square = x * x;
    V p = all(-5.70498872745e-3F);
    p = p * square + 2.06390887954e-2F;
    p = p * square - 5.37397155531e-2F;
    p = p * square + 1.33314422036e-1F;
    p = p * square - 3.33332819422e-1F;
    const V near = x + x * square * p;
    const V size = absolute(x);
    const V far = 1.0F - 2.0F / (exponential(2.0F * size) + 1.0F);
    return size < 0.625F ? near : (x < 0.0F ? -far : far);
}

// One-dimensional transforms: `step` is the distance between the elements of a line.
template <int N, int Tile>
struct Transform;

template <int N>
struct Transform<N, 2> {
    using V = typename Lanes<N>::V;
    static inline void input(const V *d, int step, V *t, int to) {
        const V d0 = d[0], d1 = d[step], d2 = d[2 * step], d3 = d[3 * step];
        t[0] = d0 - d2;
        t[to] = d1 + d2;
        t[2 * to] = d2 - d1;
        t[3 * to] = d3 - d1;
    }
    static inline void output(const V *s, int step, V *y, int to) {
        const V sum = s[step] + s[2 * step], difference = s[step] - s[2 * step];
        y[0] = s[0] + sum;
        y[to] = difference + s[3 * step];
    }
};

template <int N>
struct Transform<N, 4> {
    using V = typename Lanes<N>::V;
    static constexpr float kA = 0.70710678118654752440F;  // 1 / sqrt(2)
    static constexpr float kB = 1.41421356237309504880F;  // sqrt(2)
    static inline void input(const V *d, int step, V *t, int to) {
        const V d0 = d[0], d1 = d[step], d2 = d[2 * step];
        const V d3 = d[3 * step], d4 = d[4 * step], d5 = d[5 * step];
        const V even_a = d4 - 2.0F * d2, odd_a = kA * d3 - kB * d1;
        const V even_b = d4 - 0.5F * d2, odd_b = kB * d3 - kA * d1;
        t[0] = (d0 + d4) - 2.5F * d2;
        t[to] = even_a + odd_a;
        t[2 * to] = even_a - odd_a;
        t[3 * to] = even_b + odd_b;
        t[4 * to] = even_b - odd_b;
        t[5 * to] = (d1 + d5) - 2.5F * d3;
    }
    static inline void output(const V *s, int step, V *y, int to) {
        const V sum_a = s[step] + s[2 * step], difference_a = s[step] - s[2 * step];
        const V sum_b = s[3 * step] + s[4 * step], difference_b = s[3 * step] - s[4 * step];
        y[0] = s[0] + sum_a + sum_b;
        y[to] = kA * difference_a + kB * difference_b;
        y[2 * to] = 0.5F * sum_a + 2.0F * sum_b;
        y[3 * to] = (0.5F * kA) * difference_a + (2.0F * kB) * difference_b + s[5 * step];
    }
};

struct TilePlace {
    std::int64_t image, y, x;  // y and x in tiles
};

inline TilePlace place_of(const WinogradShape &shape, std::int64_t tile) {
    const std::int64_t row = tile / shape.tiles_wide;
    return {row / shape.tiles_high, row % shape.tiles_high, tile % shape.tiles_wide};
}

template <int N, int Tile>
struct Winograd {
    using L = Lanes<N>;
    using V = typename L::V;
    using T = Transform<N, Tile>;
    static constexpr int kWindow = Tile + 2;
    static constexpr int kLine = 64 / sizeof(float);  // of a cache

    static void load_pixels(const WinogradShape &shape, const float *image, std::int64_t top,
                            std::int64_t left, std::int64_t lanes, V *pixels) {
        for (int i = 0; i < kWindow; ++i) {
            const std::int64_t y = top + i;
            for (int j = 0; j < kWindow; ++j) {
                const std::int64_t x = left + j;
                const bool inside = y >= 0 && y < shape.height && x >= 0 && x < shape.width;
                const float *from = image + y * shape.source.row + x * shape.source.pixel;
                V &pixel = pixels[i * kWindow + j];
                if (!inside) {
                    pixel = V{};
                } else {
                    pixel = lanes == N ? L::load(from) : L::load_some(from, lanes);
                }
            }
        }
    }

    static void input(const WinogradShape &shape, const float *source, std::int64_t first,
                      std::int64_t count, std::int64_t chunk, std::int64_t chunk_end,
                      const TransformedTiles &tiles, float *transformed) {
        // Two tiles at a time, as a line of the cache holds vectors of both.
        for (std::int64_t begin = 0; begin < count; begin += 2) {
            const std::int64_t end = begin + 2 < count ? begin + 2 : count;
            for (std::int64_t c = chunk; c < chunk_end; ++c) {
                for (std::int64_t t = begin; t < end; ++t) {
                    input_tile(shape, source, place_of(shape, first + t), c, tiles.xi_stride,
                               transformed + c * tiles.chunk_stride + t * N);
                }
            }
        }
    }

    static inline void input_tile(const WinogradShape &shape, const float *source,
                                  const TilePlace &place, std::int64_t chunk,
                                  std::int64_t xi_stride, float *to) {
        const std::int64_t top = place.y * Tile - shape.pad_top;
        const std::int64_t left = place.x * Tile - shape.pad_left;
        const bool inside =
            top >= 0 && left >= 0 && top + kWindow <= shape.height && left + kWindow <= shape.width;
        const float *image = source + place.image * shape.source.image + chunk * shape.source.chunk;
        const std::int64_t lanes = shape.channels - chunk * N < N ? shape.channels - chunk * N : N;
        V pixels[kWindow * kWindow];
        V half[kWindow * kWindow];
        if (inside && lanes == N) {
            const float *corner = image + top * shape.source.row + left * shape.source.pixel;
            for (int i = 0; i < kWindow; ++i) {
                for (int j = 0; j < kWindow; ++j) {
                    pixels[i * kWindow + j] =
                        L::load(corner + i * shape.source.row + j * shape.source.pixel);
                }
            }
        } else {
            load_pixels(shape, image, top, left, lanes, pixels);
        }
        for (int j = 0; j < kWindow; ++j) {
            T::input(pixels + j, kWindow, half + j, kWindow);
        }
        for (int i = 0; i < kWindow; ++i) {
            V line[kWindow];
            T::input(half + i * kWindow, 1, line, 1);
            for (int j = 0; j < kWindow; ++j) {
                L::store(to + (i * kWindow + j) * xi_stride, line[j]);
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
            for (std::int64_t line = 0; line < product.next_lines; ++line) {
                __builtin_prefetch(next, 0, 2);
                next += kLine;
            }
#pragma GCC unroll 4
            for (int lane = 0; lane < N; ++lane) {
                const V low = L::load(weights + lane * 2 * N);
                const V high = L::load(weights + lane * 2 * N + N);
#pragma GCC unroll 16
                for (int row = 0; row < Rows; ++row) {
                    const V value = L::spread(transformed + row * N + lane);
                    sums[row][0] += value * low;
                    sums[row][1] += value * high;
                }
            }
            transformed += product.chunk_stride;
            weights += 2 * N * N;
        }
#pragma GCC unroll 16
        for (int row = 0; row < Rows; ++row) {
            L::store(products + row * 2 * N, sums[row][0]);
            L::store(products + row * 2 * N + N, sums[row][1]);
        }
    }

    template <int Most>
    struct Products {
        static void run(const WinogradProduct &product) {
            if (product.rows == Most) {
                multiply_rows<Most>(product);
            } else if constexpr (Most > 1) {
                Products<Most - 1>::run(product);
            }
        }
    };

    static inline V stage(const WinogradStage &stage, V value, V other) {
        const V alpha = L::all(stage.alpha), beta = L::all(stage.beta);
        switch (stage.op) {
            case WinogradPostOp::relu:
                return value > 0.0F ? value : value * alpha;
            case WinogradPostOp::clip:
                return L::smaller(beta, L::larger(alpha, value));
            case WinogradPostOp::linear:
                return alpha * value + beta;
            case WinogradPostOp::abs:
                return L::absolute(value);
            case WinogradPostOp::square:
                return value * value;
            case WinogradPostOp::hardsigmoid:
                return L::smaller(L::all(1.0F), L::larger(V{}, alpha * value + beta));
            case WinogradPostOp::hardswish:
                return value * L::smaller(L::all(1.0F), L::larger(V{}, alpha * value + beta));
            case WinogradPostOp::logistic:
                return L::logistic(value);
            case WinogradPostOp::swish:
                return value * L::logistic(alpha * value);
            case WinogradPostOp::tanh:
                return L::tangent(value);
            case WinogradPostOp::elu:
                return value > 0.0F ? value : L::each(value, [&](float x) {
                    return stage.alpha * __builtin_expm1f(x > 0 ? 0 : x);
                });
            case WinogradPostOp::sqrt:
                return L::each(value, [](float x) { return __builtin_sqrtf(x); });
            case WinogradPostOp::exp:
                return L::each(value, [](float x) { return __builtin_expf(x); });
            case WinogradPostOp::log:
                return L::each(value, [](float x) { return __builtin_logf(x); });
            case WinogradPostOp::soft_relu:
                // log(1 + exp(y)) = max(y, 0) + log(1 + exp(-|y|))
                return L::each(value, [&](float x) {
                    const float y = stage.alpha * x;
                    const float less = __builtin_log1pf(__builtin_expf(-__builtin_fabsf(y)));
                    return ((y < 0 ? 0 : y) + less) / stage.alpha;
                });
            case WinogradPostOp::gelu_erf:
                return L::each(value, [](float x) {
                    return 0.5F * x * (1.0F + __builtin_erff(x * 0.70710678118654752440F));
                });
            case WinogradPostOp::pow:
                return L::each(
                    value, [&](float x) { return stage.alpha * __builtin_powf(x, stage.beta); });
            case WinogradPostOp::sum:
            case WinogradPostOp::add:
                return value + other;
            case WinogradPostOp::sub:
                return value - other;
            case WinogradPostOp::mul:
                return value * other;
            case WinogradPostOp::div:
                return value / other;
            case WinogradPostOp::max:
                return L::larger(value, other);
            case WinogradPostOp::min:
                return L::smaller(value, other);
        }
        return value;
    }

    static void output(const WinogradShape &shape, const float *products, std::int64_t xi_stride,
                       std::int64_t first, std::int64_t count, std::int64_t pair,
                       const WinogradResult &result) {
        for (std::int64_t t = 0; t < count; ++t) {
            const TilePlace place = place_of(shape, first + t);
            const std::int64_t top = place.y * Tile, left = place.x * Tile;
            if (t + 1 < count) expect_tile(shape, result, place_of(shape, first + t + 1), pair);
            const std::int64_t high = shape.out_height - top < Tile ? shape.out_height - top : Tile;
            const std::int64_t wide = shape.out_width - left < Tile ? shape.out_width - left : Tile;
            for (int half = 0; half < 2; ++half) {
                const std::int64_t chunk = 2 * pair + half;
                const std::int64_t lanes =
                    shape.outputs - chunk * N < N ? shape.outputs - chunk * N : N;
                if (lanes <= 0) break;
                V sums[kWindow * Tile];
                for (int j = 0; j < kWindow; ++j) {
                    V column[kWindow];
                    for (int i = 0; i < kWindow; ++i) {
                        column[i] = L::load(products + (i * kWindow + j) * xi_stride + t * 2 * N +
                                            half * N);
                    }
                    T::output(column, 1, sums + j, kWindow);
                }
                const V bias = L::load(result.bias + chunk * N);
                const std::int64_t corner = place.image * shape.result.image +
                                            chunk * shape.result.chunk + top * shape.result.row +
                                            left * shape.result.pixel;
                V values[Tile * Tile];
                for (int i = 0; i < Tile; ++i) {
                    V line[Tile];
                    T::output(sums + i * kWindow, 1, line, 1);
                    for (int j = 0; j < Tile; ++j) values[i * Tile + j] = line[j] + bias;
                }
                if (high == Tile && wide == Tile && lanes == N) {
                    store_tile(shape.result, result, corner, values);
                    continue;
                }
                for (std::int64_t i = 0; i < high; ++i) {
                    for (std::int64_t j = 0; j < wide; ++j) {
                        const std::int64_t at =
                            corner + i * shape.result.row + j * shape.result.pixel;
                        store_result(result, at, lanes, values[i * Tile + j]);
                    }
                }
            }
        }
    }

    // Fetches what a tile's results will be written to, while the one before it is computed.
    static inline void expect_tile(const WinogradShape &shape, const WinogradResult &result,
                                   const TilePlace &place, std::int64_t pair) {
        if ((place.y + 1) * Tile > shape.out_height || (place.x + 1) * Tile > shape.out_width ||
            (2 * pair + 2) * N > shape.outputs) {
            return;
        }
        const float *corner = result.data + place.image * shape.result.image +
                              2 * pair * shape.result.chunk + place.y * Tile * shape.result.row +
                              place.x * Tile * shape.result.pixel;
        for (int i = 0; i < Tile; ++i) {
            for (int j = 0; j < Tile; ++j) {
                const float *at = corner + i * shape.result.row + j * shape.result.pixel;
                __builtin_prefetch(at, 1);
                if (result.blocked || N > kLine / 2) __builtin_prefetch(at + shape.result.chunk, 1);
            }
        }
    }

    // A whole tile of whole vectors, for which one stage after the other is looked up once.
    static void store_tile(const ImageStrides &strides, const WinogradResult &result,
                           std::int64_t corner, V *values) {
        constexpr int kPixels = Tile * Tile;
        for (int s = 0; s < result.stage_count; ++s) {
            const WinogradStage &step = result.stages[s];
            V others[kPixels];
            if (step.op >= WinogradPostOp::sum) {
                const bool in_place = step.op == WinogradPostOp::sum;
                const float *from = (in_place ? result.data : step.operand) + corner;
                for (int i = 0; i < Tile; ++i) {
                    for (int j = 0; j < Tile; ++j) {
                        others[i * Tile + j] = L::load(from + i * strides.row + j * strides.pixel);
                    }
                }
            }
            if (step.op == WinogradPostOp::clip) {
                const V low = L::all(step.alpha), high = L::all(step.beta);
                for (int k = 0; k < kPixels; ++k) {
                    values[k] = L::smaller(high, L::larger(low, values[k]));
                }
            } else if (step.op == WinogradPostOp::sum || step.op == WinogradPostOp::add) {
                for (int k = 0; k < kPixels; ++k) values[k] += others[k];
            } else if (step.op < WinogradPostOp::sum) {
                for (int k = 0; k < kPixels; ++k) values[k] = stage(step, values[k], V{});
            } else {
                for (int k = 0; k < kPixels; ++k) values[k] = stage(step, values[k], others[k]);
            }
        }
        float *to = result.data + corner;
        for (int i = 0; i < Tile; ++i) {
            for (int j = 0; j < Tile; ++j) {
                L::store(to + i * strides.row + j * strides.pixel, values[i * Tile + j]);
            }
        }
    }

    static inline void store_result(const WinogradResult &result, std::int64_t at,
                                    std::int64_t lanes, V value) {
        const bool whole = lanes == N || result.blocked;
        for (int s = 0; s < result.stage_count; ++s) {
            const WinogradStage &step = result.stages[s];
            V other{};
            if (step.op >= WinogradPostOp::sum) {
                const float *from =
                    (step.op == WinogradPostOp::sum ? result.data : step.operand) + at;
                other = whole ? L::load(from) : L::load_some(from, lanes);
            }
            value = stage(step, value, other);
        }
        if (lanes == N) {
            L::store(result.data + at, value);
        } else if (result.blocked) {
            L::store(result.data + at, L::without(value, lanes));
        } else {
            L::store_some(result.data + at, value, lanes);
        }
    }
};

template <int N, int Tile, int Rows>
constexpr WinogradKernels kernels_of() {
    using W = Winograd<N, Tile>;
    return {Tile, N, Rows, W::input, W::template Products<Rows>::run, W::output};
}

}  // namespace
}  // namespace stridewise
