#include "threads/openmp.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <mutex>

#include "threads/team.hpp"

namespace stridewise {
namespace {

using Function = Team::Function;

// A region without a team that has as many threads: outside of jobs, and inside of other regions,
// where it has one part. Its parts run one after the other.
struct Alone {
    int depth = 0;
    Function function = nullptr;
    void *data = nullptr;
    Part part;
};

thread_local Alone alone;

// A loop over [begin, end) whose chunks are dealt out to the parts in turn.
struct Loop {
    long begin = 0, end = 0, step = 1, chunk = 0, turn = 0;
};

thread_local Loop loop;

Part part() {
    if (alone.depth > 1) return {};
    return alone.depth == 1 ? alone.part : Team::part();
}

int resolved(unsigned threads) {
    return threads == 0 ? max_threads() : static_cast<int>(threads);
}

bool has_team(int parts) {
    const Team *team = Team::current();
    return team != nullptr && parts <= team->threads() && !Team::is_inside() && alone.depth == 0;
}

void parallel_start(Function function, void *data, unsigned threads) {
    const int parts = resolved(threads);
    if (has_team(parts)) return Team::current()->begin(function, data, parts);
    if (alone.depth++ > 0) return;
    alone.function = function;
    alone.data = data;
    alone.part = {0, Team::is_inside() ? 1 : parts};
}

void parallel_end() {
    if (alone.depth == 0) return Team::current()->end();
    if (alone.depth == 1) {
        for (int index = 1; index < alone.part.count; ++index) {
            alone.part.index = index;
            alone.function(alone.data);
        }
    }
    --alone.depth;
}

void parallel(Function function, void *data, unsigned threads, unsigned /*flags*/) {
    parallel_start(function, data, threads);
    function(data);
    parallel_end();
}

void barrier() {
    const Part own = part();
    if (own.count == 1) return;
    if (alone.depth == 1) {
        std::fputs("stridewise: oneDNN waits for threads outside of a team\n", stderr);
        std::abort();
    }
    Team::current()->wait_for_all();
}

// Chunks of a given size are dealt out in turn. Without a size, each part gets one, and the first
// ones are larger by one if the iterations cannot be divided equally.
bool loop_next(long *begin, long *end) {
    const auto [index, parts] = part();
    const long direction = loop.step > 0 ? 1 : -1;
    const long count = std::max(0L, (loop.end - loop.begin + loop.step - direction) / loop.step);
    long first = 0, last = 0;
    if (loop.chunk > 0) {
        first = std::min(count, (loop.turn * parts + index) * loop.chunk);
        last = std::min(count, first + loop.chunk);
    } else if (loop.turn == 0) {
        const long least = count / parts, larger = count % parts;
        first = least * index + std::min<long>(index, larger);
        last = first + least + (index < larger ? 1 : 0);
    }
    ++loop.turn;
    *begin = loop.begin + first * loop.step;
    *end = loop.begin + last * loop.step;
    return first < last;
}

bool loop_start(long begin, long end, long step, long chunk, long *first, long *last) {
    loop = {begin, end, step, chunk, 0};
    return loop_next(first, last);
}

void nothing() {}

std::mutex &critical() {
    static std::mutex mutex;
    return mutex;
}

void critical_start() {
    critical().lock();
}

void critical_end() {
    critical().unlock();
}

int thread_number() {
    return part().index;
}

int thread_count() {
    return part().count;
}

int is_in_region() {
    return Team::is_inside() || alone.depth > 0 ? 1 : 0;
}

struct Served {
    std::string_view name;
    void *address;
};

template <class Called>
void *address_of(Called *function) {
    return reinterpret_cast<void *>(function);
}

const Served kServed[] = {
    {"GOMP_parallel", address_of(&parallel)},
    {"GOMP_parallel_start", address_of(&parallel_start)},
    {"GOMP_parallel_end", address_of(&parallel_end)},
    {"GOMP_barrier", address_of(&barrier)},
    {"GOMP_loop_static_start", address_of(&loop_start)},
    {"GOMP_loop_static_next", address_of(&loop_next)},
    {"GOMP_loop_end", address_of(&barrier)},
    {"GOMP_loop_end_nowait", address_of(&nothing)},
    {"GOMP_critical_start", address_of(&critical_start)},
    {"GOMP_critical_end", address_of(&critical_end)},
    {"omp_get_max_threads", address_of(&max_threads)},
    {"omp_get_num_threads", address_of(&thread_count)},
    {"omp_get_thread_num", address_of(&thread_number)},
    {"omp_in_parallel", address_of(&is_in_region)},
};

}  // namespace

void *openmp_function(std::string_view name) {
    const auto *const found = std::find_if(std::begin(kServed), std::end(kServed),
                                           [&](const Served &item) { return item.name == name; });
    return found == std::end(kServed) ? nullptr : found->address;
}

}  // namespace stridewise
