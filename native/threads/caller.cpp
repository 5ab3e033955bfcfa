#include "threads/caller.hpp"

#include <pthread.h>

#include <atomic>
#include <optional>
#include <vector>

#include "threads/openmp.hpp"
#include "threads/places.hpp"
#include "threads/subnormals.hpp"

namespace stridewise {
namespace {

std::atomic<bool> permitted{false};
// Whether a thread runs jobs. With more than one, their workers would share processors.
std::atomic<bool> taken{false};

// The calling thread and the workers of its regions.
class Caller {
  public:
    Caller() = default;
    ~Caller() {
        if (claims_) taken = false;
    }
    Caller(const Caller &) = delete;
    Caller &operator=(const Caller &) = delete;

    bool run(int threads, Teams::Job job, const void *data) {
        const bool suits = omp_get_level() == 0 && omp_get_max_threads() == threads &&
                           omp_get_dynamic() == 0 && omp_get_max_active_levels() > 0;
        if (!suits || !claim()) return false;
        prepare(threads);
        const Visit visit{*this};
        region(&enter);
        if (missing_ > 0) return false;  // OMP_THREAD_LIMIT
        if (places_.are_shared() && places_.divide()) region(&limit);
        job(data);
        return true;
    }

  private:
    struct Visit {
        Caller &caller;
        ~Visit() { caller.region(&leave); }
    };

    bool claim() {
        bool free = false;
        claims_ = claims_ || taken.compare_exchange_strong(free, true);
        return claims_;
    }

    void prepare(int threads) {
        if (flushed_.size() != static_cast<std::size_t>(threads)) {
            flushed_ =
                std::vector<std::optional<SubnormalsFlushed>>(static_cast<std::size_t>(threads));
        }
        threads_ = threads;
        missing_ = threads;
        places_.reset(threads);
    }

    void region(void (*function)(void *)) {
        GOMP_parallel(function, this, static_cast<unsigned>(threads_), 0);
    }

    static void enter(void *self) {
        auto &caller = *static_cast<Caller *>(self);
        const int thread = omp_get_thread_num();
        Teams::join();
        caller.flushed_[static_cast<std::size_t>(thread)].emplace();
        caller.places_.enter(thread);
        --caller.missing_;
        if (thread == 0) yield_while(caller.missing_);
    }

    static void limit(void *self) {
        static_cast<Caller *>(self)->places_.limit(omp_get_thread_num());
    }

    static void leave(void *self) {
        auto &caller = *static_cast<Caller *>(self);
        caller.flushed_[static_cast<std::size_t>(omp_get_thread_num())].reset();
        Places::leave();
        Teams::quit();
    }

    bool claims_ = false;
    int threads_ = 0;
    std::atomic<int> missing_{0};
    std::vector<std::optional<SubnormalsFlushed>> flushed_;
    Places places_;
};

}  // namespace

void permit_callers() {
    static const int registered = pthread_atfork(nullptr, nullptr, [] { permitted = false; });
    if (registered == 0) permitted = true;
}

bool run_on_caller(int threads, Teams::Job job, const void *data) {
    if (!permitted) return false;
    thread_local Caller caller;
    if (!caller.run(threads, job, data)) return false;
    // Their workers count, too.
    Teams::process().retire();
    return true;
}

}  // namespace stridewise
