// Checksums at memory speed.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "onednn/memory.hpp"

namespace stridewise {

// XXH64 with a seed of 0, as https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md defines
// it. It detects corruption, not tampering.
class Checksum {
  public:
    Checksum();
    // The size of every part except the last must be a multiple of kStripe.
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

// Reads `nbytes` of a file from `position` on to `offset` of a buffer, and returns their checksum,
// which is computed while the data is in the cache. Throws std::system_error if reading fails, and
// std::invalid_argument if the file is too short.
std::uint64_t read(Buffer &buffer, int descriptor, std::size_t position, std::size_t offset,
                   std::size_t nbytes);

}  // namespace stridewise
