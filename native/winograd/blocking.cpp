#include "winograd/blocking.hpp"

#include <algorithm>
#include <cmath>
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
// Threads that are busy, and rows of a product, below which places are shared out.
constexpr double kBusy = 0.85;
constexpr std::int64_t kFewestRows = 4;
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
        const bool blocks = b.share == WinogradShare::blocks;
        const std::int64_t pixels = slab_nbytes(b.tiles) * (blocks ? work.threads : 1);
        const std::int64_t pairs =
            b.share == WinogradShare::places ? work.pairs : work.threads * b.pairs;
        return work.window * (pixels + pairs * b.tiles * 2 * vector_nbytes());
    }

    // Of multiplying one panel of weights with so many tiles.
    double panel_cycles(std::int64_t tiles) const {
        const auto groups = static_cast<double>(ceil_div(tiles, work.rows));
        const double rows = std::max(static_cast<double>(tiles) / groups, kLatency);
        return static_cast<double>(channels()) * groups * rows;
    }

    // Where places are shared out: all threads transform, multiply and transform back together.
    double cycles_of_places(const WinogradBlocking &b) const {
        const auto turns = static_cast<double>(ceil_div(work.tiles, b.tiles));
        const auto window = static_cast<double>(work.window);
        const auto threads = static_cast<double>(work.threads);
        const double pairs = static_cast<double>(work.pairs);
        const double busy = partition_of(work, b).busy;
        const double multiply = window * pairs * panel_cycles(b.tiles) / threads / busy;
        const auto slab = static_cast<double>(slab_nbytes(b.tiles));
        const double products = window * pairs * static_cast<double>(b.tiles * 2 * vector_nbytes());
        const double passes = std::ceil(pairs / static_cast<double>(b.pairs));
        const double traffic = (window * slab * (kScatter.third + passes * kStream.third) +
                                products * (kStream.third + kScatter.third)) /
                               threads;
        const double weights = window * pairs * static_cast<double>(panel_nbytes());
        const double again = weights / threads * byte(kStream, weights / threads);
        return turns * (multiply + traffic + 3 * kBarrier) + weights * kStream.memory +
               (turns - 1) * again;
    }

    double byte(const Cost &cost, double nbytes) const {
        if (nbytes <= 0.75 * static_cast<double>(caches.second)) return cost.second;
        return nbytes <= 0.5 * static_cast<double>(caches.third) ? cost.third : cost.memory;
    }

    // Of the slowest thread: arithmetic and traffic one after the other.
    double cycles(const WinogradBlocking &b) const {
        const std::int64_t blocks = ceil_div(work.tiles, b.tiles);
        if (b.share == WinogradShare::places) return cycles_of_places(b);
        const bool outputs = b.share == WinogradShare::outputs;
        const std::int64_t turns = outputs ? blocks : ceil_div(blocks, work.threads);
        const std::int64_t pairs = outputs ? ceil_div(work.pairs, work.threads) : work.pairs;
        const auto window = static_cast<double>(work.window);
        const double multiply = window * static_cast<double>(pairs) * panel_cycles(b.tiles);

        const auto slab = static_cast<double>(slab_nbytes(b.tiles));
        const auto panels = static_cast<double>(b.pairs * panel_nbytes());
        const double products =
            window * static_cast<double>(b.tiles * b.pairs * 2 * vector_nbytes());
        const double block = window * slab;
        const auto passes = static_cast<double>(ceil_div(pairs, b.pairs));
        const double writers = outputs ? static_cast<double>(work.threads) : 1.0;
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
        const double barriers = outputs ? 2 * kBarrier : 0.0;
        const double turn = multiply + traffic;
        // Threads share out the passes of each turn, or the turns.
        const double items = outputs ? passes : static_cast<double>(turns);
        const double idle = work.threads > 1 ? turn * std::min(kUneven, 0.5 / items) : 0.0;
        return static_cast<double>(turns) * (turn + idle + barriers) + first + later;
    }
};

// The best way to share out places; `other` where none takes less time.
WinogradBlocking share_places(const Model &model, const WinogradBlocking &other) {
    const WinogradWork &work = model.work;
    WinogradBlocking best = other;
    double least = model.cycles(other);
    for (std::int64_t cuts = 1; cuts <= ceil_div(work.tiles, work.rows); cuts += 1 + cuts / 16) {
        const std::int64_t each = ceil_div(work.tiles, cuts), groups = ceil_div(each, work.rows);
        for (std::int64_t pairs = 1; pairs < 2 * work.pairs; pairs *= 2) {
            for (std::int64_t pieces = 1; pieces < 2 * groups; pieces *= 2) {
                const WinogradBlocking b{each, std::min(pairs, work.pairs), other.depth,
                                         WinogradShare::places, std::min(pieces, groups)};
                const double cycles = model.cycles(b);
                if (cycles < least && model.scratch_nbytes(b) <= model.caches.third / 2) {
                    least = cycles;
                    best = b;
                }
            }
        }
    }
    return best;
}

}  // namespace

WinogradPartition partition_of(const WinogradWork &work, const WinogradBlocking &b) {
    const std::int64_t blocks = ceil_div(work.tiles, b.tiles);
    const auto busy = [&](std::int64_t count, double most) {
        return static_cast<double>(count) / static_cast<double>(work.threads) / most;
    };
    const std::int64_t groups = ceil_div(b.tiles, work.rows);
    WinogradPartition found{};
    found.rows = b.tiles / groups;
    const std::int64_t panel =
        work.window * work.chunks * work.lanes * 2 * work.lanes * std::int64_t{sizeof(float)};
    if (b.share == WinogradShare::blocks) {
        // The last block may be smaller.
        const auto most = static_cast<double>(ceil_div(blocks, work.threads) * b.tiles);
        found.busy = busy(work.tiles, std::min(most, static_cast<double>(work.tiles)));
        found.weights_nbytes = work.pairs * panel;
    } else if (b.share == WinogradShare::outputs) {
        const std::int64_t most = ceil_div(work.pairs, work.threads);
        found.busy = busy(work.pairs, static_cast<double>(most));
        found.weights_nbytes = most * panel;
    } else {
        const std::int64_t items = work.window * ceil_div(work.pairs, b.pairs) * b.cuts;
        const double item =
            static_cast<double>(b.pairs) * static_cast<double>(ceil_div(groups, b.cuts));
        const auto most = static_cast<double>(ceil_div(items, work.threads)) * item;
        found.busy = busy(work.window * work.pairs * groups, most);
        const std::int64_t own = ceil_div(ceil_div(items, work.threads), b.cuts) * b.pairs;
        found.weights_nbytes = std::min((own + b.pairs) * panel / work.window, work.pairs * panel);
    }
    found.busy = std::min(found.busy, 1.0);
    return found;
}

WinogradBlocking choose_blocking(const WinogradWork &work, const Caches &caches) {
    const Model model{work, caches};
    const std::int64_t chunk = model.panel_nbytes() / work.chunks;
    const std::int64_t deepest = std::max<std::int64_t>(caches.first / kPanelShare / chunk, 1);
    const std::int64_t depth = ceil_div(work.chunks, ceil_div(work.chunks, deepest));
    WinogradBlocking best{std::min(work.tiles, work.rows), 1, depth, WinogradShare::blocks};
    double least = model.cycles(best);
    const auto consider = [&](const WinogradBlocking &b) {
        if (model.scratch_nbytes(b) > caches.third / 2) return;
        const double cycles = model.cycles(b);
        if (cycles < least) {
            least = cycles;
            best = b;
        }
    };
    for (const auto share : {WinogradShare::blocks, WinogradShare::outputs}) {
        const bool outputs = share == WinogradShare::outputs;
        if (outputs && (work.threads == 1 || work.pairs < work.threads)) continue;
        const std::int64_t tiles = outputs ? work.tiles : ceil_div(work.tiles, work.threads);
        const std::int64_t pairs = outputs ? ceil_div(work.pairs, work.threads) : work.pairs;
        // Neighbors among many cuts are as good as each other.
        for (std::int64_t cuts = 1; cuts <= ceil_div(tiles, work.rows); cuts += 1 + cuts / 16) {
            const std::int64_t each = ceil_div(tiles, cuts);
            if (each < kFewestRows && work.tiles >= kFewestRows * work.threads) break;
            for (std::int64_t kept = 1; kept < 2 * pairs; kept *= 2) {
                consider({each, std::min(kept, pairs), depth, share});
            }
        }
    }
    // A third barrier pays where the other ways leave threads idle, or short products for them.
    const WinogradPartition found = partition_of(work, best);
    if (work.threads > 1 && (found.busy < kBusy || found.rows < kFewestRows)) {
        best = share_places(model, best);
    }
    return best;
}

}  // namespace stridewise
