// Processors of the threads of a team.
//
// Linux may wake a worker on the processor of its leader. The leader then spins in a barrier while
// the worker waits for this processor, at each region until the system moves one of them: runs of
// 2 ms took 10 to 20 ms. A thread that finds its processor taken therefore moves to another one.
// Which processors it may use does not change.
#pragma once

#include <sched.h>

#include <array>
#include <atomic>

namespace stridewise {

// Moves the calling thread to another processor if it runs on this one, and may use others.
void avoid(int processor);

// Processors that the threads of a team have claimed, each for itself.
class Places {
  public:
    // Claims the processor of the calling thread, or another one if that is taken and one is free.
    void claim();

  private:
    bool take(int processor) { return !taken_[static_cast<std::size_t>(processor)].exchange(true); }

    std::array<std::atomic<bool>, CPU_SETSIZE> taken_{};
};

}  // namespace stridewise
