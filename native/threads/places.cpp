#include "threads/places.hpp"

namespace stridewise {
namespace {

// Moves the calling thread to one of some processors, and lets the system move it again.
void move(const cpu_set_t &targets, const cpu_set_t &allowed) {
    if (sched_setaffinity(0, sizeof targets, &targets) == 0) {
        sched_setaffinity(0, sizeof allowed, &allowed);
    }
}

}  // namespace

void avoid(int processor) {
    if (processor < 0 || processor >= CPU_SETSIZE || sched_getcpu() != processor) return;
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
    cpu_set_t others = allowed;
    CPU_CLR(processor, &others);
    if (CPU_COUNT(&others) > 0) move(others, allowed);
}

void Places::claim() {
    const int current = sched_getcpu();
    if (current < 0 || current >= CPU_SETSIZE || take(current)) return;
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
    for (int free = 0; free < CPU_SETSIZE; ++free) {
        if (!CPU_ISSET(free, &allowed) || !take(free)) continue;
        cpu_set_t one;
        CPU_ZERO(&one);
        CPU_SET(free, &one);
        return move(one, allowed);
    }
}

}  // namespace stridewise
