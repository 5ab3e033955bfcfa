// Tiles, the loops around them, and what is worked out of them once.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "reorder/kernels.hpp"
#include "support/errors.hpp"

namespace stridewise {

constexpr std::int64_t kCacheLine = 64;

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
    bool is_separated = false;    // whether rows of two columns follow one another, in chunks
    bool is_packed = false;       // whether rows follow one another in the source, in chunks
    bool is_aligned = false;      // whether columns, or runs, may be streamed
    bool is_paired = false;       // whether runs of eight elements come in pairs
    std::vector<std::int64_t> staged_columns{};  // where columns begin in a copy without gaps
    std::vector<std::int64_t> staged_rows{};     // of runs: where they begin in the source
    std::vector<std::int64_t> staged{};          // stretches of the destination, whole lines, ...
    std::vector<std::int64_t> staged_from{};     // ... and where they lie in that copy
    std::int64_t stretch = 0;                    // bytes of each
    std::vector<std::int64_t> converted_rows{};  // where rows begin in the scratch, in bytes
    std::vector<std::pair<std::size_t, std::int64_t>> spans{};  // rows that follow one another
};

// Where a round of some loops stands, in bytes.
struct ReorderStep {
    std::int64_t src, dst;
};

// Tiles that share their outermost loops.
// Loops of a nest: more than any two formats of at most 12 axes need.
constexpr std::size_t kMostLoops = 64;

struct ReorderGroup {
    std::vector<ReorderLoop> loops;
    std::vector<ReorderTile> tiles;
    // Worked out from the above.
    std::int64_t lookahead = 1;        // rounds that memory takes to answer
    std::vector<ReorderLoop> outer{};  // the loops but for the innermost ones, ...
    std::vector<ReorderStep> steps{};  // ... all rounds of which are these
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

// Throw where a number of bytes or elements leaves 64 bits.
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

// How often the innermost body of some loops runs.
std::int64_t rounds(const std::vector<ReorderLoop> &loops);

// Which of the kernels for elements of 1, 2, 4, 8 and 16 bytes; -1 for other sizes.
int width_index(std::int64_t nbytes);

// Works out what a tile, tables in bytes, needs to know at each of its rounds; returns the bytes of
// scratch that it writes before the destination.
std::int64_t prepare_tile(ReorderTile &tile, const ReorderTypes &types, bool is_scaled);

// How many rounds ahead of a tile its source is to be fetched.
std::int64_t lookahead(const ReorderTile &tile, std::int64_t itemsize);

// Works out the steps of a group whose loops are in bytes.
void unroll(ReorderGroup &group);

}  // namespace stridewise
