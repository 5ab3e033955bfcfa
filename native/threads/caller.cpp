#include "threads/caller.hpp"

#include <pthread.h>
#include <sched.h>

#include <atomic>
#include <exception>
#include <optional>
#include <utility>

#include "threads/processors.hpp"
#include "threads/subnormals.hpp"
#include "threads/team.hpp"

// Of the OpenMP runtime of the process, which libdnnl is linked to.
extern "C" {
int omp_get_max_threads();
int omp_get_thread_num();
int omp_get_num_threads();
int omp_get_level();
int omp_get_dynamic();
int omp_get_max_active_levels();
// What compilers call for `#pragma omp parallel`.
void GOMP_parallel(void (*function)(void *), void *data, unsigned threads, unsigned flags);
}

namespace stridewise {
namespace {

std::atomic<bool> permitted{false};
// Whether a thread runs jobs. With more than one, their workers would share processors.
std::atomic<bool> taken{false};

// A thread and the workers of its regions. A job is one region of OpenMP.
class Caller {
  public:
    Caller() = default;
    ~Caller() {
        if (claims_) taken = false;
    }
    Caller(const Caller &) = delete;
    Caller &operator=(const Caller &) = delete;

    bool run(int threads, Teams::Job job, const void *data) {
        const bool suits = omp_get_level() == 0 && ::omp_get_max_threads() == threads &&
                           omp_get_dynamic() == 0 && omp_get_max_active_levels() > 0;
        if (!suits || !claim()) return false;
        if (!team_ || team_->threads() != threads) team_.emplace(threads);
        team_->expect_workers();
        job_ = job;
        data_ = data;
        ran_ = false;
        processor_ = sched_getcpu();
        GOMP_parallel(&enter, this, static_cast<unsigned>(threads), 0);
        if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
        return ran_;
    }

  private:
    bool claim() {
        bool free = false;
        claims_ = claims_ || taken.compare_exchange_strong(free, true);
        return claims_;
    }

    static void enter(void *self) {
        auto &caller = *static_cast<Caller *>(self);
        // OMP_THREAD_LIMIT
        if (omp_get_num_threads() != caller.team_->threads()) return;
        const int thread = omp_get_thread_num();
        const SubnormalsFlushed flushed;
        if (thread == 0) return caller.lead();
        const KeptAway apart(caller.processor_);
        caller.team_->serve(thread);
    }

    void lead() {
        {
            const Team::Primary primary(*team_);
            try {
                job_(data_);
            } catch (...) {
                error_ = std::current_exception();
            }
            ran_ = true;
        }
        team_->dismiss();
    }

    bool claims_ = false, ran_ = false;
    std::optional<Team> team_;
    Teams::Job job_ = nullptr;
    const void *data_ = nullptr;
    int processor_ = -1;
    std::exception_ptr error_;
};

}  // namespace

void permit_callers() {
    static const int registered = pthread_atfork(nullptr, nullptr, [] { permitted = false; });
    if (registered == 0) permitted = true;
}

bool run_on_caller(int threads, Teams::Job job, const void *data) {
    if (!permitted) return false;
    thread_local Caller caller;
    return caller.run(threads, job, data);
}

}  // namespace stridewise
