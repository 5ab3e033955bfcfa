// How long the threads that run a kernel waited for a processor that did other work.
#pragma once

#include <cstdint>
#include <vector>

namespace stridewise {

// Threads that do not sleep run or wait: for other threads of this system, or on a virtual machine
// for a processor that the hypervisor gave to another one, which its clocks of threads leave out.
class Waits {
  public:
    // Begins, on a thread that may enter parallel regions. Enters one, as total_ns() does.
    explicit Waits(int threads);
    // Nanoseconds that all of the threads waited since then. What a thread slept while it had no
    // work is not told apart from that, so threads that slept do not count beside others. If all
    // slept, each waited for another one in turn, as where the hypervisor runs them on one
    // processor: the one that was off least counts.
    std::int64_t total_ns() const;

  private:
    struct Thread {
        std::int64_t now_ns, ran_ns, sleeps;
    };
    static Thread own();
    std::vector<Thread> ask() const;

    int threads_;
    std::vector<Thread> before_;
};

}  // namespace stridewise
