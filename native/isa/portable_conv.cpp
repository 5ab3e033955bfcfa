#include "conv_int8/lanes.hpp"
#include "isa/portable.hpp"

namespace stridewise {
namespace {

// Words of four bytes.
struct PortableQuads {
    static constexpr int kLanes = 16, kNumbers = 4, kPixels = 2;
    using L = Lanes<kLanes>;
    using V = typename L::V;
    using Integers = typename VectorOf<kLanes>::Mask;

    static inline Integers spread(const std::uint8_t *from) {
        std::int32_t quad;
        __builtin_memcpy(&quad, from, sizeof quad);
        return quad - Integers{};
    }

    static inline Integers weights(const std::uint8_t *from) {
        Integers value;
        __builtin_memcpy(&value, from, sizeof value);
        return value;
    }

    static inline Integers add_products(Integers sum, Integers bytes, Integers weights) {
        using Words = typename VectorOf<kLanes>::Words;
        for (int at = 0; at < 4; ++at) {
            const Integers byte = (bytes >> (8 * at)) & 0xFF;
            const auto high = reinterpret_cast<Words>(weights) << (24 - 8 * at);
            sum += byte * (reinterpret_cast<Integers>(high) >> 24);
        }
        return sum;
    }

    static inline V widen(const std::uint8_t *from, std::int64_t count, bool is_signed) {
        V value{};
        for (int lane = 0; lane < kLanes && lane < count; ++lane) {
            const int byte = from[lane];
            value[lane] = static_cast<float>(is_signed && byte > 127 ? byte - 256 : byte);
        }
        return value;
    }

    template <int Vectors>
    static inline void narrow(const V *values, const ByteBounds &bounds, std::uint8_t *to,
                              std::int64_t pixel, std::int64_t count, std::int64_t outputs) {
        constexpr float kMost = 4096.0F;  // beyond all integers and offsets
        const int least = bounds.low[0], most = bounds.high[0];
        for (std::int64_t k = 0; k < 4 / Vectors && k < count; ++k, to += pixel) {
            for (std::int64_t at = 0; at < outputs; ++at) {
                const V &vector = values[k * Vectors + at / kLanes];
                const float x = L::whole(vector)[at % kLanes];
                const float near = x < kMost ? (x > -kMost ? x : -kMost) : kMost;
                const int found = static_cast<int>(near) + bounds.offset[0];
                const int bound = found > least ? found : least;
                to[at] = static_cast<std::uint8_t>((bound < most ? bound : most) ^ bounds.flip[0]);
            }
        }
    }
};

}  // namespace

const ByteConvKernels &portable_byte_conv() {
    return kByteConv<PortableQuads>;
}

}  // namespace stridewise
