// Threads of the native core that enter parallel regions.
#pragma once

#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <vector>

#include "threads/places.hpp"

namespace stridewise {

// A bounded set of threads ("leaders"), each with the OpenMP workers that its regions started.
//
// OpenMP keeps a pool of workers for every thread that has entered a region. If regions were
// entered from the threads of callers, they would
//  - leave a pool for each caller, after which libgomp no longer lets waiting threads spin,
//  - depend on other settings of the caller's thread: nested regions, dynamic adjustment,
//  - wait forever in the child of a fork, whose pools have lost their threads.
class Teams {
  public:
    using Job = void (*)(const void *data);

    explicit Teams(int most);

    // The teams of this process. After a fork, those of the parent are not used.
    static Teams &process();
    // Whether the calling thread is the leader or a worker of a team.
    static bool is_member();
    // Makes the calling thread a worker of a team until it ends.
    static void join();
    // Makes the calling thread no longer one.
    static void quit();

    // Runs a job on a leader whose regions have `threads` threads, and waits for it. Callers block
    // while all leaders are busy. If there are more threads than processors, which lets all of them
    // sleep after each region, leaders that were not needed for a while end before. Throws what the
    // job throws, and std::runtime_error if OpenMP does not give that many threads or no thread can
    // be started.
    void run(int threads, Job job, const void *data);

    // Ends the leaders that have been idle for a while, and their workers.
    void retire();

    // Number of leaders, busy or idle.
    int count();

  private:
    class Leader;

    Leader &acquire(int threads);
    void release(Leader &leader);
    // Whether the leaders have more threads than there are processors.
    bool is_crowded();

    int most_;
    std::mutex mutex_;
    std::condition_variable released_;
    std::vector<std::unique_ptr<Leader>> leaders_;
    std::vector<Leader *> idle_;
};

// Runs a job on a thread of its own, which ends with it, and so do the workers of regions that the
// job enters. Workers of the calling thread would remain, and as soon as there are more threads
// than processors, libgomp no longer lets waiting threads spin: small kernels take 2 to 7 times as
// long in all later regions of the process. Throws what the job throws, and std::runtime_error if
// no thread can be started.
void run_apart(Teams::Job job, const void *data);

// Prepares the calling thread, a leader, for regions of `threads` threads. Throws
// std::runtime_error if OpenMP gives fewer.
void prepare_leader(int threads);

// Wakes the workers of the calling thread, a leader, and divides the processors among them.
void gather(int threads, Places &places);

}  // namespace stridewise
