// The number of OpenMP threads oneDNN uses, set for a scope.
#pragma once

#include "errors.hpp"

// Declared here and found in whatever OpenMP runtime libdnnl itself was linked to (libgomp or
// libiomp5). A module linked to one of its own could set the threads of the wrong one.
extern "C" {
int omp_get_max_threads();
void omp_set_num_threads(int threads);
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

}  // namespace stridewise
