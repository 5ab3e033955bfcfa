#include "threads/openmp.hpp"

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

}  // namespace

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
