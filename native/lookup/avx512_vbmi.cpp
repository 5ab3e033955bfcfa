#include <immintrin.h>

#include "lookup/kernels.hpp"

namespace stridewise {

void vbmi_lookup(const std::uint8_t *table, const std::uint8_t *from, std::uint8_t *to,
                 std::int64_t count) {
    __m512i parts[4];
    for (int part = 0; part < 4; ++part) parts[part] = _mm512_loadu_si512(table + 64 * part);
    for (std::int64_t at = 0; at < count; at += 64) {
        const std::int64_t left = count - at;
        const __mmask64 mask = left >= 64 ? ~__mmask64{0} : (__mmask64{1} << left) - 1;
        const __m512i bytes = _mm512_maskz_loadu_epi8(mask, from + at);
        // Each permutation looks up 7 bits; the eighth selects one of the two.
        const __m512i low = _mm512_permutex2var_epi8(parts[0], bytes, parts[1]);
        const __m512i high = _mm512_permutex2var_epi8(parts[2], bytes, parts[3]);
        const __m512i found = _mm512_mask_blend_epi8(_mm512_movepi8_mask(bytes), low, high);
        _mm512_mask_storeu_epi8(to + at, mask, found);
    }
}

}  // namespace stridewise
