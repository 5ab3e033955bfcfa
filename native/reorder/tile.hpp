// Tiles, the loops around them, and values that are derived from them once.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "reorder/kernels.hpp"
#include "support/errors.hpp"

namespace stridewise {

constexpr std::int64_t kCacheLine = 64;

// One loop. Strides are in elements.
struct ReorderLoop {
    std::int64_t extent, src, dst, scale;
};

// A tile and the loops around it. Counts and offsets are in elements. See Tile in
// src/stridewise/tensor/tiles.py.
struct ReorderTile {
    bool is_zero, is_runs;
    std::int64_t src, dst, scale;
    std::vector<ReorderLoop> loops;
    std::int64_t width, zeros, width_scale;
    std::vector<std::int64_t> rows, row_scales, columns, column_scales;
    // Derived from the fields above.
    bool by_columns = false;      // whether each column is finished before the next
    bool is_interleaved = false;  // whether chunks of columns are contiguous
    bool is_separated = false;    // whether chunks of rows of two columns are contiguous
    bool is_packed = false;       // whether chunks of rows are contiguous in the source
    bool is_aligned = false;      // whether columns or runs may be streamed
    bool is_paired = false;       // whether runs of eight elements come in pairs
    std::vector<std::int64_t> staged_columns{};  // starts of columns in a copy without gaps
    std::vector<std::int64_t> staged_rows{};     // starts of runs in the source
    std::vector<std::int64_t> staged{};  // starts of stretches of whole lines in the destination
    std::vector<std::int64_t> staged_from{};     // starts of the stretches in the copy
    std::int64_t stretch = 0;                    // bytes of a stretch
    std::vector<std::int64_t> converted_rows{};  // starts of rows in the scratch memory, in bytes
    std::vector<std::pair<std::size_t, std::int64_t>> spans{};  // spans of contiguous rows
};

// Offsets of one iteration of some loops, in bytes.
struct ReorderStep {
    std::int64_t src, dst;
};

// Limit of the loops of a nest: more than reorders between formats of at most 12 axes need.
constexpr std::size_t kMostLoops = 64;

// Tiles that share their outermost loops.
struct ReorderGroup {
    std::vector<ReorderLoop> loops;
    std::vector<ReorderTile> tiles;
    // Derived from the fields above.
    std::int64_t lookahead = 1;        // prefetch distance in iterations
    std::vector<ReorderLoop> outer{};  // all loops except the innermost ones
    std::vector<ReorderStep> steps{};  // all iterations of the innermost loops
};

// Element types; only their size if values are not converted.
struct ReorderTypes {
    std::int64_t src_itemsize, dst_itemsize;
    std::optional<std::pair<Element, Element>> conversion;
};

// One value per index along the axis of the scales, or a single one. All four have the same size.
struct ReorderScales {
    std::vector<float> src_zero, src_scale, dst_scale, dst_zero;
};

// Throw if a number of bytes or elements does not fit 64 bits.
inline std::int64_t checked_product(std::int64_t a, std::int64_t b) {
    std::int64_t result = 0;
    require(!__builtin_mul_overflow(a, b, &result), "reorder: an offset is out of range");
    return result;
}

inline std::int64_t checked_sum(std::int64_t a, std::int64_t b) {
    std::int64_t result = 0;
    require(!__builtin_add_overflow(a, b, &result), "reorder: an offset is out of range");
    return result;
}

// Returns the number of iterations of the innermost body of some loops.
std::int64_t rounds(const std::vector<ReorderLoop> &loops);

// Returns the index of the kernels for elements of 1, 2, 4, 8 and 16 bytes; -1 for other sizes.
int width_index(std::int64_t nbytes);

// Derives the values that a tile with tables in bytes needs in each iteration. Returns the bytes of
// scratch memory of the tile.
std::int64_t prepare_tile(ReorderTile &tile, const ReorderTypes &types, bool is_scaled);

// Returns the prefetch distance of a tile in iterations.
std::int64_t lookahead(const ReorderTile &tile, std::int64_t itemsize);

// Derives the steps of a group whose loops are in bytes.
void unroll(ReorderGroup &group);

}  // namespace stridewise
