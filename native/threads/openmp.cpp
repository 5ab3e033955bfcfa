#include "threads/openmp.hpp"

#include <sched.h>

#include <stdexcept>

namespace stridewise {
namespace {

// Returns the number of threads that a parallel region gets.
int probe(int threads) {
    std::atomic<int> found{0};
    const auto count = [](void *data) {
        Teams::join();
        ++*static_cast<std::atomic<int> *>(data);
    };
    GOMP_parallel(count, &found, static_cast<unsigned>(threads), 0);
    return found;
}

// A region whose leader waits for its workers.
struct Gathering {
    Places &places;
    std::atomic<int> missing;

    static void enter(void *data) {
        auto &gathering = *static_cast<Gathering *>(data);
        Teams::join();
        gathering.places.enter(omp_get_thread_num());
        --gathering.missing;
        if (omp_get_thread_num() == 0) yield_while(gathering.missing);
    }
};

void limit(void *places) {
    static_cast<Places *>(places)->limit(omp_get_thread_num());
}

}  // namespace

void yield_while(const std::atomic<int> &missing) {
    constexpr int turns = 100;
    for (int turn = 0; turn < turns && missing > 0; ++turn) sched_yield();
}

void gather(int threads, Places &places) {
    Gathering gathering{places, threads};
    GOMP_parallel(&Gathering::enter, &gathering, static_cast<unsigned>(threads), 0);
    if (places.divide()) GOMP_parallel(&limit, &places, static_cast<unsigned>(threads), 0);
}

void prepare_leader(int threads) {
    // Overrides OMP_DYNAMIC and OMP_MAX_ACTIVE_LEVELS. The settings are local to this thread.
    omp_set_dynamic(0);
    if (omp_get_max_active_levels() < 1) omp_set_max_active_levels(1);
    omp_set_num_threads(threads);
    const int found = probe(threads);
    if (found == threads) return;
    throw std::runtime_error("OpenMP gives parallel regions " + std::to_string(found) +
                             " threads instead of " + std::to_string(threads) +
                             " (OMP_THREAD_LIMIT allows " + std::to_string(omp_get_thread_limit()) +
                             "); compile with threads=" + std::to_string(found));
}

}  // namespace stridewise
