#include "executor/waits.hpp"

#include <sys/resource.h>

#include <algorithm>
#include <cstddef>
#include <ctime>
#include <limits>

#include "threads/regions.hpp"

namespace stridewise {
namespace {

std::int64_t read_clock(clockid_t clock) {
    timespec time{};
    clock_gettime(clock, &time);
    return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

}  // namespace

Waits::Waits(int threads) : threads_(threads), before_(ask()) {}

Waits::Thread Waits::own() {
    rusage used{};
    getrusage(RUSAGE_THREAD, &used);
    return {read_clock(CLOCK_MONOTONIC), read_clock(CLOCK_THREAD_CPUTIME_ID), used.ru_nvcsw};
}

std::vector<Waits::Thread> Waits::ask() const {
    std::vector<Thread> found(static_cast<std::size_t>(threads_), Thread{});
    on_each_thread(threads_, [&](int thread) { found[static_cast<std::size_t>(thread)] = own(); });
    return found;
}

std::int64_t Waits::total_ns() const {
    const std::vector<Thread> after = ask();
    std::int64_t total = 0, least = std::numeric_limits<std::int64_t>::max();
    bool slept = true;
    for (std::size_t i = 0; i < after.size(); ++i) {
        const std::int64_t passed = after[i].now_ns - before_[i].now_ns;
        const std::int64_t ran = after[i].ran_ns - before_[i].ran_ns;
        const std::int64_t off = std::max<std::int64_t>(passed - ran, 0);
        least = std::min(least, off);
        if (after[i].sleeps != before_[i].sleeps) continue;
        slept = false;
        total += off;
    }
    return slept ? least : total;
}

}  // namespace stridewise
