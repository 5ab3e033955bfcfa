// Parts of the core that share data between threads, without a model, so that ThreadSanitizer sees
// every synchronization: the gate, the shares of work, the teams and their processors. Built and
// run by tests/runtime/test_native_threads.py, with and without the sanitizer.
#include <pthread.h>
#include <sched.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <stdexcept>
#include <thread>
#include <vector>

#include "executor/gate.hpp"
#include "threads/openmp.hpp"
#include "threads/processors.hpp"
#include "threads/shares.hpp"
#include "threads/team.hpp"
#include "threads/teams.hpp"

namespace {

using stridewise::Gate;
using stridewise::KeptAway;
using stridewise::Processors;
using stridewise::Shares;
using stridewise::Team;
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
    expect(teams.count() <= 3, "there are no more teams than allowed");
    expect(Team::current() == nullptr, "callers belong to no team after their jobs");
}

void errors_come_back() {
    Teams teams(1);
    int ran = 0;
    for (int i = 0; i < 3; ++i) {
        try {
            teams.run(1 + i, [](const void *) { throw std::invalid_argument("job"); }, nullptr);
        } catch (const std::invalid_argument &) {
            ++ran;
        }
    }
    expect(ran == 3, "errors of jobs reach the caller");
    expect(teams.count() == 1, "a team that has to have more threads replaces another");
}

// What the parts of a region write. Not atomic: regions synchronize their threads.
struct Written {
    std::vector<int> parts, threads;
    std::vector<std::thread::id> ids;
    int waits = 0;
    bool late = false;

    static void enter(void *data) {
        auto &written = *static_cast<Written *>(data);
        const auto [index, count] = Team::part();
        const auto at = static_cast<std::size_t>(index);
        if (written.late && index > 0) {
            std::this_thread::sleep_for(std::chrono::microseconds(50));
        }
        written.ids[at] = std::this_thread::get_id();
        ++written.parts[at];
        for (int i = 0; i < written.waits; ++i) {
            Team::current()->wait_for_all();
            // Before the next barrier, all parts have come to this one.
            if (i % 2 == 0)
                written.threads[at] =
                    written.parts[static_cast<std::size_t>((index + 1 + i) % count)];
        }
    }
};

// Calls `body(team, written)` on the primary thread of a team that other threads work for.
template <class Body>
void with_workers(int threads, const Body &body) {
    Team team(threads);
    std::vector<std::thread> workers;
    for (int index = 1; index < threads; ++index) {
        workers.emplace_back([&team, index] { team.serve(index); });
    }
    {
        const Team::Primary primary(team);
        Written written;
        written.parts.assign(static_cast<std::size_t>(threads), 0);
        written.threads.assign(static_cast<std::size_t>(threads), 0);
        written.ids.resize(static_cast<std::size_t>(threads));
        body(team, written);
    }
    team.dismiss();
    for (std::thread &worker : workers) worker.join();
}

void every_part_runs_once() {
    for (const int threads : {1, 2, 3, 8}) {
        with_workers(threads, [&](Team &team, Written &written) {
            constexpr int regions = 2000;
            for (int region = 1; region <= regions; ++region) {
                written.late = region % 100 == 0;
                const int parts = 1 + region % threads;
                const std::vector<int> before = written.parts;
                team.run(&Written::enter, &written, parts);
                for (int part = 0; part < threads; ++part) {
                    const auto at = static_cast<std::size_t>(part);
                    expect(written.parts[at] == before[at] + (part < parts ? 1 : 0),
                           "each part of a region runs once");
                }
                expect(!Team::is_inside() && Team::part().count == 1, "the region has ended");
            }
        });
    }
}

void sleeping_workers_wake() {
    with_workers(3, [](Team &team, Written &written) {
        for (int region = 0; region < 20; ++region) {
            std::this_thread::sleep_for(std::chrono::milliseconds(2));
            team.run(&Written::enter, &written, 3);
        }
        for (const int times : written.parts) expect(times == 20, "each part runs once");
    });
}

void every_thread_takes_part() {
    with_workers(4, [](Team &team, Written &written) {
        for (int region = 0; region < 100; ++region) {
            team.run_on_each(&Written::enter, &written);
            for (std::size_t i = 0; i < 4; ++i) {
                for (std::size_t k = 0; k < i; ++k) {
                    expect(written.ids[i] != written.ids[k], "each thread does its own part");
                }
            }
        }
    });
}

void barriers_hold_back_all_parts() {
    for (const int threads : {2, 5}) {
        with_workers(threads, [&](Team &team, Written &written) {
            written.waits = 6;
            for (int region = 1; region <= 200; ++region) {
                team.run(&Written::enter, &written, threads);
                for (const int seen : written.threads) {
                    expect(seen == region, "all parts had come to the barrier");
                }
            }
        });
    }
}

void parts_of_missing_workers_run() {
    Team team(3);
    Written written;
    written.parts.assign(3, 0);
    written.threads.assign(3, 0);
    written.ids.resize(3);
    std::vector<std::thread> workers;
    {
        const Team::Primary primary(team);
        for (int region = 1; region <= 100; ++region) {
            team.run(&Written::enter, &written, 3);
            for (const int times : written.parts) expect(times == region, "each part runs once");
            // A worker that comes late begins with the next region.
            if (region == 50) workers.emplace_back([&team] { team.serve(2); });
        }
    }
    team.dismiss();
    workers.emplace_back([&team] { team.serve(1); });  // after the end
    for (std::thread &worker : workers) worker.join();
}

// The functions that GCC calls, as a library imports them.
struct OpenMp {
    template <class Function>
    static Function *find(const char *name) {
        return reinterpret_cast<Function *>(stridewise::openmp_function(name));
    }

    using Body = void(void *);
    void (*parallel)(Body *, void *, unsigned,
                     unsigned) = find<void(Body *, void *, unsigned, unsigned)>("GOMP_parallel");
    void (*parallel_start)(Body *, void *,
                           unsigned) = find<void(Body *, void *, unsigned)>("GOMP_parallel_start");
    void (*parallel_end)() = find<void()>("GOMP_parallel_end");
    void (*barrier)() = find<void()>("GOMP_barrier");
    bool (*loop_start)(long, long, long, long, long *, long *) =
        find<bool(long, long, long, long, long *, long *)>("GOMP_loop_static_start");
    bool (*loop_next)(long *, long *) = find<bool(long *, long *)>("GOMP_loop_static_next");
    int (*max_threads)() = find<int()>("omp_get_max_threads");
    int (*num_threads)() = find<int()>("omp_get_num_threads");
    int (*thread_num)() = find<int()>("omp_get_thread_num");
    int (*in_parallel)() = find<int()>("omp_in_parallel");
};

struct Region {
    OpenMp omp;
    long begin = 0, end = 0, step = 1, chunk = 0;
    std::array<std::atomic<int>, 8> parts{};
    std::array<std::atomic<int>, 100> items{};
    std::atomic<int> nested{0};

    static void enter_inner(void *data) {
        auto &region = *static_cast<Region *>(data);
        region.nested += region.omp.num_threads();
        region.omp.barrier();
    }

    static void enter(void *data) {
        auto &region = *static_cast<Region *>(data);
        const OpenMp &omp = region.omp;
        ++region.parts[static_cast<std::size_t>(omp.thread_num())];
        expect(omp.in_parallel() == 1, "the thread is in a region");
        long from = 0, to = 0;
        for (bool some =
                 omp.loop_start(region.begin, region.end, region.step, region.chunk, &from, &to);
             some; some = omp.loop_next(&from, &to)) {
            for (long i = from; region.step > 0 ? i < to : i > to; i += region.step) {
                ++region.items[static_cast<std::size_t>(i)];
            }
        }
        omp.parallel(&enter_inner, data, 3, 0);
    }
};

void check_region(int threads, long begin, long end, long step, long chunk) {
    Region region;
    region.begin = begin;
    region.end = end;
    region.step = step;
    region.chunk = chunk;
    const auto parts = static_cast<unsigned>(threads);
    region.omp.parallel(&Region::enter, &region, parts, 0);
    region.omp.parallel_start(&Region::enter, &region, parts);
    expect(region.omp.num_threads() == threads, "a region has as many threads as asked for");
    Region::enter(&region);
    region.omp.parallel_end();
    for (int part = 0; part < 8; ++part) {
        expect(region.parts[static_cast<std::size_t>(part)] == (part < threads ? 2 : 0),
               "each part runs once");
    }
    for (long i = 0; i < 100; ++i) {
        const bool is_item = step > 0 ? i >= begin && i < end && (i - begin) % step == 0
                                      : i <= begin && i > end && (begin - i) % -step == 0;
        expect(region.items[static_cast<std::size_t>(i)] == (is_item ? 2 : 0),
               "each item of a loop is dealt out once");
    }
    expect(region.nested == 2 * threads, "regions inside of regions have one thread");
    expect(region.omp.in_parallel() == 0 && region.omp.num_threads() == 1, "the region has ended");
}

void loops_are_dealt_out() {
    const long loops[][4] = {{0, 100, 1, 0}, {3, 97, 1, 4},   {5, 6, 1, 0},   {7, 7, 1, 3},
                             {0, 100, 7, 2}, {99, -1, -1, 0}, {90, 3, -4, 3}, {10, 2, 1, 0}};
    for (const auto &[begin, end, step, chunk] : loops) {
        for (const int threads : {1, 2, 5}) {
            check_region(threads, begin, end, step, chunk);  // one part after the other
            with_workers(threads, [&](Team &, Written &) {
                check_region(threads, begin, end, step, chunk);
            });
            // More threads than the team has.
            with_workers(
                2, [&](Team &, Written &) { check_region(threads, begin, end, step, chunk); });
        }
    }
    const stridewise::ThreadScope scope(3);
    expect(OpenMp().max_threads() == 3, "the number of the scope counts");
    expect(stridewise::openmp_function("omp_get_wtime") == nullptr, "others are unknown");
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

// Workers that wait until they may end.
class Workers {
  public:
    explicit Workers(int count) {
        for (int i = 0; i < count; ++i) {
            threads.emplace_back([this] {
                while (!ended_) std::this_thread::sleep_for(std::chrono::milliseconds(1));
            });
        }
    }
    ~Workers() {
        ended_ = true;
        for (std::thread &thread : threads) thread.join();
    }

    cpu_set_t allowed(std::size_t worker) {
        cpu_set_t found;
        CPU_ZERO(&found);
        pthread_getaffinity_np(threads[worker].native_handle(), sizeof found, &found);
        return found;
    }

    std::vector<std::thread> threads;

  private:
    std::atomic<bool> ended_{false};
};

void workers_divide_processors() {
    const cpu_set_t all = allowed();
    const int processors = CPU_COUNT(&all);
    for (int count = 1; count < processors; ++count) {
        Workers workers(count);
        Processors division;
        division.divide(workers.threads);
        for (std::size_t i = 0; i < workers.threads.size(); ++i) {
            const cpu_set_t part = workers.allowed(i);
            cpu_set_t both;
            CPU_AND(&both, &all, &part);
            expect(CPU_EQUAL(&both, &part), "no thread gets other processors than the primary");
            expect(CPU_COUNT(&part) == processors - count,
                   "a worker has its own processor and those of no other thread");
        }
        const cpu_set_t after = allowed();
        expect(CPU_EQUAL(&all, &after), "the primary thread is not limited");
    }
}

void workers_leave_the_processor_of_the_primary() {
    const cpu_set_t all = allowed();
    if (CPU_COUNT(&all) < 2) return;
    Workers workers(1);
    Processors division;
    for (int processor = 0; processor < CPU_SETSIZE; ++processor) {
        if (!CPU_ISSET(processor, &all)) continue;
        const cpu_set_t one = only(processor);
        sched_setaffinity(0, sizeof one, &one);
        sched_setaffinity(0, sizeof all, &all);  // the thread is there, and may go elsewhere
        if (sched_getcpu() != processor) continue;
        division.divide(workers.threads);
        const cpu_set_t part = workers.allowed(0);
        expect(!CPU_ISSET(processor, &part), "the worker may not use that processor");
    }
}

void workers_share_too_few_processors() {
    const cpu_set_t all = allowed();
    Workers workers(CPU_COUNT(&all));
    Processors division;
    division.divide(workers.threads);
    for (std::size_t i = 0; i < workers.threads.size(); ++i) {
        const cpu_set_t part = workers.allowed(i);
        expect(CPU_EQUAL(&all, &part), "without one for each, threads use all");
    }
    const cpu_set_t one = only(sched_getcpu());
    sched_setaffinity(0, sizeof one, &one);
    division.divide(workers.threads);
    for (std::size_t i = 0; i < workers.threads.size(); ++i) {
        const cpu_set_t part = workers.allowed(i);
        expect(CPU_EQUAL(&one, &part), "workers follow a limit of the primary thread");
    }
    sched_setaffinity(0, sizeof all, &all);
}

void a_thread_is_kept_away_for_a_scope() {
    const cpu_set_t all = allowed();
    if (CPU_COUNT(&all) < 2) return;
    in_threads(1, [&](int) {
        const int processor = sched_getcpu();
        const cpu_set_t one = only(processor);
        sched_setaffinity(0, sizeof one, &one);
        {
            const KeptAway away(processor);
            expect(sched_getcpu() == processor, "a thread without another processor stays");
        }
        sched_setaffinity(0, sizeof all, &all);
        const int here = sched_getcpu();
        {
            const KeptAway away(here);
            expect(sched_getcpu() != here, "it leaves the processor");
        }
        const cpu_set_t after = allowed();
        expect(CPU_EQUAL(&all, &after), "it may use all processors again");
    });
}

}  // namespace

int main() {
    every_item_is_taken_once();
    a_gate_lets_few_in();
    every_part_runs_once();
    sleeping_workers_wake();
    every_thread_takes_part();
    barriers_hold_back_all_parts();
    parts_of_missing_workers_run();
    loops_are_dealt_out();
    teams_run_every_job();
    errors_come_back();
    workers_divide_processors();
    workers_leave_the_processor_of_the_primary();
    workers_share_too_few_processors();
    a_thread_is_kept_away_for_a_scope();
    if (failures == 0) std::printf("passed\n");
    return failures == 0 ? 0 : 1;
}
