// Runs reorders that Python has planned: groups of loop nests around small tiles.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "reorder_kernels.hpp"

namespace stridewise {

// One loop; strides in elements.
struct ReorderLoop {
    std::int64_t extent, src, dst, scale;
};

// A tile and the loops around it, counts and offsets in elements. See Tile in
// src/stridewise/tensor/tiles.py.
struct ReorderTile {
    bool is_zero, is_runs;
    std::int64_t src, dst, scale;
    std::vector<ReorderLoop> loops;
    std::int64_t width, zeros, width_scale;
    std::vector<std::int64_t> rows, row_scales, columns, column_scales;
    // Worked out from the above.
    bool by_columns = false;      // whether columns are finished one by one
    bool is_interleaved = false;  // whether columns follow one another, in chunks
    bool is_packed = false;       // whether rows follow one another in the source, in chunks
    bool is_aligned = false;      // whether columns, or runs, may be streamed
    bool is_paired = false;       // whether runs of eight elements come in pairs
    std::vector<std::int64_t> staged_columns{};  // where columns begin in a copy without gaps
    std::vector<std::int64_t> staged{};          // stretches of the destination, whole lines, ...
    std::vector<std::int64_t> staged_from{};     // ... and where they lie in that copy
    std::int64_t stretch = 0;                    // bytes of each
    std::vector<std::int64_t> converted_rows{};  // where rows begin in the scratch, in bytes
    std::vector<std::pair<std::size_t, std::int64_t>> spans{};  // rows that follow one another
};

// Tiles that share their outermost loops.
struct ReorderGroup {
    std::vector<ReorderLoop> loops;
    std::vector<ReorderTile> tiles;
    std::int64_t lookahead = 1;  // rounds; worked out from the tiles
};

// Element types, or, where values stay what they are, their size alone.
struct ReorderTypes {
    std::int64_t src_itemsize, dst_itemsize;
    std::optional<std::pair<Element, Element>> conversion;
};

// One value for each index along the axis of the scales, or one alone; all four of one size.
struct ReorderScales {
    std::vector<float> src_zero, src_scale, dst_scale, dst_zero;
};

class Reorder {
  public:
    // `fill_nbytes` of the destination are zeroed first. Throws std::invalid_argument where a loop
    // would leave the given sizes in bytes.
    Reorder(std::vector<ReorderGroup> groups, const ReorderTypes &types, ReorderScales scales,
            std::int64_t src_nbytes, std::int64_t dst_nbytes, std::int64_t fill_nbytes,
            const std::string &isa);

    // Both point to the first element; the ranges do not overlap. `stream` writes past the caches.
    void run(const void *src, void *dst, int threads, bool stream) const;

    std::int64_t src_nbytes() const { return src_nbytes_; }
    std::int64_t dst_nbytes() const { return dst_nbytes_; }

  private:
    struct Worker;
    void run_part(const std::byte *src, std::byte *dst, int part, int parts, bool stream) const;
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
