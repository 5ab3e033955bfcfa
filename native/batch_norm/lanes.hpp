// Batch norm in training in vectors of any width.
//
// It includes no standard templates, for the reason in winograd/kernels.hpp.
#pragma once

#include "batch_norm/kernels.hpp"
#include "support/vectors.hpp"

namespace stridewise {
namespace {

// Rows that are added up in float32; sums of these are in double precision.
constexpr std::int64_t kNormBlock = 64;

template <int N>
struct DoublesOf {
    typedef double Type __attribute__((vector_size(N * sizeof(double))));
    typedef double Unaligned
        __attribute__((vector_size(N * sizeof(double)), aligned(sizeof(double)), may_alias));
};

// `Count` columns of vectors of N lanes, of which a lone one has `Used` valid lanes, from channel
// `channel` on. Elements of images are stored as T.
template <class T, int N, int Count, int Used, bool OfPixels>
struct NormColumns {
    using L = Lanes<N>;
    using V = typename L::V;
    using Doubles = typename DoublesOf<N>::Unaligned;
    static constexpr int kCount = Count, kLanes = N;

    const NormRows &work;
    std::int64_t channel, offset, rows, stride;

    static V load(const float *from) {
        return Used == N ? L::load(from) : L::load_some(from, Used);
    }
    static V image(const void *from, std::int64_t offset) {
        const T *at = static_cast<const T *>(from) + offset;
        return Used == N ? L::load(at) : L::load_some(at, Used);
    }
    static void store(void *to, std::int64_t offset, V value) {
        T *at = static_cast<T *>(to) + offset;
        if (Used == N) {
            L::store(at, value);
        } else {
            L::store_some(at, value, Used);
        }
    }
    V of_channels(const float *from, int column) const {
        return OfPixels ? L::all(*from) : load(from + channel + column * N);
    }
    void add(double *to, V value, int column) const {
        if (!OfPixels && Used == N) {
            Doubles &sums = *reinterpret_cast<Doubles *>(to + channel + column * N);
            sums += __builtin_convertvector(value, typename DoublesOf<N>::Type);
            return;
        }
        for (int lane = 0; lane < Used; ++lane) to[OfPixels ? 0 : channel + lane] += value[lane];
    }
    // One expression for the forward and the backward part, which decide about the same bits.
    static V normal(V centered, V factor, V shift) { return centered * factor + shift; }
};

// Sums of two numbers of each element, over the rows. A lone column has two sums, so that additions
// need not wait for one another.
template <class Columns, class Body>
inline void norm_sums(const Columns &at, const Body &body) {
    using V = typename Columns::V;
    constexpr int kCount = Columns::kCount, kTurns = kCount == 1 ? 2 : 1;
    V sums[kTurns * kCount] = {}, products[kTurns * kCount] = {};
    std::int64_t row = 0, offset = at.offset;
    for (; row + kTurns <= at.rows; row += kTurns) {
        for (int turn = 0; turn < kTurns; ++turn, offset += at.stride) {
            for (int k = 0; k < kCount; ++k) {
                body(k, offset, sums[turn * kCount + k], products[turn * kCount + k]);
            }
        }
    }
    if (row < at.rows) body(0, offset, sums[0], products[0]);
    for (int k = 0; k < kCount; ++k) {
        at.add(at.work.sums, kTurns == 2 ? sums[0] + sums[kTurns - 1] : sums[k], k);
        at.add(at.work.products, kTurns == 2 ? products[0] + products[kTurns - 1] : products[k], k);
    }
}

struct NormMoments {
    static constexpr bool kSums = true;
    template <class Columns>
    static inline void run(const Columns &at) {
        using V = typename Columns::V;
        V mean[Columns::kCount];
        for (int k = 0; k < Columns::kCount; ++k) mean[k] = at.of_channels(at.work.mean, k);
        norm_sums(at, [&](int k, std::int64_t offset, V &sum, V &squares) {
            const std::int64_t own = offset + k * Columns::kLanes;
            const V centered = Columns::image(at.work.source, own) - mean[k];
            sum += centered;
            squares += centered * centered;
        });
    }
};

template <bool Adds>
struct NormApply {
    static constexpr bool kSums = false;
    template <class Columns>
    static inline void run(const Columns &at) {
        using V = typename Columns::V;
        using L = typename Columns::L;
        const NormRows &w = at.work;
        const V mean = at.of_channels(w.mean, 0), factor = at.of_channels(w.factor, 0);
        const V shift = at.of_channels(w.shift, 0), low = L::all(w.low), high = L::all(w.high);
        std::int64_t offset = at.offset;
        for (std::int64_t row = 0; row < at.rows; ++row, offset += at.stride) {
            V value = Columns::normal(Columns::image(w.source, offset) - mean, factor, shift);
            if (Adds) value += Columns::image(w.other, offset);
            Columns::store(w.result, offset, L::smaller(high, L::larger(low, value)));
        }
    }
};

template <bool Masks>
struct NormSums {
    static constexpr bool kSums = true;
    template <class Columns>
    static inline void run(const Columns &at) {
        using V = typename Columns::V;
        const NormRows &w = at.work;
        V mean[Columns::kCount], factor[Columns::kCount] = {}, shift[Columns::kCount] = {};
        for (int k = 0; k < Columns::kCount; ++k) {
            mean[k] = at.of_channels(w.mean, k);
            if (Masks) factor[k] = at.of_channels(w.factor, k);
            if (Masks) shift[k] = at.of_channels(w.shift, k);
        }
        norm_sums(at, [&](int k, std::int64_t offset, V &sum, V &products) {
            const std::int64_t own = offset + k * Columns::kLanes;
            const V centered = Columns::image(w.source, own) - mean[k];
            V dy = Columns::image(w.other, own);
            if (Masks) {
                const V y = Columns::normal(centered, factor[k], shift[k]);
                dy = y > w.low ? (y < w.high ? dy : V{}) : V{};
            }
            sum += dy;
            products += dy * centered;
        });
    }
};

template <bool Masks>
struct NormGradient {
    static constexpr bool kSums = false;
    template <class Columns>
    static inline void run(const Columns &at) {
        using V = typename Columns::V;
        const NormRows &w = at.work;
        const V mean = at.of_channels(w.mean, 0), factor = at.of_channels(w.factor, 0);
        const V shift = Masks ? at.of_channels(w.shift, 0) : V{};
        const V slope = at.of_channels(w.slope, 0), rest = at.of_channels(w.rest, 0);
        std::int64_t offset = at.offset;
        for (std::int64_t row = 0; row < at.rows; ++row, offset += at.stride) {
            const V centered = Columns::image(w.source, offset) - mean;
            V dy = Columns::image(w.other, offset);
            if (Masks) {
                const V y = Columns::normal(centered, factor, shift);
                dy = y > w.low ? (y < w.high ? dy : V{}) : V{};
            }
            Columns::store(w.result, offset, dy * factor + (centered * slope + rest));
        }
    }
};

// The lanes behind whole vectors of N, in smaller ones.
template <class Body, class T, bool OfPixels, int N>
inline void norm_rest(const NormRows &work, std::int64_t at, std::int64_t offset,
                      std::int64_t rows) {
    const std::int64_t stride = work.stride, count = work.count;
    if constexpr (N > 4) {
        if (at + N / 2 <= count) {
            Body::run(
                NormColumns<T, N / 2, 1, N / 2, OfPixels>{work, at, offset + at, rows, stride});
            at += N / 2;
        }
        norm_rest<Body, T, OfPixels, N / 2>(work, at, offset, rows);
    } else if (count - at == 3) {
        Body::run(NormColumns<T, 4, 1, 3, OfPixels>{work, at, offset + at, rows, stride});
    } else if (count - at == 2) {
        Body::run(NormColumns<T, 4, 1, 2, OfPixels>{work, at, offset + at, rows, stride});
    } else if (count - at == 1) {
        Body::run(NormColumns<T, 4, 1, 1, OfPixels>{work, at, offset + at, rows, stride});
    }
}

template <class Body, class T, int N>
inline void norm_columns(const NormRows &work, std::int64_t offset, std::int64_t rows) {
    constexpr int kMost = 4;  // whose sums stay in registers, and whose lines follow one another
    std::int64_t at = 0;
    for (; Body::kSums && at + kMost * N <= work.count; at += kMost * N) {
        Body::run(NormColumns<T, N, kMost, N, false>{work, at, offset + at, rows, work.stride});
    }
    for (; at + N <= work.count; at += N) {
        Body::run(NormColumns<T, N, 1, N, false>{work, at, offset + at, rows, work.stride});
    }
    norm_rest<Body, T, false, N>(work, at, offset, rows);
}

template <class Body, class T, bool OfPixels, int N>
void norm_rows(const NormRows &work) {
    if constexpr (OfPixels) {
        std::int64_t at = 0;
        while (at + N <= work.count) {
            const std::int64_t left = (work.count - at) / N;
            const std::int64_t rows = left < kNormBlock ? left : kNormBlock;
            Body::run(NormColumns<T, N, 1, N, true>{work, 0, at, rows, N});
            at += rows * N;
        }
        norm_rest<Body, T, true, N>(work, at, 0, 1);
    } else {
        // Memory is read in order: of several columns, one row after the other where nothing is
        // kept in registers for the next row.
        const std::int64_t most = Body::kSums || work.count <= N ? kNormBlock : 1;
        for (std::int64_t row = 0; row < work.rows; row += most) {
            const std::int64_t left = work.rows - row;
            norm_columns<Body, T, N>(work, row * work.stride, left < most ? left : most);
        }
    }
}

template <class T, int N, bool OfPixels, bool Adds, bool Masks>
constexpr NormKernels kNormKernels = {
    norm_rows<NormMoments, T, OfPixels, N>,
    norm_rows<NormApply<Adds>, T, OfPixels, N>,
    norm_rows<NormSums<Masks>, T, OfPixels, N>,
    norm_rows<NormGradient<Masks>, T, OfPixels, N>,
};

template <class T, int N, bool OfPixels>
const NormKernels &find_norm_of(const NormKind &kind) {
    if (kind.adds) return kNormKernels<T, N, OfPixels, true, false>;
    return kind.masks ? kNormKernels<T, N, OfPixels, false, true>
                      : kNormKernels<T, N, OfPixels, false, false>;
}

template <class T, int N>
const NormKernels &find_norm_on(const NormKind &kind) {
    return kind.of_pixels ? find_norm_of<T, N, true>(kind) : find_norm_of<T, N, false>(kind);
}

template <int N>
const NormKernels &find_norm(const NormKind &kind) {
    return kind.is_half ? find_norm_on<Bfloat16, N>(kind) : find_norm_on<float, N>(kind);
}

}  // namespace
}  // namespace stridewise
