// Parallel regions with a known number of threads.
#pragma once

#include <atomic>
#include <exception>
#include <string>
#include <utility>

#include "support/errors.hpp"
#include "threads/teams.hpp"

// Declared here and found in whatever OpenMP runtime libdnnl itself was linked to (libgomp or
// libiomp5). A module linked to one of its own could set the threads of the wrong one.
extern "C" {
int omp_get_max_threads();
void omp_set_num_threads(int threads);
int omp_get_thread_num();
int omp_get_num_threads();
int omp_get_thread_limit();
int omp_get_max_active_levels();
void omp_set_max_active_levels(int levels);
void omp_set_dynamic(int dynamic);
// What compilers make of `#pragma omp parallel`; libiomp5 has it, too. Called by hand, the core
// needs no compiler support for OpenMP, and no runtime but that of libdnnl.
void GOMP_parallel(void (*function)(void *), void *data, unsigned threads, unsigned flags);
}

namespace stridewise {

// Sets the number of OpenMP threads that oneDNN counts on, for a scope.
//
// The setting belongs to the calling thread but the runtime may be shared with other libraries
// in the process (PyTorch reads the same one), so it is put back whatever happens.
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

// Calls `job()` where parallel regions get exactly `threads` threads, and waits for it: on a thread
// of a team, or on the calling thread where it belongs to a team already or needs no region.
//
// Throws what the job throws, and std::runtime_error where OpenMP gives fewer threads. Kernels of
// the library count on the number that they were created for and would leave out parts of results.
template <typename Job>
void with_threads(int threads, const Job &job) {
    if (threads > 1 && !Teams::is_member()) {
        Teams::process().run(
            threads, [](const void *data) { (*static_cast<const Job *>(data))(); }, &job);
        return;
    }
    const ThreadScope scope(threads);
    job();
}

// Calls `body(part, parts)` once for each of up to `threads` parts, at the same time, and throws
// the first exception that one of the calls ended with: none may leave a parallel region by itself.
template <typename Body>
void in_parallel(int threads, const Body &body) {
    require(threads >= 1, "threads: expected at least 1, got " + std::to_string(threads));
    if (threads == 1) return body(0, 1);
    if (!Teams::is_member()) {
        return with_threads(threads, [&] { in_parallel(threads, body); });
    }
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

}  // namespace stridewise
