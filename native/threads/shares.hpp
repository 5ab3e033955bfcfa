// Dynamic distribution of work among threads.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

namespace stridewise {

// Items from 0 to `count`. Each of `parts` threads starts with its own share, in order, whose data
// may still be in its caches from the previous step. A thread that has finished its share steals
// the last items of other shares, because cores rarely have the same speed during a step, above all
// in virtual machines, and the slowest thread determines the time of the step.
class Shares {
  public:
    Shares(std::int64_t count, int parts) : shares_(static_cast<std::size_t>(parts)) {
        for (std::int64_t part = 0; part < parts; ++part) {
            const auto begin = static_cast<std::uint64_t>(count * part / parts);
            const auto end = static_cast<std::uint64_t>(count * (part + 1) / parts);
            shares_[static_cast<std::size_t>(part)].range = begin << 32U | end;
        }
    }

    // Returns the next item of one thread; -1 if all are taken.
    std::int64_t next(int part) {
        const std::size_t own = static_cast<std::size_t>(part), parts = shares_.size();
        for (std::size_t other = 0; other < parts; ++other) {
            const std::int64_t item = take(shares_[(own + other) % parts].range, other == 0);
            if (item >= 0) return item;
        }
        return -1;
    }

  private:
    // First and last item, 32 bits each, changed by compare-and-swap. Each share has its own cache
    // line.
    struct alignas(64) Share {
        std::atomic<std::uint64_t> range;
    };

    static std::int64_t take(std::atomic<std::uint64_t> &range, bool first) {
        std::uint64_t seen = range.load(std::memory_order_relaxed);
        while (true) {
            const std::uint64_t begin = seen >> 32U, end = seen & 0xFFFFFFFFU;
            if (begin == end) return -1;
            const std::uint64_t left = first ? (begin + 1) << 32U | end : begin << 32U | (end - 1);
            if (range.compare_exchange_weak(seen, left, std::memory_order_relaxed)) {
                return static_cast<std::int64_t>(first ? begin : end - 1);
            }
        }
    }

    std::vector<Share> shares_;
};

}  // namespace stridewise
