// Runs that are contiguous on both sides, for AVX2.
#include "reorder/avx2.hpp"
#include "reorder/avx2_vectors.hpp"

namespace stridewise {
namespace {

template <bool kStream>
inline void copy_runs(const Runs &runs) {
    const std::int64_t vectors = runs.nbytes / 32 * 32, rest = runs.nbytes - vectors;
    // Long runs are a stream that the hardware prefetches by itself.
    const std::int64_t ahead = least(runs.nbytes, 2 * kLine);
    for (std::int64_t i = 0; i < runs.count; ++i) {
        const std::byte *src = runs.src + runs.from[i];
        std::byte *dst = runs.dst + runs.to[i];
        for (std::int64_t at = 0; at < ahead; at += kLine) prefetch(runs.next + runs.from[i] + at);
        if (vectors == 32) {
            copy_vectors<kStream>(src, dst, 32);
        } else if (vectors == 64) {
            copy_vectors<kStream>(src, dst, 64);
        } else {
            copy_vectors<kStream>(src, dst, vectors);
        }
        if (rest != 0) copy_short(src + vectors, dst + vectors, rest);
    }
}

// Runs of single elements. They are close together, so one prefetch fetches the line of several.
template <typename Word>
inline void copy_words(const Runs &runs) {
    constexpr std::int64_t kAtOnce = 8;
    const auto move = [&](std::int64_t i) {
        Word word;
        std::memcpy(&word, runs.src + runs.from[i], sizeof word);
        std::memcpy(runs.dst + runs.to[i], &word, sizeof word);
    };
    std::int64_t i = 0;
    for (; i + kAtOnce <= runs.count; i += kAtOnce) {
        prefetch(runs.next + runs.from[i]);
        for (std::int64_t j = i; j < i + kAtOnce; ++j) move(j);
    }
    for (; i < runs.count; ++i) move(i);
}

void copy(const Runs &runs) {
    if (runs.nbytes == 8) return copy_words<std::uint64_t>(runs);
    if (runs.nbytes == 4) return copy_words<std::uint32_t>(runs);
    if (runs.nbytes == 2) return copy_words<std::uint16_t>(runs);
    if (runs.nbytes == 1) return copy_words<std::uint8_t>(runs);
    bool aligned = reinterpret_cast<std::uintptr_t>(runs.dst) % 32 == 0;
    for (std::int64_t i = 0; runs.stream && i < runs.count; ++i) {
        aligned = aligned && runs.to[i] % 32 == 0;
    }
    if (runs.stream && aligned) {
        copy_runs<true>(runs);
    } else {
        copy_runs<false>(runs);
    }
}

void fence() {
    _mm_sfence();
}

}  // namespace

void add_avx2_copies(ReorderKernels &kernels) {
    kernels.copy = &copy;
    kernels.fence = &fence;
}

}  // namespace stridewise
