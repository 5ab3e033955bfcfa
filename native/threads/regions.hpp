// Parallel regions with a known number of threads.
#pragma once

#include <atomic>
#include <exception>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

#include "support/require.hpp"
#include "threads/caller.hpp"
#include "threads/subnormals.hpp"
#include "threads/team.hpp"
#include "threads/teams.hpp"

namespace stridewise {

// Calls `job()` on the calling thread, as the primary thread of a team of `threads` threads. The
// regions of the job have that many threads, and oneDNN divides its work by that number. The job
// reads and writes subnormal numbers as zero. Inside of a region, and of another job, no team is
// acquired.
//
// Throws what the job throws, std::runtime_error if a thread cannot be started, and
// std::logic_error inside of a job with fewer threads.
template <typename Job>
void with_threads(int threads, const Job &job) {
    const ThreadScope scope(threads);
    const Team *team = Team::current();
    if (team != nullptr && !Team::is_inside() && team->threads() < threads) {
        throw std::logic_error("a job of " + std::to_string(threads) + " threads in one of " +
                               std::to_string(team->threads()));
    }
    if (threads == 1 || team != nullptr) {
        const SubnormalsFlushed flushed;
        return job();
    }
    const auto call = [](const void *data) { (*static_cast<const Job *>(data))(); };
    if (!run_on_caller(threads, call, &job)) Teams::process().run(threads, call, &job);
}

// Returns `make()`, called with `threads` threads. The library enters regions when it creates some
// primitives.
template <typename Make>
auto made_with_threads(int threads, const Make &make) {
    std::optional<decltype(make())> made;
    with_threads(threads, [&] { made.emplace(make()); });
    return std::move(*made);
}

// A region's body, and the first exception of its parts, because none may leave a region.
template <typename Body>
class Guarded {
  public:
    explicit Guarded(const Body &body) : body_(body) {}

    static void enter(void *data) {
        auto &guarded = *static_cast<Guarded *>(data);
        const Part part = Team::part();
        try {
            guarded.body_(part.index, part.count);
        } catch (...) {
            if (!guarded.failed_.test_and_set()) guarded.error_ = std::current_exception();
        }
    }
    void rethrow() const {
        if (error_) std::rethrow_exception(error_);
    }

  private:
    const Body &body_;
    std::atomic_flag failed_ = ATOMIC_FLAG_INIT;
    std::exception_ptr error_ = nullptr;
};

// Calls `body(part, parts)` for each part of a new region, on whichever threads of the team are
// awake. Rethrows the first exception after the region. Outside of a job, and inside of a region,
// there is one part.
template <typename Body>
void in_region(int threads, const Body &body) {
    Team *team = Team::current();
    if (threads == 1 || team == nullptr || Team::is_inside()) {
        const Team::Single single;
        return body(0, 1);
    }
    Guarded<Body> guarded(body);
    team->run(&Guarded<Body>::enter, &guarded, threads);
    guarded.rethrow();
}

// Calls `body(part, parts)` concurrently, once for each of up to `threads` parts, which read and
// write subnormal numbers as zero.
template <typename Body>
void in_parallel(int threads, const Body &body) {
    with_threads(threads, [&] { in_region(threads, body); });
}

// Calls `body(thread)` on each thread of a team of `threads` threads, from 0 on.
template <typename Body>
void on_each_thread(int threads, const Body &body) {
    with_threads(threads, [&] {
        Team *team = Team::current();
        if (threads == 1 || team == nullptr || Team::is_inside()) return body(0);
        const auto call = [&](int part, int /*parts*/) { body(part); };
        Guarded<decltype(call)> guarded(call);
        team->run_on_each(&Guarded<decltype(call)>::enter, &guarded);
        guarded.rethrow();
    });
}

}  // namespace stridewise
