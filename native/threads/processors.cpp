#include "threads/processors.hpp"

#include <pthread.h>

#include <algorithm>
#include <cstddef>

namespace stridewise {

int processor_count() {
    static const int count = [] {
        cpu_set_t allowed;
        return sched_getaffinity(0, sizeof allowed, &allowed) == 0
                   ? CPU_COUNT(&allowed)
                   : static_cast<int>(std::thread::hardware_concurrency());
    }();
    return std::max(1, count);
}

void Processors::divide(std::vector<std::thread> &workers) {
    cpu_set_t allowed;
    const int primary = sched_getcpu();
    if (primary < 0 || sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
    const bool is_new = own_.size() != workers.size();
    if (!is_new && primary == primary_ && CPU_EQUAL(&allowed, &allowed_) != 0) return;
    primary_ = primary;
    allowed_ = allowed;
    if (is_new) {
        own_.assign(workers.size(), -1);
        parts_.assign(workers.size(), cpu_set_t{});
    }
    const auto limit = [&](std::size_t worker, const cpu_set_t &part) {
        if (CPU_EQUAL(&part, &parts_[worker]) != 0) return;
        parts_[worker] = part;
        pthread_setaffinity_np(workers[worker].native_handle(), sizeof part, &part);
    };

    cpu_set_t free = allowed;
    CPU_CLR(primary, &free);
    if (CPU_COUNT(&free) < static_cast<int>(workers.size())) {
        for (std::size_t i = 0; i < workers.size(); ++i) limit(i, allowed);
        return;
    }
    for (int &own : own_) {
        if (own >= 0 && CPU_ISSET(own, &free) == 0) own = -1;
        if (own >= 0) CPU_CLR(own, &free);
    }
    for (int &own : own_) {
        if (own >= 0) continue;
        for (own = 0; CPU_ISSET(own, &free) == 0;) ++own;
        CPU_CLR(own, &free);
    }
    for (std::size_t i = 0; i < workers.size(); ++i) {
        cpu_set_t part = free;
        CPU_SET(own_[i], &part);
        limit(i, part);
    }
}

KeptAway::KeptAway(int processor) {
    if (processor < 0 || sched_getcpu() != processor) return;
    if (sched_getaffinity(0, sizeof allowed_, &allowed_) != 0) return;
    left_ = allowed_;
    CPU_CLR(processor, &left_);
    limited_ = CPU_COUNT(&left_) > 0 && sched_setaffinity(0, sizeof left_, &left_) == 0;
}

KeptAway::~KeptAway() {
    // A set that was changed from outside meanwhile stays.
    cpu_set_t current;
    if (!limited_ || sched_getaffinity(0, sizeof current, &current) != 0) return;
    if (CPU_EQUAL(&current, &left_) != 0) sched_setaffinity(0, sizeof allowed_, &allowed_);
}

}  // namespace stridewise
