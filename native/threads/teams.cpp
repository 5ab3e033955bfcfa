#include "threads/teams.hpp"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "threads/subnormals.hpp"

namespace stridewise {
namespace {

thread_local bool member = false;

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

// Starts a thread. Throws std::runtime_error if that fails.
template <typename Body>
std::thread started(const Body &body) {
    const SignalsBlocked blocked;
    try {
        return std::thread(body);
    } catch (const std::system_error &error) {
        throw std::runtime_error(std::string("no thread could be started: ") + error.what());
    }
}

// One team per processor that the process may use. More teams would share processors.
int most_teams() {
    cpu_set_t allowed;
    CPU_ZERO(&allowed);
    constexpr int fewest = 2;
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return fewest;
    return std::max(fewest, CPU_COUNT(&allowed));
}

// Never destroyed, because its threads wait for jobs until the process ends.
std::atomic<Teams *> &current() {
    static std::atomic<Teams *> teams{new Teams(most_teams())};
    static const int registered =
        pthread_atfork(nullptr, nullptr, [] { current().store(new Teams(most_teams())); });
    static_cast<void>(registered);
    return teams;
}

}  // namespace

// A thread that runs one job at a time.
class Teams::Leader {
  public:
    Leader() : thread_(started([this] { serve(); })) {}
    // Ends the thread, which is idle.
    ~Leader() {
        job_ = nullptr;
        pass(State::posted, changed_);
        thread_.join();
    }
    Leader(const Leader &) = delete;
    Leader &operator=(const Leader &) = delete;

    int threads() const { return threads_; }

    // When its last job ended; the thread is idle.
    std::chrono::steady_clock::time_point ended() const { return ended_; }

    void run(int threads, Job job, const void *data) {
        wanted_ = threads;
        job_ = job;
        data_ = data;
        pass(State::posted, changed_);
        await(State::done, done_, kCaller);
        state_ = State::idle;
        if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
    }

  private:
    // Handshake: one side writes the data before it sets the state that lets the other side read
    // it.
    enum class State { idle, posted, done };

    void pass(State state, std::condition_variable &waiting) {
        {
            const std::lock_guard lock(mutex_);
            state_ = state;
        }
        waiting.notify_one();
    }

    // Spins before it sleeps, because waking a thread takes as long as a small model. It yields
    // while spinning, because the workers of a region may need this processor.
    void await(State state, std::condition_variable &waiting, std::chrono::microseconds awake) {
        const auto end = std::chrono::steady_clock::now() + awake;
        while (state_ != state && std::chrono::steady_clock::now() < end) std::this_thread::yield();
        if (state_ == state) return;
        std::unique_lock lock(mutex_);
        waiting.wait(lock, [&] { return state_ == state; });
    }

    void serve() {
        join();
        const SubnormalsFlushed flushed;  // also in the workers, which this thread starts
        while (true) {
            await(State::posted, changed_, kLeader);
            if (job_ == nullptr) return;
            execute();
            pass(State::done, done_);
        }
    }

    void execute() {
        try {
            if (threads_ != wanted_) {
                threads_ = 0;
                places_.reset(wanted_);
                prepare_leader(wanted_);
                threads_ = wanted_;
                ended_ = {};
            }
            if (std::chrono::steady_clock::now() > ended_ + kWorkers) gather(wanted_, places_);
            job_(data_);
        } catch (...) {
            error_ = std::current_exception();
        }
        ended_ = std::chrono::steady_clock::now();
    }

    // A caller that spins longer would keep this processor from a worker of its own run.
    static constexpr std::chrono::microseconds kCaller{10}, kLeader{50};
    // Workers that have waited for less time are still awake.
    static constexpr std::chrono::microseconds kWorkers{100};

    std::mutex mutex_;
    std::condition_variable changed_, done_;
    std::atomic<State> state_{State::idle};
    Job job_ = nullptr;
    const void *data_ = nullptr;
    int wanted_ = 0;
    std::exception_ptr error_;
    Places places_;
    std::atomic<int> threads_{0};                  // threads of its regions; 0 before the first job
    std::chrono::steady_clock::time_point ended_;  // when its last job ended
    std::thread thread_;
};

Teams::Teams(int most) : most_(most) {
    // Returning a leader must not allocate, because it must not fail.
    leaders_.reserve(static_cast<std::size_t>(most));
    idle_.reserve(static_cast<std::size_t>(most));
}

Teams &Teams::process() {
    return *current().load();
}

bool Teams::is_member() {
    return member;
}

void Teams::join() {
    member = true;
}

void Teams::quit() {
    member = false;
}

Teams::Leader &Teams::acquire(int threads) {
    std::unique_lock lock(mutex_);
    while (true) {
        // The most recently used leader, whose workers may still be awake.
        const auto found = std::find_if(idle_.rbegin(), idle_.rend(), [&](const Leader *leader) {
            return leader->threads() == threads;
        });
        if (found != idle_.rend()) {
            Leader &leader = **found;
            idle_.erase(std::next(found).base());
            return leader;
        }
        if (static_cast<int>(leaders_.size()) < most_) {
            leaders_.push_back(std::make_unique<Leader>());
            return *leaders_.back();
        }
        if (!idle_.empty()) {
            Leader &leader = *idle_.back();
            idle_.pop_back();
            return leader;
        }
        released_.wait(lock);
    }
}

void Teams::release(Leader &leader) {
    {
        const std::lock_guard lock(mutex_);
        idle_.push_back(&leader);
    }
    released_.notify_one();
}

void Teams::run(int threads, Job job, const void *data) {
    struct Held {
        Teams &teams;
        Leader &leader;
        ~Held() { teams.release(leader); }
    };
    const Held held{*this, acquire(threads)};
    if (is_crowded()) retire();
    held.leader.run(threads, job, data);
}

bool Teams::is_crowded() {
    const std::lock_guard lock(mutex_);
    int threads = 0;
    for (const auto &leader : leaders_) threads += std::max(1, leader->threads());
    return leaders_.size() > 1 && threads > most_;
}

void Teams::retire() {
    constexpr std::chrono::milliseconds kIdle{100};
    std::vector<std::unique_ptr<Leader>> over;  // ended after the lock is released
    const std::lock_guard lock(mutex_);
    over.reserve(leaders_.size());
    const auto latest = std::chrono::steady_clock::now() - kIdle;
    for (auto &leader : leaders_) {
        const auto found = std::find(idle_.begin(), idle_.end(), leader.get());
        if (found == idle_.end() || leader->ended() > latest) continue;
        idle_.erase(found);
        over.push_back(std::move(leader));
    }
    leaders_.erase(std::remove(leaders_.begin(), leaders_.end(), nullptr), leaders_.end());
}

int Teams::count() {
    const std::lock_guard lock(mutex_);
    return static_cast<int>(leaders_.size());
}

void run_apart(Teams::Job job, const void *data) {
    std::exception_ptr error;
    started([&] {
        try {
            job(data);
        } catch (...) {
            error = std::current_exception();
        }
    }).join();
    if (error) std::rethrow_exception(error);
}

}  // namespace stridewise
