// The execution of tiles by one thread. Only one file includes it.
#pragma once

#include <algorithm>
#include <cstring>

#include "reorder/loops.hpp"
#include "reorder/tile.hpp"

namespace stridewise {

class ReorderWorker {
  public:
    // `scratch` is large enough for every tile.
    ReorderWorker(const ReorderTypes &types, const ReorderScales &scales,
                  const ReorderKernels &kernels, const std::byte *src, std::byte *dst, bool stream,
                  std::byte *scratch)
        : types_(types),
          scales_(scales),
          kernels_(&kernels),
          src_(src),
          dst_(dst),
          stream_(stream),
          scratch_(scratch) {}

    // Executes iterations `first` to `last` of a group and prefetches `lookahead` iterations ahead.
    void run_group(const ReorderGroup &group, std::int64_t first, std::int64_t last) const {
        if (first == last) return;
        if (group.tiles.size() == 1 && is_bare(group.tiles[0])) {
            return run_bare(group, group.tiles[0], first, last);
        }
        Odometer here(group.loops, first), ahead(group.loops, first + group.lookahead);
        for (std::int64_t round = first; round < last; ++round, here.next(), ahead.next()) {
            for (const auto &tile : group.tiles) run_all(tile, here.place(), ahead.place());
        }
    }

  private:
    using Kernel = void (*)(const Transposition &);

    // Whether a tile needs nothing but one call of a kernel.
    bool is_bare(const ReorderTile &tile) const {
        return !tile.is_zero && !tile.is_runs && !types_.conversion && tile.loops.empty() &&
               (!stream_ || tile.staged_columns.empty());
    }

    // Executes many small tiles. Dispatch and address computation would take as long as the tiles,
    // so they are done once for all of them.
    void run_bare(const ReorderGroup &group, const ReorderTile &tile, std::int64_t first,
                  std::int64_t last) const {
        const auto count = static_cast<std::int64_t>(group.steps.size());
        const std::int64_t far = std::min(group.lookahead, count);
        const ReorderStep *steps = group.steps.data();
        const Kernel kernel = kernel_of(tile, tile.width * types_.dst_itemsize);
        const bool stream = stream_ && tile.is_aligned;
        Transposition t = unplaced(tile);
        const auto run = [&](std::int64_t from, std::int64_t to, std::int64_t fetched,
                             const Place &here, const Place &there) {
            const std::byte *src = src_ + tile.src + here.src, *next = src_ + tile.src + there.src;
            std::byte *dst = dst_ + tile.dst + here.dst;
            for (std::int64_t i = from; i < to; ++i) {
                t.src = src + steps[i].src;
                t.next = next + steps[i + fetched].src;
                t.dst = dst + steps[i].dst;
                t.stream = stream && reinterpret_cast<std::uintptr_t>(t.dst) % kCacheLine == 0;
                kernel(t);
            }
        };
        Odometer here(group.outer, first / count), ahead(group.outer, first / count + 1);
        std::int64_t begin = first % count;
        for (std::int64_t left = last - first; left > 0; here.next(), ahead.next()) {
            const std::int64_t end = std::min(count, begin + left), near = count - far;
            run(begin, std::min(end, near), far, here.place(), here.place());
            run(std::max(begin, near), end, -near, here.place(), ahead.place());
            left -= end - begin;
            begin = 0;
        }
    }

    // Executes a tile through its own loops from `here` on, and prefetches at `ahead`.
    void run_all(const ReorderTile &tile, const Place &here, const Place &ahead) const {
        const Place start{tile.src, tile.dst, tile.scale};
        const std::int64_t count = rounds(tile.loops);
        Odometer own(tile.loops, 0);
        for (std::int64_t i = 0; i < count; ++i) {
            const Place at = own.place().plus(start).plus(here);
            own.next();
            // After the last iteration the loops are at their start again.
            const Place &base = i + 1 < count ? here : ahead;
            run(tile, at, own.place().src + tile.src + base.src);
        }
    }

    Quantization scales_at(std::int64_t index) const {
        const ReorderScales &s = scales_;
        const std::int64_t at = s.src_zero.size() > 1 ? index : 0;
        return {s.src_zero.data() + at, s.src_scale.data() + at, s.dst_scale.data() + at,
                s.dst_zero.data() + at};
    }

    void convert(const std::byte *from, std::byte *to, std::int64_t count, std::int64_t scale,
                 std::int64_t step) const {
        if (scales_.src_zero.empty()) return kernel()(from, to, count, nullptr, 0);
        const Quantization scales = scales_at(scale);
        kernel()(from, to, count, &scales, scales_.src_zero.size() > 1 ? step : 0);
    }

    Convert kernel() const {
        const auto [from, to] = *types_.conversion;
        return kernels_->convert[static_cast<int>(from)][static_cast<int>(to)];
    }

    void zero(const ReorderTile &tile, const Place &at) const {
        const std::int64_t nbytes = tile.width * types_.dst_itemsize;
        for (const auto column : tile.columns) {
            std::byte *dst = dst_ + at.dst + column;
            const bool fills_lines =
                reinterpret_cast<std::uintptr_t>(dst) % kCacheLine == 0 && nbytes % kCacheLine == 0;
            if (stream_ && fills_lines) {
                stream_zeros(dst, nbytes);
            } else {
                std::memset(dst, 0, static_cast<std::size_t>(nbytes));
            }
        }
    }

    void stream_zeros(std::byte *dst, std::int64_t nbytes) const {
        alignas(kCacheLine) static constexpr std::byte kZeros[1024]{};
        constexpr std::int64_t kStart = 0;
        for (std::int64_t done = 0; done < nbytes; done += std::int64_t{sizeof kZeros}) {
            const std::int64_t size = std::min(std::int64_t{sizeof kZeros}, nbytes - done);
            kernels_->copy({kZeros, kZeros, dst + done, &kStart, &kStart, 1, size, true});
        }
    }

    // `next` is the offset of the source of the next tile, here and below.
    void runs(const ReorderTile &tile, const Place &at, std::int64_t next) const {
        const std::int64_t nbytes = tile.width * types_.dst_itemsize;
        // Zeros after a run share its cache line, which must then stay in the cache.
        const bool past_caches = stream_ && tile.zeros == 0;
        const auto count = static_cast<std::int64_t>(tile.rows.size());
        Runs copied{src_ + at.src,       src_ + next, dst_ + at.dst, tile.rows.data(),
                    tile.columns.data(), count,       nbytes,        past_caches};
        if (!types_.conversion) {
            kernels_->copy(copied);
        } else if (converts_runs(tile)) {
            convert_at_once(tile, copied);
        } else if (past_caches && !tile.converted_rows.empty()) {
            convert_runs(tile, at, next,
                         [&](std::size_t i) { return scratch_ + tile.converted_rows[i]; });
            copied.src = copied.next = scratch_;
            copied.from = tile.converted_rows.data();
            kernels_->copy(copied);
        } else {
            convert_runs(tile, at, next,
                         [&](std::size_t i) { return dst_ + at.dst + tile.columns[i]; });
        }
        if (tile.zeros == 0) return;
        const auto zeros = static_cast<std::size_t>(tile.zeros * types_.dst_itemsize);
        for (const auto column : tile.columns)
            std::memset(dst_ + at.dst + column + nbytes, 0, zeros);
    }

    void convert_at_once(const ReorderTile &tile, Runs runs) const {
        const auto start = reinterpret_cast<std::uintptr_t>(runs.dst);
        if (!runs.stream || tile.staged_rows.empty() || start % kCacheLine != 0) {
            runs.stream = runs.stream && tile.is_aligned &&
                          start % static_cast<std::uintptr_t>(16 * types_.dst_itemsize) == 0;
            return kernels_->convert_f32[to_element()]({runs, tile.is_paired});
        }
        std::byte *dst = runs.dst;
        runs.dst = scratch_;
        runs.from = tile.staged_rows.data();
        runs.to = tile.staged_columns.data();
        runs.stream = false;
        kernels_->convert_f32[to_element()]({runs, tile.is_paired});
        copy_staged(tile, dst);
    }

    // Streams the copy without gaps to the destination.
    void copy_staged(const ReorderTile &tile, std::byte *dst) const {
        kernels_->copy({scratch_, scratch_, dst, tile.staged_from.data(), tile.staged.data(),
                        static_cast<std::int64_t>(tile.staged.size()), tile.stretch, true});
    }

    int to_element() const { return static_cast<int>(types_.conversion->second); }

    // Whether one kernel call converts all runs.
    bool converts_runs(const ReorderTile &tile) const {
        return types_.conversion->first == Element::f32 && scales_.src_zero.empty() &&
               tile.width % 8 == 0 && kernels_->convert_f32[to_element()] != nullptr;
    }

    template <typename Target>
    void convert_runs(const ReorderTile &tile, const Place &at, std::int64_t next,
                      const Target &target) const {
        const std::int64_t nbytes = tile.width * types_.src_itemsize;
        const Convert plain = scales_.src_zero.empty() ? kernel() : nullptr;
        for (std::size_t i = 0; i < tile.rows.size(); ++i) {
            prefetch(src_ + next + tile.rows[i], nbytes);
            if (plain != nullptr) {
                plain(src_ + at.src + tile.rows[i], target(i), tile.width, nullptr, 0);
                continue;
            }
            convert(src_ + at.src + tile.rows[i], target(i), tile.width,
                    at.scale + tile.row_scales[i], tile.width_scale);
        }
    }

    // A transposition without its addresses.
    static Transposition unplaced(const ReorderTile &tile) {
        Transposition t{};
        t.rows = tile.rows.data();
        t.columns = tile.columns.data();
        t.row_count = static_cast<std::int64_t>(tile.rows.size());
        t.column_count = static_cast<std::int64_t>(tile.columns.size());
        t.zero_rows = tile.zeros;
        t.is_packed = tile.is_packed;
        t.by_columns = tile.by_columns;
        return t;
    }

    void move_to(Transposition &t, const Place &at, std::int64_t next) const {
        t.src = src_ + at.src;
        t.next = src_ + next;
        t.dst = dst_ + at.dst;
    }

    void transposition(const ReorderTile &tile, const Place &at, std::int64_t next) const {
        const std::int64_t width = tile.width * types_.dst_itemsize;
        Transposition t = unplaced(tile);
        move_to(t, at, next);
        const bool is_aligned =
            stream_ && reinterpret_cast<std::uintptr_t>(t.dst) % kCacheLine == 0;
        const bool direct = types_.conversion && in_registers(tile);
        t.stream = is_aligned && tile.is_aligned;
        const bool is_staged = is_aligned && !t.stream && !tile.staged_columns.empty();
        if (is_staged) {
            t.dst = scratch_;
            t.columns = tile.staged_columns.data();
        }
        if (direct) {
            kernels_->transpose_f32[to_element()](t);
        } else {
            transpose(tile, at, next, width, t);
        }
        if (is_staged) copy_staged(tile, dst_ + at.dst);
    }

    Kernel kernel_of(const ReorderTile &tile, std::int64_t width) const {
        const int kernel = width_index(width);
        const Kernel better = tile.is_interleaved ? kernels_->interleave[kernel]
                              : tile.is_separated ? kernels_->separate[kernel]
                                                  : nullptr;
        return better != nullptr ? better : kernels_->transpose[kernel];
    }

    // A transposition; a conversion, if any, goes through scratch memory.
    void transpose(const ReorderTile &tile, const Place &at, std::int64_t next, std::int64_t width,
                   Transposition &t) const {
        if (types_.conversion) {
            convert_rows(tile, at, next, width);
            t.src = scratch_;
            t.next = nullptr;
            t.rows = tile.converted_rows.data();
        }
        kernel_of(tile, width)(t);
    }

    // Whether a kernel converts the tile without scratch memory.
    bool in_registers(const ReorderTile &tile) const {
        const auto [from, to] = *types_.conversion;
        return from == Element::f32 && tile.width == 1 && tile.zeros == 0 &&
               tile.rows.size() % 16 == 0 && scales_.src_zero.empty() &&
               kernels_->transpose_f32[static_cast<int>(to)] != nullptr;
    }

    // Converts the rows of a tile into scratch memory, where they are contiguous.
    void convert_rows(const ReorderTile &tile, const Place &at, std::int64_t next,
                      std::int64_t width) const {
        const auto columns = static_cast<std::int64_t>(tile.columns.size());
        for (const auto &[r, rows] : tile.spans) {
            std::byte *target = scratch_ + tile.converted_rows[r];
            const std::byte *row = src_ + at.src + tile.rows[r];
            const std::int64_t scale = at.scale + tile.row_scales[r];
            const std::int64_t count = rows * columns * tile.width;
            prefetch(src_ + next + tile.rows[r], count * types_.src_itemsize);
            if (tile.column_scales.empty()) {
                convert(row, target, count, scale, tile.width_scale);
                continue;
            }
            for (std::int64_t c = 0; c < columns; ++c) {
                convert(row + c * tile.width * types_.src_itemsize, target + c * width, tile.width,
                        scale + tile.column_scales[static_cast<std::size_t>(c)], 0);
            }
        }
    }

    // Long stretches are left to the hardware prefetcher.
    static void prefetch(const std::byte *from, std::int64_t nbytes) {
        for (std::int64_t at = 0; at < std::min<std::int64_t>(nbytes, 16 * kCacheLine);
             at += kCacheLine) {
            __builtin_prefetch(from + at);
        }
    }

    void run(const ReorderTile &tile, const Place &at, std::int64_t next) const {
        if (tile.is_zero) return zero(tile, at);
        if (tile.is_runs) return runs(tile, at, next);
        transposition(tile, at, next);
    }

    const ReorderTypes &types_;
    const ReorderScales &scales_;
    const ReorderKernels *kernels_;
    const std::byte *src_;
    std::byte *dst_;
    bool stream_;
    std::byte *scratch_;
};

}  // namespace stridewise
