// Processors of the threads of a team.
//
// Linux often wakes a worker on the processor of its leader, on virtual machines in particular,
// where a processor that slept counts as taken. The leader then spins in a barrier while the
// worker waits for this processor, at each region: runs of 2 ms took 10 ms. The threads of a team
// therefore divide the processors that they may use: each keeps its own one and those that no
// thread of the team has. Threads of other teams and of the application are not limited.
#pragma once

#include <sched.h>

#include <vector>

namespace stridewise {

// How the threads of one team divide the processors. The team calls `enter` from every thread, then
// `divide` from one and, if that returns true, `limit` from every thread; all with a barrier in
// between.
class Places {
  public:
    // Lets the calling thread use all its processors again, so that threads that it starts inherit
    // them, and prepares for a team of `threads` threads.
    void reset(int threads);
    // Records where the calling thread is and may be. A set of processors that was changed from
    // outside replaces the recorded one.
    void enter(int thread);
    // Whether two threads were on the same processor when they entered.
    bool are_shared() const;
    // Divides the processors if two threads are on the same one, or one is not limited yet. Without
    // a processor for each thread, all threads may use all of theirs. Returns whether a thread has
    // to call `limit`.
    bool divide();
    // Limits the calling thread to its part. Without effect where the system refuses that.
    void limit(int thread);
    // Lets the calling thread use all its processors again.
    static void leave();

  private:
    struct Place {
        int processor = -1;
        bool known = false;    // the system told the processor and the set of processors
        bool changed = false;  // the set was changed from outside
        cpu_set_t current, allowed, part;
    };

    bool assign();

    std::vector<Place> places_;
};

}  // namespace stridewise
