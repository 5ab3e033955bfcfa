#include "threads/teams.hpp"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>

#include "threads/processors.hpp"
#include "threads/subnormals.hpp"
#include "threads/team.hpp"

namespace stridewise {
namespace {

// Blocks signals in new threads, so that only threads of the application receive them.
class SignalsBlocked {
  public:
    SignalsBlocked() {
        sigset_t all;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before_);
    }
    ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
    SignalsBlocked(const SignalsBlocked &) = delete;
    SignalsBlocked &operator=(const SignalsBlocked &) = delete;

  private:
    sigset_t before_;
};

// One team per processor that the process may use. More teams would share processors.
Teams *teams_of_process() {
    return new Teams(std::max(2, processor_count()));
}

// Never destroyed, because its threads wait for jobs until the process ends.
std::atomic<Teams *> &current() {
    static std::atomic<Teams *> teams{teams_of_process()};
    static const int registered = pthread_atfork(nullptr, nullptr, [] {
        Team::forget_others();
        current().store(teams_of_process());
    });
    static_cast<void>(registered);
    return teams;
}

}  // namespace

// A team with its workers.
class Teams::Crew {
  public:
    explicit Crew(int threads) : team_(threads) {
        workers_.reserve(static_cast<std::size_t>(threads));
        const SignalsBlocked blocked;
        try {
            for (int index = 1; index < threads; ++index) {
                workers_.emplace_back([this, index] {
                    const SubnormalsFlushed flushed;
                    team_.serve(index);
                });
            }
        } catch (const std::system_error &error) {
            end();
            throw std::runtime_error(std::string("no thread could be started: ") + error.what());
        }
    }
    ~Crew() { end(); }
    Crew(const Crew &) = delete;
    Crew &operator=(const Crew &) = delete;

    int threads() const { return team_.threads(); }

    void run(Job job, const void *data) {
        processors_.divide(workers_);
        const Team::Primary primary(team_);
        const SubnormalsFlushed flushed;
        job(data);
    }

  private:
    void end() {
        team_.dismiss();
        for (std::thread &worker : workers_) worker.join();
    }

    Team team_;
    Processors processors_;
    std::vector<std::thread> workers_;
};

Teams::Teams(int most) : most_(most) {
    // Returning a team must not allocate, because it must not fail.
    crews_.reserve(static_cast<std::size_t>(most));
    idle_.reserve(static_cast<std::size_t>(most));
}

Teams::~Teams() = default;

Teams &Teams::process() {
    return *current().load();
}

Teams::Crew &Teams::acquire(int threads) {
    std::unique_ptr<Crew> other;  // ends after the lock is released
    std::unique_lock lock(mutex_);
    while (true) {
        // The most recently used team, whose workers may still be awake.
        const auto found = std::find_if(idle_.rbegin(), idle_.rend(), [&](const Crew *crew) {
            return crew->threads() == threads;
        });
        if (found != idle_.rend()) {
            Crew &crew = **found;
            idle_.erase(std::next(found).base());
            return crew;
        }
        if (static_cast<int>(crews_.size()) == most_ && !idle_.empty()) {
            const auto owner = std::find_if(crews_.begin(), crews_.end(), [&](const auto &crew) {
                return crew.get() == idle_.front();
            });
            idle_.erase(idle_.begin());
            other = std::move(*owner);
            crews_.erase(owner);
        }
        if (static_cast<int>(crews_.size()) < most_) {
            crews_.push_back(std::make_unique<Crew>(threads));
            return *crews_.back();
        }
        released_.wait(lock);
    }
}

void Teams::release(Crew &crew) {
    {
        const std::lock_guard lock(mutex_);
        idle_.push_back(&crew);
    }
    released_.notify_one();
}

void Teams::run(int threads, Job job, const void *data) {
    struct Held {
        Teams &teams;
        Crew &crew;
        ~Held() { teams.release(crew); }
    };
    const Held held{*this, acquire(threads)};
    held.crew.run(job, data);
}

int Teams::count() {
    const std::lock_guard lock(mutex_);
    return static_cast<int>(crews_.size());
}

}  // namespace stridewise
