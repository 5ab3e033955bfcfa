#include "conv_int8/lanes.hpp"
#include "isa/avx512.hpp"

namespace stridewise {
namespace {

// 2^x = 2^n 2^(x - n), with n the nearest whole number. Bounded, so that sums with it have
// approximate inverses.
template <>
inline Lanes<16>::V Lanes<16>::power_of_two(V x) {
    x = smaller(all(126.0F), larger(all(-126.0F), x));
    const V n = whole(x);
    return _mm512_maskz_scalef_ps(kAll, near_power_of_two<16>(x - n), n);
}

// An approximate inverse of 14 bits, and a step of Newton's method, which doubles them.
template <>
inline Lanes<16>::V Lanes<16>::quotient(V a, V b) {
    const V inverse = _mm512_maskz_rcp14_ps(kAll, b);
    return a * (inverse + inverse * (1.0F - b * inverse));
}

// Without a step of Newton's method, infinity has an inverse, too.
template <>
inline Lanes<16>::V Lanes<16>::coarse_swish(V x, V alpha) {
    const V exponent = x * (alpha * -kLog2e), n = whole(exponent);
    const V power = _mm512_maskz_scalef_ps(kAll, coarse_power_of_two<16>(exponent - n), n);
    return x * _mm512_maskz_rcp14_ps(kAll, 1.0F + power);
}

// Words of four bytes.
struct VnniQuads {
    static constexpr int kLanes = 16, kNumbers = 4, kPixels = 14;
    using V = Lanes<kLanes>::V;
    using Integers = VectorOf<kLanes>::Mask;

    static inline Integers spread(const std::uint8_t *from) {
        std::int32_t quad;
        __builtin_memcpy(&quad, from, sizeof quad);
        return reinterpret_cast<Integers>(_mm512_set1_epi32(quad));
    }

    static inline Integers weights(const std::uint8_t *from) {
        return reinterpret_cast<Integers>(_mm512_loadu_si512(from));
    }

    static inline Integers add_products(Integers sum, Integers bytes, Integers weights) {
        return reinterpret_cast<Integers>(_mm512_dpbusd_epi32(reinterpret_cast<__m512i>(sum),
                                                              reinterpret_cast<__m512i>(bytes),
                                                              reinterpret_cast<__m512i>(weights)));
    }

    static inline V widen(const std::uint8_t *from, std::int64_t count, bool is_signed) {
        const __m128i bytes = _mm_maskz_loadu_epi8(first_lanes(count), from);
        const __m512i whole = is_signed ? _mm512_maskz_cvtepi8_epi32(kAll, bytes)
                                        : _mm512_maskz_cvtepu8_epi32(kAll, bytes);
        return _mm512_maskz_cvtepi32_ps(kAll, whole);
    }

    // Packing within quarters of a vector gives each quarter bytes of all four vectors.
    template <int Vectors>
    static inline void narrow(const V *values, const ByteBounds &bounds, std::uint8_t *to,
                              std::int64_t pixel, std::int64_t count, std::int64_t outputs) {
        const auto twice = [](const void *from) {
            const __m256i half = _mm256_loadu_si256(static_cast<const __m256i_u *>(from));
            return _mm512_maskz_broadcast_i64x4(0xFF, half);
        };
        __m512i whole[4];
        for (int i = 0; i < 4; ++i) {
            // Greater ones would become the least integer.
            const __m512 bound = _mm512_maskz_min_ps(kAll, values[i], _mm512_set1_ps(1e9F));
            whole[i] = _mm512_maskz_cvtps_epi32(kAll, bound);
        }
        const __m512i offset = twice(bounds.offset);
        const __m512i a = _mm512_adds_epi16(_mm512_packs_epi32(whole[0], whole[1]), offset);
        const __m512i b = _mm512_adds_epi16(_mm512_packs_epi32(whole[2], whole[3]), offset);
        const __m512i least = _mm512_max_epu8(_mm512_packus_epi16(a, b), twice(bounds.low));
        const __m512i mixed =
            _mm512_xor_si512(_mm512_min_epu8(least, twice(bounds.high)), twice(bounds.flip));
        const __m512i order =
            _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
        const __m512i found = _mm512_maskz_permutexvar_epi32(kAll, order, mixed);
        if constexpr (Vectors == 2) {
            const __m256i halves[2] = {_mm512_maskz_extracti64x4_epi64(0xF, found, 0),
                                       _mm512_maskz_extracti64x4_epi64(0xF, found, 1)};
            for (int k = 0; k < 2 && k < count; ++k, to += pixel) {
                if (outputs >= 2 * kLanes) {
                    _mm256_storeu_si256(reinterpret_cast<__m256i_u *>(to), halves[k]);
                } else {
                    _mm256_mask_storeu_epi8(to, (1U << outputs) - 1, halves[k]);
                }
            }
            return;
        }
        std::uint8_t copy[4 * kLanes];
        _mm512_storeu_si512(copy, found);
        for (int k = 0; k < 4 && k < count; ++k, to += pixel) {
            const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i_u *>(copy) + k);
            _mm_mask_storeu_epi8(to, first_lanes(outputs), bytes);
        }
    }
};

}  // namespace

const ByteConvKernels &avx512_vnni_byte_conv() {
    return kByteConv<VnniQuads>;
}

}  // namespace stridewise
