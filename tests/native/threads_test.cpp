// Parts of the core that share data between threads, without OpenMP, so that ThreadSanitizer sees
// every synchronization: the gate, the shares of work, the teams and their processors. Built and
// run by tests/runtime/test_native_threads.py, with and without the sanitizer.
#include <sched.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <stdexcept>
#include <thread>
#include <vector>

#include "executor/gate.hpp"
#include "threads/places.hpp"
#include "threads/shares.hpp"
#include "threads/teams.hpp"

namespace stridewise {

// Without OpenMP there are no regions to prepare for, and no workers.
void gather(int, Places &) {}

void prepare_leader(int threads) {
    if (threads > 100) throw std::runtime_error("too many threads");
}

}  // namespace stridewise

namespace {

using stridewise::Gate;
using stridewise::Places;
using stridewise::Shares;
using stridewise::Teams;

int failures = 0;

void expect(bool holds, const char *what) {
    if (holds) return;
    std::printf("failed: %s\n", what);
    ++failures;
}

template <class Body>
void in_threads(int count, const Body &body) {
    std::vector<std::thread> threads;
    for (int i = 0; i < count; ++i) threads.emplace_back([&body, i] { body(i); });
    for (auto &thread : threads) thread.join();
}

void every_item_is_taken_once() {
    for (const int parts : {1, 2, 3, 7}) {
        for (const std::int64_t count : {0, 1, 5, 1000}) {
            Shares shares(count, parts);
            std::vector<std::atomic<int>> taken(static_cast<std::size_t>(count));
            in_threads(parts, [&](int part) {
                for (std::int64_t item; (item = shares.next(part)) >= 0;) {
                    ++taken[static_cast<std::size_t>(item)];
                }
            });
            for (const auto &times : taken) expect(times == 1, "an item is taken once");
        }
    }
}

void a_gate_lets_few_in() {
    for (const int width : {1, 3}) {
        Gate gate(width);
        std::atomic<int> inside{0}, most{0};
        in_threads(8, [&](int) {
            for (int i = 0; i < 200; ++i) {
                gate.enter();
                const int now = ++inside;
                for (int seen = most; now > seen && !most.compare_exchange_weak(seen, now);) {
                }
                --inside;
                gate.leave();
            }
        });
        expect(most <= width, "no more are inside than the gate is wide");
        expect(inside == 0, "all have left");
    }
}

struct Count {
    std::vector<int> &results;
    int caller;
};

void teams_run_every_job() {
    // Threads of teams last as long as the process, and so must the teams.
    static Teams &teams = *new Teams(3);
    std::vector<int> results(8);
    in_threads(8, [&](int caller) {
        const Count count{results, caller};
        for (int i = 0; i < 200; ++i) {
            teams.run(
                1 + i % 4,
                [](const void *data) {
                    const auto &job = *static_cast<const Count *>(data);
                    // Not atomic: a caller's jobs run one after the other.
                    ++job.results[static_cast<std::size_t>(job.caller)];
                },
                &count);
        }
    });
    for (const int result : results) expect(result == 200, "every job ran");
    expect(teams.count() <= 3, "there are no more threads than allowed");
    expect(!Teams::is_member(), "callers are no members");
}

void idle_teams_end() {
    static Teams &teams = *new Teams(3);
    const auto job = [](const void *) {};
    in_threads(3, [&](int) { teams.run(1, job, nullptr); });
    const int before = teams.count();
    teams.retire();
    expect(before > 0 && teams.count() == before, "teams that were busy a moment ago remain");
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    in_threads(8, [&](int caller) {
        for (int i = 0; i < 20; ++i) {
            teams.run(1, job, nullptr);
            if (caller % 2 == 0) teams.retire();
        }
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    teams.retire();
    expect(teams.count() == 0, "idle teams end");
    teams.run(1, job, nullptr);
    expect(teams.count() == 1, "others begin");
}

void teams_beyond_the_processors_end() {
    static Teams &teams = *new Teams(2);
    const auto job = [](const void *) {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
    };
    in_threads(2, [&](int) { teams.run(2, job, nullptr); });
    expect(teams.count() == 2, "two jobs at once have a team each");
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    teams.run(2, job, nullptr);
    expect(teams.count() == 1, "the team that is not needed ends");
}

void errors_come_back() {
    static Teams &teams = *new Teams(1);
    int ran = 0;
    for (int i = 0; i < 3; ++i) {
        try {
            teams.run(1, [](const void *) { throw std::invalid_argument("job"); }, nullptr);
        } catch (const std::invalid_argument &) {
            ++ran;
        }
        try {
            teams.run(101, [](const void *) {}, nullptr);
        } catch (const std::runtime_error &) {
            ++ran;
        }
    }
    expect(ran == 6, "errors of jobs and of their preparation reach the caller");
    teams.run(
        1,
        [](const void *data) {
            expect(Teams::is_member(), "a leader is a member");
            static_cast<void>(data);
        },
        nullptr);
}

cpu_set_t allowed() {
    cpu_set_t found;
    CPU_ZERO(&found);
    sched_getaffinity(0, sizeof found, &found);
    return found;
}

cpu_set_t only(int processor) {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(processor, &one);
    return one;
}

// Threads with barriers between the phases of a division, as in regions.
class Team {
  public:
    explicit Team(int threads) : threads_(threads) { places_.reset(threads); }

    template <typename Body>
    void run(const Body &body) {
        in_threads(threads_, body);
    }

    // Called by every thread. Returns whether anything had to change.
    bool divide(int thread) {
        places_.enter(thread);
        wait();
        if (thread == 0) changed_ = places_.divide();
        wait();
        if (changed_) places_.limit(thread);
        wait();
        return changed_;
    }

  private:
    void wait() {
        const int turn = turn_;
        if (++arrived_ == threads_) {
            arrived_ = 0;
            ++turn_;
        } else {
            while (turn_ == turn) std::this_thread::yield();
        }
    }

    Places places_;
    int threads_;
    bool changed_ = false;
    std::atomic<int> arrived_{0}, turn_{0};
};

void threads_divide_processors() {
    const cpu_set_t all = allowed();
    const int processors = CPU_COUNT(&all);
    for (int threads = 2; threads <= processors; ++threads) {
        Team team(threads);
        std::vector<int> used(static_cast<std::size_t>(threads));
        team.run([&](int thread) {
            expect(team.divide(thread), "threads begin with all processors");
            expect(!team.divide(thread), "a division lasts");
            const cpu_set_t part = allowed();
            cpu_set_t both;
            CPU_AND(&both, &all, &part);
            expect(CPU_EQUAL(&both, &part), "no thread gets other processors than before");
            expect(CPU_COUNT(&part) == processors - threads + 1,
                   "a thread has its own processor and those of no other thread");
            used[static_cast<std::size_t>(thread)] = sched_getcpu();
        });
        for (std::size_t i = 0; i < used.size() && threads == processors; ++i) {
            for (std::size_t k = 0; k < i; ++k) expect(used[i] != used[k], "threads run apart");
        }
    }
}

void threads_share_too_few_processors() {
    const cpu_set_t all = allowed();
    Team many(CPU_COUNT(&all) + 2);
    many.run(
        [&](int thread) { expect(!many.divide(thread), "without one for each, threads use all"); });
    const cpu_set_t one = only(sched_getcpu());
    Team bound(3);
    bound.run([&](int thread) {
        sched_setaffinity(0, sizeof one, &one);
        expect(!bound.divide(thread), "bound threads stay bound");
    });
}

void changes_from_outside_are_kept() {
    const cpu_set_t all = allowed();
    if (CPU_COUNT(&all) < 2) return;
    Team team(2);
    const cpu_set_t one = only(sched_getcpu());
    team.run([&](int thread) {
        team.divide(thread);
        // One of the threads may already be limited to this processor.
        sched_setaffinity(0, sizeof one, &one);
        expect(team.divide(thread), "the change is seen");
        expect(!team.divide(thread), "the change lasts");
        const cpu_set_t bound = allowed();
        expect(CPU_EQUAL(&one, &bound), "threads bound from outside stay bound");
        sched_setaffinity(0, sizeof all, &all);
        team.divide(thread);
        const cpu_set_t part = allowed();
        expect(CPU_COUNT(&part) == CPU_COUNT(&all) - 1, "threads freed from outside divide again");
    });
}

void a_new_team_begins_with_all_processors() {
    const cpu_set_t all = allowed();
    Team team(2);
    team.run([&](int thread) {
        team.divide(thread);
        Places others;
        others.reset(3);
        const cpu_set_t after = allowed();
        expect(CPU_EQUAL(&all, &after), "a new team begins with all processors");
    });
}

}  // namespace

int main() {
    every_item_is_taken_once();
    a_gate_lets_few_in();
    teams_run_every_job();
    idle_teams_end();
    teams_beyond_the_processors_end();
    errors_come_back();
    threads_divide_processors();
    threads_share_too_few_processors();
    changes_from_outside_are_kept();
    a_new_team_begins_with_all_processors();
    if (failures == 0) std::printf("passed\n");
    return failures == 0 ? 0 : 1;
}
