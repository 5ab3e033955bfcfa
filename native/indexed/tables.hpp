// Tables of indices, which a run computes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <string>

namespace stridewise {

// Returns the address of a table. Nothing may be read or written before all numbers are checked:
// those at 0, `step`, 2 `step`, ... lie from -rows to rows - 1. Throws std::out_of_range.
template <typename Index>
const Index *checked(const void *table, std::int64_t count, std::int64_t rows,
                     std::int64_t step = 1) {
    const auto *numbers = static_cast<const Index *>(table);
    Index least = 0, most = 0;
    for (std::int64_t k = 0; k < count; ++k) {
        least = std::min(least, numbers[k * step]);
        most = std::max(most, numbers[k * step]);
    }
    if (least < -rows || most >= rows) {
        throw std::out_of_range("expected indices from " + std::to_string(-rows) + " to " +
                                std::to_string(rows - 1) + ", found " +
                                std::to_string(most >= rows ? most : least));
    }
    return numbers;
}

}  // namespace stridewise
