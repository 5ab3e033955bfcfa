// How long the threads of this process waited for a processor that ran other work.
#pragma once

#include <cstdint>

namespace stridewise {

// Counts all threads but the one that constructed it, unless that is the one that asks: a thread
// that waits for the result of others may poll, which takes nothing from them.
class Waits {
  public:
    Waits();
    // Nanoseconds since the threads began; 0 where the system does not count them.
    std::int64_t total_ns() const;

  private:
    std::int64_t caller_;
};

}  // namespace stridewise
