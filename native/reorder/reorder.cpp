#include "reorder/reorder.hpp"

#include <algorithm>
#include <cstring>
#include <memory>

#include "reorder/worker.hpp"
#include "support/errors.hpp"
#include "threads/regions.hpp"

namespace stridewise {
namespace {

// The smallest and the largest offset that loops and tables reach.
struct Reach {
    std::int64_t least, most;

    void add(std::int64_t rounds, std::int64_t stride) {
        std::int64_t &end = stride < 0 ? least : most;
        end = checked_sum(end, checked_product(rounds - 1, stride));
    }
    void add(const std::vector<std::int64_t> &offsets) {
        if (offsets.empty()) return;
        const auto [low, high] = std::minmax_element(offsets.begin(), offsets.end());
        least = checked_sum(least, *low);
        most = checked_sum(most, *high);
    }
    // Whether `span` elements from each offset on are within `nbytes`.
    bool fits(std::int64_t span, std::int64_t itemsize, std::int64_t nbytes) const {
        return least >= 0 && checked_product(checked_sum(most, span), itemsize) <= nbytes;
    }
};

void scale_all(std::vector<std::int64_t> &offsets, std::int64_t itemsize) {
    for (auto &offset : offsets) offset = checked_product(offset, itemsize);
}

const ReorderKernels *kernels_for(const std::string &isa) {
    if (isa == "portable") return &portable_reorder_kernels();
#ifdef STRIDEWISE_AVX2
    if (isa == "avx2" && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c")) {
        return &avx2_reorder_kernels();
    }
#endif
    throw std::invalid_argument("isa: expected one that reorder_isas() lists, got '" + isa + "'");
}

}  // namespace

Reorder::Reorder(std::vector<ReorderGroup> groups, const ReorderTypes &types, ReorderScales scales,
                 std::int64_t src_nbytes, std::int64_t dst_nbytes, std::int64_t fill_nbytes,
                 const std::string &isa)
    : groups_(std::move(groups)),
      types_(types),
      scales_(std::move(scales)),
      src_nbytes_(src_nbytes),
      dst_nbytes_(dst_nbytes),
      fill_nbytes_(fill_nbytes),
      kernels_(kernels_for(isa)) {
    require(src_nbytes >= 0 && dst_nbytes >= 0 && fill_nbytes >= 0 && fill_nbytes <= dst_nbytes,
            "reorder: expected sizes of at least 0");
    require(types_.conversion || types_.src_itemsize == types_.dst_itemsize,
            "reorder: expected one itemsize where nothing is converted");
    require(types_.src_itemsize >= 1 && types_.dst_itemsize >= 1, "reorder: expected an itemsize");
    const std::size_t count = scales_.src_zero.size();
    require(scales_.src_scale.size() == count && scales_.dst_scale.size() == count &&
                scales_.dst_zero.size() == count && (types_.conversion || count == 0),
            "reorder: expected scales and zero points of one size");
    for (auto &group : groups_) {
        for (auto &tile : group.tiles) {
            check(tile, group.loops);
            scale_all(tile.rows, types_.src_itemsize);
            scale_all(tile.columns, types_.dst_itemsize);
            const std::int64_t width = checked_product(tile.width, types_.dst_itemsize);
            require(tile.is_zero || tile.is_runs || width_index(width) >= 0,
                    "reorder: no kernel for this width");
            const std::int64_t scratch =
                tile.is_zero ? 0 : prepare_tile(tile, types_, !scales_.src_zero.empty());
            scratch_nbytes_ = std::max(scratch_nbytes_, static_cast<std::size_t>(scratch));
            if (group.tiles.size() == 1) group.lookahead = lookahead(tile, types_.src_itemsize);
            tile.src = checked_product(tile.src, types_.src_itemsize);
            tile.dst = checked_product(tile.dst, types_.dst_itemsize);
            for (auto &loop : tile.loops) {
                loop.src = checked_product(loop.src, types_.src_itemsize);
                loop.dst = checked_product(loop.dst, types_.dst_itemsize);
            }
        }
        for (auto &loop : group.loops) {
            loop.src = checked_product(loop.src, types_.src_itemsize);
            loop.dst = checked_product(loop.dst, types_.dst_itemsize);
        }
        unroll(group);
    }
}

// Memory safety depends on this check of the extreme offsets against the sizes.
void Reorder::check(const ReorderTile &tile, const std::vector<ReorderLoop> &around) const {
    Reach src{tile.src, tile.src}, dst{tile.dst, tile.dst}, scale{tile.scale, tile.scale};
    const auto add = [&](const std::vector<ReorderLoop> &loops) {
        require(loops.size() <= kMostLoops,
                "reorder: expected at most " + std::to_string(kMostLoops) + " nested loops");
        for (const auto &loop : loops) {
            require(loop.extent >= 1, "reorder: expected loops of at least one round");
            src.add(loop.extent, loop.src);
            dst.add(loop.extent, loop.dst);
            scale.add(loop.extent, loop.scale);
        }
    };
    add(around);
    add(tile.loops);
    src.add(tile.rows);
    dst.add(tile.columns);
    scale.add(tile.row_scales);
    scale.add(tile.column_scales);
    const auto rows = static_cast<std::int64_t>(tile.rows.size());
    const auto columns = static_cast<std::int64_t>(tile.columns.size());
    require(rows >= 1 && columns >= 1 && (!tile.is_runs || rows == columns),
            "reorder: expected rows and columns");
    require(tile.row_scales.size() == tile.rows.size() &&
                (tile.column_scales.empty() || tile.column_scales.size() == tile.columns.size()),
            "reorder: expected one scale for each row and column");
    require(tile.width >= 1 && tile.zeros >= 0, "reorder: expected runs of at least one element");
    const std::int64_t src_span = tile.is_runs ? tile.width : checked_product(columns, tile.width);
    const std::int64_t dst_span = tile.is_runs ? checked_sum(tile.width, tile.zeros)
                                               : checked_product(rows + tile.zeros, tile.width);
    scale.add(src_span, tile.width_scale);
    require(tile.is_zero || src.fits(src_span, types_.src_itemsize, src_nbytes_),
            "reorder: a loop leaves the source");
    require(dst.fits(dst_span, types_.dst_itemsize, dst_nbytes_),
            "reorder: a loop leaves the destination");
    const auto scales = static_cast<std::int64_t>(scales_.src_zero.size());
    require(scales <= 1 || scale.fits(1, 1, scales), "reorder: a loop leaves the scales");
}

void Reorder::run_part(const std::byte *src, std::byte *dst, int part, int parts, bool stream,
                       std::byte *scratch) const {
    const ReorderWorker worker(types_, scales_, *kernels_, src, dst, stream, scratch);
    for (const auto &group : groups_) {
        const std::int64_t total = rounds(group.loops);
        worker.run_group(group, total * part / parts, total * (part + 1) / parts);
    }
    if (stream) kernels_->fence();
}

void Reorder::run(const void *src, void *dst, int threads, bool stream) const {
    require(threads >= 1, "threads: expected at least 1, got " + std::to_string(threads));
    // Not initialized, because a conversion writes its scratch memory before it reads it.
    const std::unique_ptr<std::byte[]> scratch(new std::byte[scratch_nbytes(threads)]);
    run(src, dst, threads, stream, scratch.get());
}

void Reorder::run(const void *src, void *dst, int threads, bool stream, std::byte *scratch) const {
    const auto *from = static_cast<const std::byte *>(src);
    auto *to = static_cast<std::byte *>(dst);
    if (fill_nbytes_ != 0) {
        in_parallel(threads, [&](int part, int parts) {
            const std::int64_t first = fill_nbytes_ * part / parts;
            const std::int64_t last = fill_nbytes_ * (part + 1) / parts;
            std::memset(to + first, 0, static_cast<std::size_t>(last - first));
        });
    }
    in_parallel(threads, [&](int part, int parts) {
        run_part(from, to, part, parts, stream,
                 scratch + own_nbytes() * static_cast<std::size_t>(part));
    });
}

std::vector<std::string> reorder_isas() {
    std::vector<std::string> found{"portable"};
#ifdef STRIDEWISE_AVX2
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c")) {
        found.insert(found.begin(), "avx2");
    }
#endif
    return found;
}

}  // namespace stridewise
