// Runs reorders that Python has planned: groups of loop nests around small tiles.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "reorder/tile.hpp"

namespace stridewise {

class Reorder {
  public:
    // `fill_nbytes` of the destination are zeroed first. Throws std::invalid_argument where a loop
    // would leave the given sizes in bytes.
    Reorder(std::vector<ReorderGroup> groups, const ReorderTypes &types, ReorderScales scales,
            std::int64_t src_nbytes, std::int64_t dst_nbytes, std::int64_t fill_nbytes,
            const std::string &isa);

    // Both point to the first element; the ranges do not overlap. `stream` writes past the caches.
    void run(const void *src, void *dst, int threads, bool stream) const;
    // The same with scratch_nbytes(threads) of scratch that the caller has.
    void run(const void *src, void *dst, int threads, bool stream, std::byte *scratch) const;
    std::size_t scratch_nbytes(int threads) const {
        return own_nbytes() * static_cast<std::size_t>(threads);
    }

    std::int64_t src_nbytes() const { return src_nbytes_; }
    std::int64_t dst_nbytes() const { return dst_nbytes_; }

  private:
    void run_part(const std::byte *src, std::byte *dst, int part, int parts, bool stream,
                  std::byte *scratch) const;
    // Of one thread: whole cache lines.
    std::size_t own_nbytes() const { return (scratch_nbytes_ / 64 + 1) * 64; }
    void check(const ReorderTile &tile, const std::vector<ReorderLoop> &around) const;

    std::vector<ReorderGroup> groups_;  // offsets in bytes, those of scales in elements
    ReorderTypes types_;
    ReorderScales scales_;
    std::int64_t src_nbytes_, dst_nbytes_, fill_nbytes_;
    std::size_t scratch_nbytes_ = 0;
    const ReorderKernels *kernels_;
};

// Names of the instruction sets that this build and this processor have, best first.
std::vector<std::string> reorder_isas();

}  // namespace stridewise
