// Conversions of adjacent elements and of float32 runs for AVX2.
#include "reorder/avx2.hpp"
#include "reorder/avx2_lanes.hpp"

namespace stridewise {
namespace {

template <typename From, typename To>
struct Each {
    static constexpr std::int64_t kStep = 16;
    static constexpr auto kFrom = static_cast<std::int64_t>(sizeof(typename From::Type));
    static constexpr auto kTo = static_cast<std::int64_t>(sizeof(typename To::Type));

    static __m256 parameter(const float *values, std::int64_t i, std::int64_t step) {
        return step == 0 ? _mm256_set1_ps(values[0]) : _mm256_loadu_ps(values + i);
    }
    static __m256 scaled(__m256 x, const Quantization &q, std::int64_t i, std::int64_t step) {
        x = _mm256_mul_ps(_mm256_sub_ps(x, parameter(q.src_zero, i, step)),
                          parameter(q.src_scale, i, step));
        x = _mm256_div_ps(x, parameter(q.dst_scale, i, step));
        if (To::kWhole) x = _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
        return _mm256_add_ps(x, parameter(q.dst_zero, i, step));
    }
    static void sixteen(const std::byte *src, std::byte *dst, std::int64_t i,
                        const Quantization *quantization, std::int64_t step) {
        __m256 low = Lanes<From>::load(src + i * kFrom);
        __m256 high = Lanes<From>::load(src + (i + 8) * kFrom);
        if (quantization != nullptr) {
            low = scaled(low, *quantization, i, step);
            high = scaled(high, *quantization, i + 8, step);
        }
        Lanes<To>::store(dst + i * kTo, low, high);
    }
    static void eight(const std::byte *src, std::byte *dst, std::int64_t i,
                      const Quantization *quantization, std::int64_t step) {
        __m256 x = Lanes<From>::load(src + i * kFrom);
        if (quantization != nullptr) x = scaled(x, *quantization, i, step);
        Lanes<To>::store_eight(dst + i * kTo, x);
    }
    static void run(const std::byte *src, std::byte *dst, std::int64_t count,
                    const Quantization *quantization, std::int64_t step) {
        if (count < kStep / 2) {
            for (std::int64_t i = 0; i < count; ++i) {
                convert_one<From, To>(src, dst, i, quantization, step);
            }
            return;
        }
        if (count < kStep) {
            // The last eight overlap the first.
            eight(src, dst, 0, quantization, step);
            eight(src, dst, count - kStep / 2, quantization, step);
            return;
        }
        std::int64_t i = 0;
        for (; i + kStep <= count; i += kStep) sixteen(src, dst, i, quantization, step);
        // The last ones overlap those before them.
        if (i < count) sixteen(src, dst, count - kStep, quantization, step);
    }
};

template <typename To, bool kStream>
inline void convert_sixteen(const std::byte *low, const std::byte *high, std::byte *dst) {
    Lanes<To>::Vector::template put<kStream>(
        dst, Lanes<To>::packed(Lanes<F32>::load(low), Lanes<F32>::load(high)));
}

// Runs of eight elements, two at a time.
template <typename To>
inline void convert_eights(const Runs &runs) {
    constexpr auto kHalf = 8 * static_cast<std::int64_t>(sizeof(typename To::Type));
    std::byte unused[kHalf];
    for (std::int64_t i = 0; i < runs.count; i += 2) {
        const bool is_last = i + 1 == runs.count;
        const std::byte *low = runs.src + runs.from[i];
        const std::byte *high = is_last ? low : runs.src + runs.from[i + 1];
        prefetch(runs.next + runs.from[i]);
        if (!is_last) prefetch(runs.next + runs.from[i + 1]);
        split_vector(runs.dst + runs.to[i], is_last ? unused : runs.dst + runs.to[i + 1],
                     Lanes<To>::packed(Lanes<F32>::load(low), Lanes<F32>::load(high)));
    }
}

template <typename To, bool kStream>
inline void convert_runs(const ConvertedRuns &job) {
    constexpr auto kTo = static_cast<std::int64_t>(sizeof(typename To::Type));
    const Runs &runs = job.runs;
    const std::int64_t width = runs.nbytes / kTo;
    if (job.is_paired) {
        for (std::int64_t i = 0; i + 2 <= runs.count; i += 2) {
            prefetch(runs.next + runs.from[i]);
            prefetch(runs.next + runs.from[i + 1]);
            convert_sixteen<To, kStream>(runs.src + runs.from[i], runs.src + runs.from[i + 1],
                                         runs.dst + runs.to[i]);
        }
        return;
    }
    if (width == 8) return convert_eights<To>(runs);
    for (std::int64_t i = 0; i < runs.count; ++i) {
        const std::byte *src = runs.src + runs.from[i], *next = runs.next + runs.from[i];
        std::byte *dst = runs.dst + runs.to[i];
        for (std::int64_t at = 0; at + 16 <= width; at += 16) {
            prefetch(next + 4 * at);
            convert_sixteen<To, kStream>(src + 4 * at, src + 4 * at + 32, dst + at * kTo);
        }
        if (width % 16 != 0) {
            // The last sixteen overlap those before them.
            const std::int64_t at = width - 16;
            convert_sixteen<To, false>(src + 4 * at, src + 4 * at + 32, dst + at * kTo);
        }
    }
}

template <typename To>
void convert_f32(const ConvertedRuns &job) {
    job.runs.stream ? convert_runs<To, true>(job) : convert_runs<To, false>(job);
}

}  // namespace

void add_avx2_conversions(ReorderKernels &kernels) {
    fill_conversions<Each>(kernels.convert);
    kernels.convert_f32[static_cast<int>(Element::f16)] = &convert_f32<F16>;
    kernels.convert_f32[static_cast<int>(Element::bf16)] = &convert_f32<Bf16>;
    kernels.convert_f32[static_cast<int>(Element::s8)] = &convert_f32<S8>;
    kernels.convert_f32[static_cast<int>(Element::u8)] = &convert_f32<U8>;
}

}  // namespace stridewise
