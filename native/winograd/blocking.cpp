#include "winograd/blocking.hpp"

#include <algorithm>
#include <initializer_list>

#include "support/images.hpp"

namespace stridewise {
namespace {

// Rough costs of a byte for one core, in cycles, by where the data lies that is walked again and
// again: what they tell apart differs by more than their errors. Panels and slabs are streams,
// which the processor fetches ahead; the transforms scatter to and gather from all places of the
// window.
struct Cost {
    double second, third, memory;
};
constexpr Cost kStream = {0.005, 0.05, 0.25}, kScatter = {0.05, 0.4, 0.6};
constexpr double kBarrier = 6000;
// Part of its time that a thread waits for one on a slower core, unless they share out their items.
constexpr double kUneven = 0.1;
// Products of fewer tiles wait for the results of multiplications, not for the multipliers.
constexpr double kLatency = 4;
// Which part of the first-level cache a panel of weights fills, beside the tiles.
constexpr std::int64_t kPanelShare = 2;

struct Model {
    const WinogradWork &work;
    const Caches &caches;

    std::int64_t vector_nbytes() const { return work.lanes * std::int64_t{sizeof(float)}; }
    std::int64_t channels() const { return work.chunks * work.lanes; }
    // Of one place of the window.
    std::int64_t slab_nbytes(std::int64_t tiles) const {
        return tiles * work.chunks * vector_nbytes();
    }
    std::int64_t panel_nbytes() const { return channels() * 2 * vector_nbytes(); }

    // Transformed pixels and products of all threads.
    std::int64_t scratch_nbytes(const WinogradBlocking &b) const {
        const std::int64_t pixels = slab_nbytes(b.tiles) * (b.share_outputs ? 1 : work.threads);
        return work.window * (pixels + work.threads * b.pairs * b.tiles * 2 * vector_nbytes());
    }

    double byte(const Cost &cost, double nbytes) const {
        if (nbytes <= 0.75 * static_cast<double>(caches.second)) return cost.second;
        return nbytes <= 0.5 * static_cast<double>(caches.third) ? cost.third : cost.memory;
    }

    // Of the slowest thread: arithmetic and traffic one after the other.
    double cycles(const WinogradBlocking &b) const {
        const std::int64_t blocks = ceil_div(work.tiles, b.tiles);
        const std::int64_t turns = b.share_outputs ? blocks : ceil_div(blocks, work.threads);
        const std::int64_t pairs =
            b.share_outputs ? ceil_div(work.pairs, work.threads) : work.pairs;
        const auto window = static_cast<double>(work.window);
        const auto groups = static_cast<double>(ceil_div(b.tiles, work.rows));
        const double rows = std::max(static_cast<double>(b.tiles) / groups, kLatency);
        const double multiply = window * static_cast<double>(pairs * channels()) * groups * rows;

        const auto slab = static_cast<double>(slab_nbytes(b.tiles));
        const auto panels = static_cast<double>(b.pairs * panel_nbytes());
        const double products =
            window * static_cast<double>(b.tiles * b.pairs * 2 * vector_nbytes());
        const double block = window * slab;
        const auto passes = static_cast<double>(ceil_div(pairs, b.pairs));
        const double writers = b.share_outputs ? static_cast<double>(work.threads) : 1.0;
        const double again = static_cast<double>(pairs) - passes;
        const double traffic = block * passes * byte(kStream, block + products) +
                               block * again * byte(kStream, slab + panels) +
                               block / writers * byte(kScatter, block) +
                               2 * products * passes * byte(kScatter, products + slab + panels);

        const double weights = window * static_cast<double>(pairs * panel_nbytes());
        const double all = window * static_cast<double>(work.pairs * panel_nbytes());
        // All cores share the memory; what another one has read comes from the third level.
        const double others = weights - all / static_cast<double>(work.threads);
        const double first = all * kStream.memory + others * kStream.third;
        const double later = weights * byte(kStream, all + block) * static_cast<double>(turns - 1);
        const double barriers = b.share_outputs ? 2 * kBarrier : 0.0;
        const double turn = multiply + traffic;
        // Threads share out the passes of each turn, or the turns.
        const double items = b.share_outputs ? passes : static_cast<double>(turns);
        const double idle = work.threads > 1 ? turn * std::min(kUneven, 0.5 / items) : 0.0;
        return static_cast<double>(turns) * (turn + idle + barriers) + first + later;
    }
};

}  // namespace

WinogradBlocking choose_blocking(const WinogradWork &work, const Caches &caches) {
    const Model model{work, caches};
    const std::int64_t chunk = model.panel_nbytes() / work.chunks;
    const std::int64_t deepest = std::max<std::int64_t>(caches.first / kPanelShare / chunk, 1);
    const std::int64_t depth = ceil_div(work.chunks, ceil_div(work.chunks, deepest));
    WinogradBlocking best{std::min(work.tiles, work.rows), 1, depth, false};
    double least = model.cycles(best);
    for (const bool share : {false, true}) {
        if (share && (work.threads == 1 || work.pairs < work.threads)) continue;
        const std::int64_t tiles = share ? work.tiles : ceil_div(work.tiles, work.threads);
        const std::int64_t pairs = share ? ceil_div(work.pairs, work.threads) : work.pairs;
        // Neighbors among many cuts are as good as each other.
        for (std::int64_t cuts = 1; cuts <= ceil_div(tiles, work.rows); cuts += 1 + cuts / 16) {
            const std::int64_t each = ceil_div(tiles, cuts);
            for (std::int64_t kept = 1; kept < 2 * pairs; kept *= 2) {
                const WinogradBlocking b{each, std::min(kept, pairs), depth, share};
                if (model.scratch_nbytes(b) > caches.third / 2) continue;
                const double cycles = model.cycles(b);
                if (cycles < least) {
                    least = cycles;
                    best = b;
                }
            }
        }
    }
    return best;
}

}  // namespace stridewise
