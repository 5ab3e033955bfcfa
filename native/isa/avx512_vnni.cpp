#include "depthwise/byte_lanes.hpp"
#include "isa/avx2.hpp"

namespace stridewise {
namespace {

// 2^x = 2^n 2^(x - n), with n the nearest whole number. Bounded, so that sums with it have
// approximate inverses.
template <>
inline Lanes<8>::V Lanes<8>::power_of_two(V x) {
    x = smaller(all(126.0F), larger(all(-126.0F), x));
    const V n = whole(x);
    return _mm256_scalef_ps(near_power_of_two<8>(x - n), n);
}

// An approximate inverse of 14 bits, and a step of Newton's method, which doubles them.
template <>
inline Lanes<8>::V Lanes<8>::quotient(V a, V b) {
    const V inverse = _mm256_rcp14_ps(b);
    return a * (inverse + inverse * (1.0F - b * inverse));
}

// Without a step of Newton's method, infinity has an inverse, too.
template <>
inline Lanes<8>::V Lanes<8>::coarse_swish(V x, V alpha) {
    const V exponent = x * (alpha * -kLog2e), n = whole(exponent);
    const V power = _mm256_scalef_ps(coarse_power_of_two<8>(exponent - n), n);
    return x * _mm256_rcp14_ps(1.0F + power);
}

}  // namespace

const ByteDepthwiseKernels &avx512_vnni_byte_depthwise(std::int64_t quads, std::int64_t phases,
                                                       bool is_float) {
    return byte_depthwise<4>(quads, phases, is_float);
}

}  // namespace stridewise
