#include "conv_int8/lanes.hpp"
#include "isa/avx2.hpp"

namespace stridewise {
namespace {

// Words of two numbers of 16 bits: instructions that multiply four bytes saturate sums of two
// products at 16 bits.
struct Pairs {
    static constexpr int kLanes = 8, kNumbers = 2, kPixels = 6;
    using V = Lanes<kLanes>::V;
    using Integers = VectorOf<kLanes>::Mask;

    static inline Integers spread(const std::uint8_t *from) {
        std::int32_t pair;
        __builtin_memcpy(&pair, from, sizeof pair);
        return reinterpret_cast<Integers>(_mm256_set1_epi32(pair));
    }

    static inline Integers weights(const std::uint8_t *from) {
        const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i_u *>(from));
        return reinterpret_cast<Integers>(_mm256_cvtepi8_epi16(bytes));
    }

    static inline Integers add_products(Integers sum, Integers pair, Integers weights) {
        return sum + reinterpret_cast<Integers>(_mm256_madd_epi16(
                         reinterpret_cast<__m256i>(pair), reinterpret_cast<__m256i>(weights)));
    }

    static inline V widen(const std::uint8_t *from, std::int64_t count, bool is_signed) {
        __m128i bytes;
        if (count >= kLanes) {
            bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i_u *>(from));
        } else {
            std::uint64_t some = 0;
            for (std::int64_t at = 0; at < count; ++at) {
                some |= static_cast<std::uint64_t>(from[at]) << (8 * at);
            }
            bytes = _mm_cvtsi64_si128(static_cast<long long>(some));
        }
        return _mm256_cvtepi32_ps(is_signed ? _mm256_cvtepi8_epi32(bytes)
                                            : _mm256_cvtepu8_epi32(bytes));
    }

    // Packing within halves of a vector gives each half bytes of all four vectors.
    template <int Vectors>
    static inline void narrow(const V *values, const ByteBounds &bounds, std::uint8_t *to,
                              std::int64_t pixel, std::int64_t count, std::int64_t outputs) {
        constexpr int kBytes = Vectors * kLanes;  // of a pixel
        std::uint8_t copy[4 * kLanes];
        ByteGroup::narrow(values, bounds, copy, kGroup);
        const auto mixed = _mm256_loadu_si256(reinterpret_cast<const __m256i_u *>(copy));
        const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
        const __m256i found = _mm256_permutevar8x32_epi32(mixed, order);
        const __m128i halves[2] = {_mm256_castsi256_si128(found),
                                   _mm256_extracti128_si256(found, 1)};
        for (int k = 0; k < 4 / Vectors && k < count; ++k, to += pixel) {
            const __m128i half = halves[k * kBytes / 16];
            const __m128i bytes = k * kBytes % 16 == 0 ? half : _mm_srli_si128(half, 8);
            if (outputs >= kBytes) {
                __builtin_memcpy(to, &bytes, kBytes);
            } else {
                __builtin_memcpy(copy, &bytes, kBytes);
                for (std::int64_t at = 0; at < outputs; ++at) to[at] = copy[at];
            }
        }
    }
};

}  // namespace

const ByteConvKernels &avx2_byte_conv() {
    return kByteConv<Pairs>;
}

}  // namespace stridewise
