// Parts of the core that share data between threads, without OpenMP, so that ThreadSanitizer sees
// every synchronization: the gate, the shares of work, the teams and their processors. Built and
// run by tests/runtime/test_native_threads.py, with and without the sanitizer.
#include <sched.h>

#include <atomic>
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
void gather(int) {}

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

void threads_claim_processors_of_their_own() {
    const cpu_set_t before = allowed();
    // More threads than processors: those that find no free one stay where they are.
    Places places;
    std::atomic<int> unchanged{0};
    const int count = CPU_COUNT(&before) + 2;
    in_threads(count, [&](int) {
        places.claim();
        const cpu_set_t after = allowed();
        unchanged += CPU_EQUAL(&before, &after) ? 1 : 0;
    });
    expect(unchanged == count, "claims leave the allowed processors as they were");
}

void a_thread_leaves_a_taken_processor() {
    const cpu_set_t before = allowed();
    in_threads(1, [&](int) {
        // Bound to one processor, the thread has no other place.
        const int processor = sched_getcpu();
        cpu_set_t one;
        CPU_ZERO(&one);
        CPU_SET(processor, &one);
        sched_setaffinity(0, sizeof one, &one);
        Places places;
        places.claim();
        places.claim();
        stridewise::avoid(processor);
        const cpu_set_t bound = allowed();
        expect(CPU_EQUAL(&one, &bound), "a bound thread stays bound");
        expect(sched_getcpu() == processor, "a bound thread stays");
    });
    in_threads(1, [&](int) {
        stridewise::avoid(-1);
        stridewise::avoid(sched_getcpu());
        const cpu_set_t after = allowed();
        expect(CPU_EQUAL(&before, &after), "a thread that moved may use all processors");
    });
}

}  // namespace

int main() {
    every_item_is_taken_once();
    a_gate_lets_few_in();
    teams_run_every_job();
    errors_come_back();
    threads_claim_processors_of_their_own();
    a_thread_leaves_a_taken_processor();
    if (failures == 0) std::printf("passed\n");
    return failures == 0 ? 0 : 1;
}
