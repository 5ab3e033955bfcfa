// The inner loop of lookups, once for each instruction set.
#pragma once

#include <cstdint>

namespace stridewise {

// The result may overwrite the source.
void portable_lookup(const std::uint8_t *table, const std::uint8_t *from, std::uint8_t *to,
                     std::int64_t count);
#ifdef STRIDEWISE_AVX2
void vbmi_lookup(const std::uint8_t *table, const std::uint8_t *from, std::uint8_t *to,
                 std::int64_t count);
#endif

}  // namespace stridewise
