// Checksums that are computed as fast as memory is read.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "onednn/memory.hpp"

namespace stridewise {

// XXH64 with a seed of 0, as https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md defines
// it. It finds damage and is no protection against anybody: equal sums are easy to make.
class Checksum {
  public:
    Checksum();
    // All parts but the last are multiples of kStripe long.
    void add(const std::byte *data, std::size_t nbytes);
    std::uint64_t value() const;

    static constexpr std::size_t kStripe = 32;

  private:
    std::array<std::uint64_t, 4> lanes_;
    std::size_t nbytes_ = 0;
    std::array<std::byte, kStripe> rest_{};
};

// Returns the checksum of a part of a buffer.
std::uint64_t checksum(const Buffer &buffer, std::size_t offset, std::size_t nbytes);

// Reads `nbytes` of a file, from `position` on, to `offset` of a buffer, and returns their
// checksum, which is computed while they are still in the cache. std::system_error where the system
// cannot read them, std::invalid_argument where the file ends before.
std::uint64_t read(Buffer &buffer, int descriptor, std::size_t position, std::size_t offset,
                   std::size_t nbytes);

}  // namespace stridewise
