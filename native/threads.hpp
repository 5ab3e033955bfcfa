// The number of OpenMP threads oneDNN uses, set for a scope.
#pragma once

#include "errors.hpp"

// Declared here and found in whatever OpenMP runtime libdnnl itself was linked to (libgomp or
// libiomp5). A module linked to one of its own could set the threads of the wrong one.
extern "C" {
int omp_get_max_threads();
void omp_set_num_threads(int threads);
int omp_get_thread_num();
int omp_get_num_threads();
// What compilers make of `#pragma omp parallel`; libiomp5 has it, too. Called by hand, the core
// needs no compiler support for OpenMP, and no runtime but that of libdnnl.
void GOMP_parallel(void (*function)(void *), void *data, unsigned threads, unsigned flags);
}

namespace stridewise {

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

// Calls `body(part, parts)` once for each of up to `threads` parts, at the same time. The body must
// not throw.
template <typename Body>
void in_parallel(int threads, const Body &body) {
    require(threads >= 1, "threads: expected at least 1, got " + std::to_string(threads));
    if (threads == 1) return body(0, 1);
    const auto enter = [](void *data) {
        (*static_cast<const Body *>(data))(omp_get_thread_num(), omp_get_num_threads());
    };
    GOMP_parallel(enter, const_cast<Body *>(&body), static_cast<unsigned>(threads), 0);
}

}  // namespace stridewise
