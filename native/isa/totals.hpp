// Sums of the lanes of a vector, for the files that are compiled for AVX2 or AVX-512.
#pragma once

#include <immintrin.h>

namespace stridewise {
namespace {

// The sum of one half and the other first, then of the halves of that.
inline float total_of(__m256 values) {
    __m128 sum = _mm_add_ps(_mm256_castps256_ps128(values), _mm256_extractf128_ps(values, 1));
    sum = _mm_add_ps(sum, _mm_movehl_ps(sum, sum));
    return _mm_cvtss_f32(_mm_add_ss(sum, _mm_movehdup_ps(sum)));
}

}  // namespace
}  // namespace stridewise
