#include "reorder/tile.hpp"

#include <algorithm>
#include <numeric>

namespace stridewise {
namespace {

constexpr std::int64_t kVector = 16;
// Longer runs are converted directly into the destination, without scratch memory.
constexpr std::int64_t kLongRun = 1024;

// Whether offsets advance by `step` within each group of `size`.
bool in_chunks(const std::vector<std::int64_t> &offsets, std::int64_t size, std::int64_t step) {
    if (size < 2 || offsets.size() % static_cast<std::size_t>(size) != 0) return false;
    for (std::size_t i = 0; i < offsets.size(); ++i) {
        const auto place = static_cast<std::int64_t>(i) % size;
        if (place != 0 && offsets[i] != offsets[i - 1] + step) return false;
    }
    return true;
}

// Whether columns of `nbytes` fill whole cache lines, alone or with adjacent columns.
bool fills_lines(const std::vector<std::int64_t> &columns, std::int64_t nbytes) {
    const bool alone = nbytes % kCacheLine == 0;
    if (!alone && nbytes != kVector && nbytes != 2 * kVector) return false;
    const std::int64_t together = alone ? 1 : kCacheLine / nbytes;
    if (!alone && !in_chunks(columns, together, nbytes)) return false;
    for (std::size_t i = 0; i < columns.size(); i += static_cast<std::size_t>(together)) {
        if (columns[i] % kCacheLine != 0) return false;
    }
    return true;
}

// Prepares streaming stores for a tile whose columns fill cache lines only together: the tile is
// written to a copy without gaps, which is then streamed stretch by stretch. Returns the bytes of
// the copy, or 0 if a stretch is not a whole number of lines.
std::int64_t stage(ReorderTile &tile, std::int64_t nbytes) {
    std::vector<std::size_t> order(tile.columns.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::sort(order.begin(), order.end(),
              [&](std::size_t a, std::size_t b) { return tile.columns[a] < tile.columns[b]; });
    tile.staged_columns.resize(order.size());
    std::int64_t end = -1;
    for (std::size_t k = 0; k < order.size(); ++k) {
        const std::int64_t at = tile.columns[order[k]];
        const auto staged = static_cast<std::int64_t>(k) * nbytes;
        if (at != end) {
            tile.staged.push_back(at);
            tile.staged_from.push_back(staged);
        }
        tile.staged_columns[order[k]] = staged;
        end = at + nbytes;
    }
    const std::int64_t total = static_cast<std::int64_t>(order.size()) * nbytes;
    tile.stretch = total / static_cast<std::int64_t>(tile.staged.size());
    bool is_even = tile.stretch % kCacheLine == 0;
    for (std::size_t i = 0; i < tile.staged.size(); ++i) {
        is_even = is_even && tile.staged[i] % kCacheLine == 0 &&
                  tile.staged_from[i] == static_cast<std::int64_t>(i) * tile.stretch;
    }
    if (is_even) return total;
    tile.staged_columns.clear();
    return 0;
}

// The same for runs. They are taken in the order of the source, because the copy may be written in
// any order.
std::int64_t stage_runs(ReorderTile &tile, std::int64_t nbytes) {
    if (tile.zeros != 0 || nbytes >= kCacheLine) return 0;
    const std::int64_t staged = stage(tile, nbytes);
    if (staged == 0) return 0;
    std::vector<std::size_t> order(tile.rows.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    if (!tile.is_paired) {
        std::sort(order.begin(), order.end(),
                  [&](std::size_t a, std::size_t b) { return tile.rows[a] < tile.rows[b]; });
    }
    const std::vector<std::int64_t> columns = tile.staged_columns;
    for (std::size_t i = 0; i < order.size(); ++i) {
        tile.staged_rows.push_back(tile.rows[order[i]]);
        tile.staged_columns[i] = columns[order[i]];
    }
    return staged;
}

// Determines whether converted runs may be streamed, sixteen elements at a time.
void pair(ReorderTile &tile, std::int64_t itemsize) {
    tile.is_paired = tile.width == 8 && in_chunks(tile.columns, 2, 8 * itemsize);
    const std::size_t step = tile.is_paired ? 2 : 1;
    tile.is_aligned = tile.is_paired || tile.width % 16 == 0;
    for (std::size_t i = 0; i < tile.columns.size(); i += step) {
        tile.is_aligned = tile.is_aligned && tile.columns[i] % (16 * itemsize) == 0;
    }
}

}  // namespace

std::int64_t prepare_tile(ReorderTile &tile, const ReorderTypes &types, bool is_scaled) {
    const auto rows = static_cast<std::int64_t>(tile.rows.size());
    const auto columns = static_cast<std::int64_t>(tile.columns.size());
    const std::int64_t width = tile.width * types.dst_itemsize;
    const std::int64_t row = tile.is_runs ? width : columns * width;
    std::int64_t staged = 0;
    if (!tile.is_runs) {
        tile.is_aligned = fills_lines(tile.columns, (rows + tile.zeros) * width);
        // Longer stretches are accessed on the side that is scattered in memory.
        tile.is_interleaved = rows >= 2 && rows <= 4 && tile.zeros == 0 &&
                              in_chunks(tile.columns, kVector / width, rows * width);
        tile.is_separated = !types.conversion && columns == 2 && rows >= kVector / width &&
                            tile.zeros == 0 &&
                            in_chunks(tile.rows, kVector / width, columns * width);
        tile.by_columns = rows < 2 || (columns > 1 && tile.columns[1] > tile.rows[1]);
        tile.is_packed = in_chunks(tile.rows, 16, columns * tile.width * types.src_itemsize);
        staged = stage(tile, (rows + tile.zeros) * width);
    } else {
        pair(tile, types.dst_itemsize);
        if (types.conversion) staged = stage_runs(tile, width);
    }
    if (!types.conversion || (tile.is_runs && row > kLongRun)) return staged;
    // In the order of the source, so that adjacent elements are converted together.
    std::vector<std::size_t> order(tile.rows.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    if (!tile.is_runs) {
        std::stable_sort(order.begin(), order.end(),
                         [&](std::size_t a, std::size_t b) { return tile.rows[a] < tile.rows[b]; });
    }
    const std::int64_t pitch = columns * tile.width * types.src_itemsize;
    tile.converted_rows.resize(order.size());
    for (std::size_t k = 0; k < order.size(); ++k) {
        const std::int64_t from = tile.rows[order[k]];
        tile.converted_rows[order[k]] = staged + static_cast<std::int64_t>(k) * row;
        if (k > 0 && !is_scaled && from == tile.rows[order[k - 1]] + pitch) {
            ++tile.spans.back().second;
        } else {
            tile.spans.emplace_back(order[k], 1);
        }
    }
    return checked_sum(staged, checked_product(rows, row));
}

std::int64_t lookahead(const ReorderTile &tile, std::int64_t itemsize) {
    constexpr std::int64_t kInFlight = 4096;
    const auto columns = static_cast<std::int64_t>(tile.is_runs ? 1 : tile.columns.size());
    const auto rows = static_cast<std::int64_t>(tile.rows.size());
    const std::int64_t nbytes = checked_product(rows * columns, tile.width * itemsize);
    return std::max<std::int64_t>(1, std::min<std::int64_t>(32, kInFlight / nbytes));
}

void unroll(ReorderGroup &group) {
    constexpr std::int64_t kMostSteps = 256;  // small enough to stay in the cache beside the tiles
    group.outer = group.loops;
    group.steps = {{0, 0}};
    while (!group.outer.empty()) {
        const ReorderLoop loop = group.outer.back();
        const auto count = static_cast<std::int64_t>(group.steps.size());
        if (loop.extent > kMostSteps / count) return;
        group.outer.pop_back();
        for (std::int64_t i = 1; i < loop.extent; ++i) {
            for (std::int64_t k = 0; k < count; ++k) {
                const ReorderStep step = group.steps[static_cast<std::size_t>(k)];
                group.steps.push_back({step.src + i * loop.src, step.dst + i * loop.dst});
            }
        }
    }
}

std::int64_t rounds(const std::vector<ReorderLoop> &loops) {
    std::int64_t found = 1;
    for (const auto &loop : loops) found = checked_product(found, loop.extent);
    return found;
}

int width_index(std::int64_t nbytes) {
    for (int index = 0; index < kWidths; ++index) {
        if (nbytes == std::int64_t{1} << index) return index;
    }
    return -1;
}

}  // namespace stridewise
