#include "depthwise/byte_lanes.hpp"
#include "isa/avx2.hpp"

namespace stridewise {

const ByteDepthwiseKernels &avx512_vnni_byte_depthwise(std::int64_t quads, std::int64_t phases,
                                                       bool is_float) {
    return byte_depthwise<4>(quads, phases, is_float);
}

}  // namespace stridewise
