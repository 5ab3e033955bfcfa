// Processors of the threads of a team.
//
// Linux often wakes a worker on the processor of the thread that waits for it, on virtual machines
// in particular, where a processor that slept counts as taken. Both then share that processor for
// many milliseconds, because each spins while it waits for the other: runs of 2 ms took 10 ms.
#pragma once

#include <sched.h>

#include <thread>
#include <vector>

namespace stridewise {

// Number of processors that the process could use when it first asked.
int processor_count();

// Gives each worker of a team a processor of its own, apart from the one of the primary thread.
class Processors {
  public:
    // Called by the primary thread before a run. Of the processors that it may use, a worker may
    // use its own one and those that no thread of the team has; all, if there is not one for each
    // thread. What has not changed since the last call is not set again. The primary thread itself
    // is not limited. Without effect where the system refuses that.
    void divide(std::vector<std::thread> &workers);

  private:
    int primary_ = -1;
    cpu_set_t allowed_{};
    std::vector<int> own_;
    std::vector<cpu_set_t> parts_;
};

// Keeps the calling thread away from a processor for a scope, if it runs on that one and may use
// others.
class KeptAway {
  public:
    explicit KeptAway(int processor);
    ~KeptAway();
    KeptAway(const KeptAway &) = delete;
    KeptAway &operator=(const KeptAway &) = delete;

  private:
    bool limited_ = false;
    cpu_set_t allowed_, left_;
};

}  // namespace stridewise
