#include "reorder.hpp"

#include <algorithm>
#include <cstring>
#include <limits>
#include <memory>
#include <numeric>

#include "errors.hpp"
#include "threads.hpp"

namespace stridewise {
namespace {

constexpr std::int64_t kLine = 64;
constexpr std::int64_t kVector = 16;
// Runs of more bytes are converted in place of being copied from the scratch.
constexpr std::int64_t kLongRun = 1024;

std::int64_t checked_product(std::int64_t a, std::int64_t b) {
    std::int64_t result = 0;
    require(!__builtin_mul_overflow(a, b, &result), "reorder: an offset is out of range");
    return result;
}

std::int64_t checked_sum(std::int64_t a, std::int64_t b) {
    std::int64_t result = 0;
    require(!__builtin_add_overflow(a, b, &result), "reorder: an offset is out of range");
    return result;
}

// The least and the largest offset that loops and tables reach.
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
    // Whether `span` elements from each offset on lie within `nbytes`.
    bool fits(std::int64_t span, std::int64_t itemsize, std::int64_t nbytes) const {
        return least >= 0 && checked_product(checked_sum(most, span), itemsize) <= nbytes;
    }
};

void scale_all(std::vector<std::int64_t> &offsets, std::int64_t itemsize) {
    for (auto &offset : offsets) offset = checked_product(offset, itemsize);
}

// Which of the kernels for elements of 1, 2, 4, 8 and 16 bytes.
int width_index(std::int64_t nbytes) {
    for (int index = 0; index < kWidths; ++index) {
        if (nbytes == std::int64_t{1} << index) return index;
    }
    return -1;
}

std::int64_t rounds(const std::vector<ReorderLoop> &loops) {
    std::int64_t found = 1;
    for (const auto &loop : loops) found = checked_product(found, loop.extent);
    return found;
}

// Offsets in source, destination (in bytes) and scales.
struct Place {
    std::int64_t src, dst, scale;

    Place plus(const Place &other) const {
        return {src + other.src, dst + other.dst, scale + other.scale};
    }
};

// Where the loops stand; `at` counts all rounds, the last loop fastest.
class Odometer {
  public:
    Odometer(const std::vector<ReorderLoop> &loops, std::int64_t at)
        : loops_(loops), index_(loops.size()) {
        for (std::size_t i = loops.size(); i-- > 0;) {
            index_[i] = at % loops[i].extent;
            at /= loops[i].extent;
            move(loops[i], index_[i]);
        }
    }
    const Place &place() const { return place_; }
    void next() {
        for (std::size_t i = loops_.size(); i-- > 0;) {
            move(loops_[i], 1);
            if (++index_[i] < loops_[i].extent) return;
            index_[i] = 0;
            move(loops_[i], -loops_[i].extent);
        }
    }

  private:
    void move(const ReorderLoop &loop, std::int64_t rounds) {
        place_.src += rounds * loop.src;
        place_.dst += rounds * loop.dst;
        place_.scale += rounds * loop.scale;
    }

    const std::vector<ReorderLoop> &loops_;
    std::vector<std::int64_t> index_;
    Place place_{0, 0, 0};
};

// Whether offsets, taken `size` at a time, advance by `step`.
bool in_chunks(const std::vector<std::int64_t> &offsets, std::int64_t size, std::int64_t step) {
    if (size < 2 || offsets.size() % static_cast<std::size_t>(size) != 0) return false;
    for (std::size_t i = 0; i < offsets.size(); ++i) {
        const auto place = static_cast<std::int64_t>(i) % size;
        if (place != 0 && offsets[i] != offsets[i - 1] + step) return false;
    }
    return true;
}

// Whether columns of `nbytes` fill whole cache lines, alone or with their neighbors.
bool fills_lines(const std::vector<std::int64_t> &columns, std::int64_t nbytes) {
    const bool alone = nbytes % kLine == 0;
    if (!alone && nbytes != kVector && nbytes != 2 * kVector) return false;
    const std::int64_t together = alone ? 1 : kLine / nbytes;
    if (!alone && !in_chunks(columns, together, nbytes)) return false;
    for (std::size_t i = 0; i < columns.size(); i += static_cast<std::size_t>(together)) {
        if (columns[i] % kLine != 0) return false;
    }
    return true;
}

// Works out how a tile whose columns fill no cache lines one by one fills them together: it is
// written to a copy that leaves out the gaps, which is then streamed stretch by stretch. Returns
// the bytes of that copy, 0 where a stretch is no whole number of lines.
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
    bool is_even = tile.stretch % kLine == 0;
    for (std::size_t i = 0; i < tile.staged.size(); ++i) {
        is_even = is_even && tile.staged[i] % kLine == 0 &&
                  tile.staged_from[i] == static_cast<std::int64_t>(i) * tile.stretch;
    }
    if (is_even) return total;
    tile.staged_columns.clear();
    return 0;
}

// Works out whether runs that are converted may be streamed, sixteen elements at a time.
void pair(ReorderTile &tile, std::int64_t itemsize) {
    tile.is_paired = tile.width == 8 && in_chunks(tile.columns, 2, 8 * itemsize);
    const std::size_t step = tile.is_paired ? 2 : 1;
    tile.is_aligned = tile.is_paired || tile.width % 16 == 0;
    for (std::size_t i = 0; i < tile.columns.size(); i += step) {
        tile.is_aligned = tile.is_aligned && tile.columns[i] % (16 * itemsize) == 0;
    }
}

// Works out what a tile, offsets in bytes, needs to know at each of its rounds; returns the bytes
// of scratch that it writes before the destination.
std::int64_t prepare(ReorderTile &tile, const ReorderTypes &types, bool is_scaled) {
    const auto rows = static_cast<std::int64_t>(tile.rows.size());
    const auto columns = static_cast<std::int64_t>(tile.columns.size());
    const std::int64_t width = tile.width * types.dst_itemsize;
    const std::int64_t row = tile.is_runs ? width : columns * width;
    std::int64_t staged = 0;
    if (!tile.is_runs) {
        tile.is_aligned = fills_lines(tile.columns, (rows + tile.zeros) * width);
        // The side that is scattered in memory is touched in the longer stretches.
        tile.is_interleaved = (rows == 2 || rows == 4) && tile.zeros == 0 &&
                              in_chunks(tile.columns, kVector / width, rows * width);
        tile.by_columns = rows < 2 || (columns > 1 && tile.columns[1] > tile.rows[1]);
        tile.is_packed = in_chunks(tile.rows, 16, columns * tile.width * types.src_itemsize);
        staged = stage(tile, (rows + tile.zeros) * width);
    } else {
        pair(tile, types.dst_itemsize);
    }
    if (!types.conversion || (tile.is_runs && row > kLongRun)) return staged;
    // In the order of the source, in which neighbors are converted together.
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

// How many rounds ahead of a tile its source is to be fetched.
std::int64_t lookahead(const ReorderTile &tile, std::int64_t itemsize) {
    constexpr std::int64_t kInFlight = 4096;
    const auto columns = static_cast<std::int64_t>(tile.is_runs ? 1 : tile.columns.size());
    const auto rows = static_cast<std::int64_t>(tile.rows.size());
    const std::int64_t nbytes = checked_product(rows * columns, tile.width * itemsize);
    return std::max<std::int64_t>(1, std::min<std::int64_t>(32, kInFlight / nbytes));
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

// What one thread does with one tile.
struct Reorder::Worker {
    const Reorder &self;
    const std::byte *src;
    std::byte *dst;
    bool stream;
    std::byte *scratch;

    Quantization scales_at(std::int64_t index) const {
        const ReorderScales &s = self.scales_;
        const std::int64_t at = s.src_zero.size() > 1 ? index : 0;
        return {s.src_zero.data() + at, s.src_scale.data() + at, s.dst_scale.data() + at,
                s.dst_zero.data() + at};
    }

    void convert(const std::byte *from, std::byte *to, std::int64_t count, std::int64_t scale,
                 std::int64_t step) const {
        if (self.scales_.src_zero.empty()) return kernel()(from, to, count, nullptr, 0);
        const Quantization scales = scales_at(scale);
        kernel()(from, to, count, &scales, self.scales_.src_zero.size() > 1 ? step : 0);
    }

    Convert kernel() const {
        const auto [from, to] = *self.types_.conversion;
        return self.kernels_->convert[static_cast<int>(from)][static_cast<int>(to)];
    }

    void zero(const ReorderTile &tile, const Place &at) const {
        const auto nbytes = static_cast<std::size_t>(tile.width * self.types_.dst_itemsize);
        for (const auto column : tile.columns) std::memset(dst + at.dst + column, 0, nbytes);
    }

    // `next` is where the source of the tile to come lies, here and below.
    void runs(const ReorderTile &tile, const Place &at, std::int64_t next) const {
        const std::int64_t nbytes = tile.width * self.types_.dst_itemsize;
        // Zeros behind a run share its cache line, which must then stay in the cache.
        const bool past_caches = stream && tile.zeros == 0;
        const auto count = static_cast<std::int64_t>(tile.rows.size());
        Runs copied{src + at.src,        src + next, dst + at.dst, tile.rows.data(),
                    tile.columns.data(), count,      nbytes,       past_caches};
        if (!self.types_.conversion) {
            self.kernels_->copy(copied);
        } else if (converts_runs(tile)) {
            const auto start = reinterpret_cast<std::uintptr_t>(copied.dst);
            copied.stream = past_caches && tile.is_aligned &&
                            start % static_cast<std::uintptr_t>(16 * self.types_.dst_itemsize) == 0;
            self.kernels_->convert_f32[to_element()]({copied, tile.is_paired});
        } else if (past_caches && !tile.converted_rows.empty()) {
            convert_runs(tile, at, next,
                         [&](std::size_t i) { return scratch + tile.converted_rows[i]; });
            copied.src = copied.next = scratch;
            copied.from = tile.converted_rows.data();
            self.kernels_->copy(copied);
        } else {
            convert_runs(tile, at, next,
                         [&](std::size_t i) { return dst + at.dst + tile.columns[i]; });
        }
        if (tile.zeros == 0) return;
        const auto zeros = static_cast<std::size_t>(tile.zeros * self.types_.dst_itemsize);
        for (const auto column : tile.columns)
            std::memset(dst + at.dst + column + nbytes, 0, zeros);
    }

    int to_element() const { return static_cast<int>(self.types_.conversion->second); }

    // Whether a kernel converts all runs at once.
    bool converts_runs(const ReorderTile &tile) const {
        return self.types_.conversion->first == Element::f32 && self.scales_.src_zero.empty() &&
               tile.width % 8 == 0 && self.kernels_->convert_f32[to_element()] != nullptr;
    }

    template <typename Target>
    void convert_runs(const ReorderTile &tile, const Place &at, std::int64_t next,
                      const Target &target) const {
        const std::int64_t nbytes = tile.width * self.types_.src_itemsize;
        const Convert plain = self.scales_.src_zero.empty() ? kernel() : nullptr;
        for (std::size_t i = 0; i < tile.rows.size(); ++i) {
            prefetch(src + next + tile.rows[i], nbytes);
            if (plain != nullptr) {
                plain(src + at.src + tile.rows[i], target(i), tile.width, nullptr, 0);
                continue;
            }
            convert(src + at.src + tile.rows[i], target(i), tile.width,
                    at.scale + tile.row_scales[i], tile.width_scale);
        }
    }

    void transposition(const ReorderTile &tile, const Place &at, std::int64_t next) const {
        const std::int64_t width = tile.width * self.types_.dst_itemsize;
        Transposition t{};
        t.src = src + at.src;
        t.next = src + next;
        t.dst = dst + at.dst;
        t.rows = tile.rows.data();
        t.columns = tile.columns.data();
        t.row_count = static_cast<std::int64_t>(tile.rows.size());
        t.column_count = static_cast<std::int64_t>(tile.columns.size());
        t.zero_rows = tile.zeros;
        t.is_packed = tile.is_packed;
        t.by_columns = tile.by_columns;
        const bool is_aligned = stream && reinterpret_cast<std::uintptr_t>(t.dst) % kLine == 0;
        const bool direct = self.types_.conversion && in_registers(tile);
        t.stream = is_aligned && tile.is_aligned;
        const bool is_staged = is_aligned && !t.stream && !tile.staged_columns.empty();
        if (is_staged) {
            t.dst = scratch;
            t.columns = tile.staged_columns.data();
        }
        if (direct) {
            self.kernels_->transpose_f32[to_element()](t);
        } else {
            transpose(tile, at, next, width, t);
        }
        if (!is_staged) return;
        self.kernels_->copy({scratch, scratch, dst + at.dst, tile.staged_from.data(),
                             tile.staged.data(), static_cast<std::int64_t>(tile.staged.size()),
                             tile.stretch, true});
    }

    // A transposition that converts by way of the scratch, if at all.
    void transpose(const ReorderTile &tile, const Place &at, std::int64_t next, std::int64_t width,
                   Transposition &t) const {
        if (self.types_.conversion) {
            convert_rows(tile, at, next, width);
            t.src = scratch;
            t.next = nullptr;
            t.rows = tile.converted_rows.data();
        }
        const int kernel = width_index(width);
        if (tile.is_interleaved && self.kernels_->interleave[kernel] != nullptr) {
            self.kernels_->interleave[kernel](t);
        } else {
            self.kernels_->transpose[kernel](t);
        }
    }

    // Whether a kernel converts the tile without a scratch.
    bool in_registers(const ReorderTile &tile) const {
        const auto [from, to] = *self.types_.conversion;
        return from == Element::f32 && tile.width == 1 && tile.zeros == 0 &&
               tile.rows.size() % 16 == 0 && self.scales_.src_zero.empty() &&
               self.kernels_->transpose_f32[static_cast<int>(to)] != nullptr;
    }

    // Converts the rows of a tile into the scratch, where they follow one another.
    void convert_rows(const ReorderTile &tile, const Place &at, std::int64_t next,
                      std::int64_t width) const {
        const auto columns = static_cast<std::int64_t>(tile.columns.size());
        for (const auto &[r, rows] : tile.spans) {
            std::byte *target = scratch + tile.converted_rows[r];
            const std::byte *row = src + at.src + tile.rows[r];
            const std::int64_t scale = at.scale + tile.row_scales[r];
            const std::int64_t count = rows * columns * tile.width;
            prefetch(src + next + tile.rows[r], count * self.types_.src_itemsize);
            if (tile.column_scales.empty()) {
                convert(row, target, count, scale, tile.width_scale);
                continue;
            }
            for (std::int64_t c = 0; c < columns; ++c) {
                convert(row + c * tile.width * self.types_.src_itemsize, target + c * width,
                        tile.width, scale + tile.column_scales[static_cast<std::size_t>(c)], 0);
            }
        }
    }

    // Long stretches are left to the hardware, which sees where they go.
    static void prefetch(const std::byte *from, std::int64_t nbytes) {
        for (std::int64_t at = 0; at < std::min<std::int64_t>(nbytes, 16 * kLine); at += kLine) {
            __builtin_prefetch(from + at);
        }
    }

    void run(const ReorderTile &tile, const Place &at, std::int64_t next) const {
        if (tile.is_zero) return zero(tile, at);
        if (tile.is_runs) return runs(tile, at, next);
        transposition(tile, at, next);
    }

    // Runs a tile through its own loops, from `here` on, and fetches what is used at `ahead`.
    void run_all(const ReorderTile &tile, const Place &here, const Place &ahead) const {
        const Place start{tile.src, tile.dst, tile.scale};
        const std::int64_t count = rounds(tile.loops);
        Odometer own(tile.loops, 0);
        for (std::int64_t i = 0; i < count; ++i) {
            const Place at = own.place().plus(start).plus(here);
            own.next();
            // After its last round the loops are back where they began.
            const Place &base = i + 1 < count ? here : ahead;
            run(tile, at, own.place().src + tile.src + base.src);
        }
    }
};

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
                tile.is_zero ? 0 : prepare(tile, types_, !scales_.src_zero.empty());
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
    }
}

// Memory safety rests on this: the furthest that loops and tables reach, against the sizes.
void Reorder::check(const ReorderTile &tile, const std::vector<ReorderLoop> &around) const {
    Reach src{tile.src, tile.src}, dst{tile.dst, tile.dst}, scale{tile.scale, tile.scale};
    const auto add = [&](const std::vector<ReorderLoop> &loops) {
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

void Reorder::run_part(const std::byte *src, std::byte *dst, int part, int parts,
                       bool stream) const {
    // Without initialization: a conversion writes its scratch before it reads it.
    const std::unique_ptr<std::byte[]> scratch(new std::byte[scratch_nbytes_ + 1]);
    const Worker worker{*this, src, dst, stream, scratch.get()};
    for (const auto &group : groups_) {
        const std::int64_t total = rounds(group.loops);
        const std::int64_t first = total * part / parts, last = total * (part + 1) / parts;
        if (first == last) continue;
        Odometer outer(group.loops, first);
        // Memory takes as long to answer as many a small tile takes to move.
        Odometer scout(group.loops, first + group.lookahead);
        for (std::int64_t round = first; round < last; ++round, outer.next(), scout.next()) {
            for (const auto &tile : group.tiles) {
                worker.run_all(tile, outer.place(), scout.place());
            }
        }
    }
    if (stream) kernels_->fence();
}

void Reorder::run(const void *src, void *dst, int threads, bool stream) const {
    const auto *from = static_cast<const std::byte *>(src);
    auto *to = static_cast<std::byte *>(dst);
    if (fill_nbytes_ != 0) {
        in_parallel(threads, [&](int part, int parts) {
            const std::int64_t first = fill_nbytes_ * part / parts;
            const std::int64_t last = fill_nbytes_ * (part + 1) / parts;
            std::memset(to + first, 0, static_cast<std::size_t>(last - first));
        });
    }
    in_parallel(threads, [&](int part, int parts) { run_part(from, to, part, parts, stream); });
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
