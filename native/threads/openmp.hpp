// Parallel regions with a known number of threads.
#pragma once

#include <atomic>
#include <exception>
#include <optional>
#include <string>
#include <utility>

#include "support/errors.hpp"
#include "threads/caller.hpp"
#include "threads/subnormals.hpp"
#include "threads/teams.hpp"

// Declared here and resolved in the OpenMP runtime that libdnnl is linked to (libgomp or libiomp5).
// If this module were linked to another runtime, it would set the threads of the wrong one.
extern "C" {
int omp_get_max_threads();
void omp_set_num_threads(int threads);
int omp_get_thread_num();
int omp_get_num_threads();
int omp_get_thread_limit();
int omp_get_level();
int omp_get_dynamic();
int omp_get_max_active_levels();
void omp_set_max_active_levels(int levels);
void omp_set_dynamic(int dynamic);
// The function that compilers call for `#pragma omp parallel`; libiomp5 has it, too. A direct call
// needs neither compiler support for OpenMP nor another runtime than that of libdnnl.
void GOMP_parallel(void (*function)(void *), void *data, unsigned threads, unsigned flags);
}

namespace stridewise {

// Sets the number of OpenMP threads that oneDNN uses, for a scope.
//
// The setting is local to the calling thread, but other libraries of the process may use the same
// runtime (PyTorch does), so it is always restored.
class ThreadScope {
  public:
    explicit ThreadScope(int threads) : previous_(omp_get_max_threads()) {
        require(threads >= 1, "threads: expected at least 1, got " + std::to_string(threads));
        changed_ = threads != previous_;
        if (changed_) omp_set_num_threads(threads);
    }
    ~ThreadScope() {
        if (changed_) omp_set_num_threads(previous_);
    }
    ThreadScope(const ThreadScope &) = delete;
    ThreadScope &operator=(const ThreadScope &) = delete;

  private:
    int previous_;
    bool changed_;
};

// Calls `job()` on a thread whose parallel regions get exactly `threads` threads, and waits for it:
// on a thread of a team, or on the calling thread if it belongs to a team, needs no region or may
// enter regions itself (`run_on_caller`). The job reads and writes subnormal numbers as zero.
//
// Throws what the job throws, and std::runtime_error if OpenMP gives fewer threads. oneDNN's
// kernels rely on the number that they were created for and would skip parts of results.
template <typename Job>
void with_threads(int threads, const Job &job) {
    if (threads > 1 && !Teams::is_member()) {
        const auto call = [](const void *data) { (*static_cast<const Job *>(data))(); };
        if (!run_on_caller(threads, call, &job)) Teams::process().run(threads, call, &job);
        return;
    }
    const ThreadScope scope(threads);
    const SubnormalsFlushed flushed;
    job();
}

// Returns `make()`, called with `threads` OpenMP threads: on a thread of its own if it may enter
// regions, as the library's shuffles do when they are created (`run_apart`).
template <typename Make>
auto made_apart(int threads, const Make &make) {
    if (threads == 1 || Teams::is_member()) {
        const ThreadScope scope(threads);
        return make();
    }
    std::optional<decltype(make())> made;
    const auto job = [&] {
        const ThreadScope scope(threads);
        made.emplace(make());
    };
    run_apart([](const void *data) { (*static_cast<decltype(job) *>(data))(); }, &job);
    return std::move(*made);
}

// Yields the processor to workers that wait for it, for the some 50 us that waking takes, until
// none is missing.
void yield_while(const std::atomic<int> &missing);

// Calls `body(part, parts)` on each thread of a new parallel region. Rethrows the first exception
// after the region, because no exception may leave it.
template <typename Body>
void in_region(int threads, const Body &body) {
    struct Region {
        const Body &body;
        std::atomic_flag failed = ATOMIC_FLAG_INIT;
        std::exception_ptr error = nullptr;

        static void enter(void *data) {
            auto &region = *static_cast<Region *>(data);
            Teams::join();
            try {
                region.body(omp_get_thread_num(), omp_get_num_threads());
            } catch (...) {
                if (!region.failed.test_and_set()) region.error = std::current_exception();
            }
        }
    };
    Region region{body};
    GOMP_parallel(&Region::enter, &region, static_cast<unsigned>(threads), 0);
    if (region.error) std::rethrow_exception(region.error);
}

// Calls `body(part, parts)` concurrently, once for each of up to `threads` parts, which read and
// write subnormal numbers as zero.
template <typename Body>
void in_parallel(int threads, const Body &body) {
    require(threads >= 1, "threads: expected at least 1, got " + std::to_string(threads));
    if (threads == 1) {
        const SubnormalsFlushed flushed;
        return body(0, 1);
    }
    if (!Teams::is_member()) {
        return with_threads(threads, [&] { in_parallel(threads, body); });
    }
    in_region(threads, body);
}

}  // namespace stridewise
