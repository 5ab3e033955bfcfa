#include "threads/team.hpp"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstdlib>
#include <string>
#include <string_view>

#include "support/require.hpp"
#include "threads/processors.hpp"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace stridewise {
namespace {

struct State {
    Team *team = nullptr;
    Part part;
    bool inside = false;
    int max_threads = 0;
};

thread_local State state;

// Threads that take part in jobs at the moment.
std::atomic<int> active{0};

void pause_briefly() {
#if defined(__x86_64__)
    _mm_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

// How many times a waiting thread looks before it sleeps; GNU OpenMP's variables apply.
long turns_of_environment() {
    constexpr long usual = 20'000;
    if (const char *count = std::getenv("GOMP_SPINCOUNT")) {
        char *end = nullptr;
        const long turns = std::strtol(count, &end, 10);
        if (end != count && *end == '\0' && turns >= 0) return turns;
    }
    const char *policy = std::getenv("OMP_WAIT_POLICY");
    if (policy == nullptr) return usual;
    if (std::string_view(policy) == "active" || std::string_view(policy) == "ACTIVE") {
        return LONG_MAX;
    }
    return std::string_view(policy) == "passive" || std::string_view(policy) == "PASSIVE" ? 0
                                                                                          : usual;
}

// Threads without a processor of their own take it from the one that they wait for.
long turns() {
    static const long usual = turns_of_environment();
    constexpr long crowded = 100;
    return active.load(std::memory_order_relaxed) <= processor_count() ? usual
                                                                       : std::min(usual, crowded);
}

long futex(std::atomic<std::uint32_t> &word, int operation, std::uint32_t value) {
    static_assert(sizeof word == sizeof value);
    return syscall(SYS_futex, &word, operation, value, nullptr, nullptr, 0);
}

}  // namespace

void Team::Word::wake() {
    // A thread counts as a sleeper before it looks for the last time, so it sees the new number or
    // is woken.
    if (sleepers_ > 0) futex(value_, FUTEX_WAKE_PRIVATE, INT_MAX);
}

void Team::Word::set(std::uint32_t value) {
    value_ = value;
    wake();
}

void Team::Word::increase() {
    ++value_;
    wake();
}

std::uint32_t Team::Word::wait_while(std::uint32_t seen) {
    std::uint32_t value = value_.load(std::memory_order_acquire);
    for (long left = turns(); value == seen && left > 0; --left) {
        pause_briefly();
        value = value_.load(std::memory_order_acquire);
    }
    if (value != seen) return value;
    ++sleepers_;
    while ((value = value_) == seen) futex(value_, FUTEX_WAIT_PRIVATE, seen);
    --sleepers_;
    return value;
}

Team::Team(int threads) : threads_(threads) {
    require(threads >= 1, "threads: expected at least 1, got " + std::to_string(threads));
    claims_ = std::make_unique<Claim[]>(static_cast<std::size_t>(threads));
}

Team *Team::current() {
    return state.team;
}

Part Team::part() {
    return state.part;
}

bool Team::is_inside() {
    return state.inside;
}

void Team::forget_others() {
    active = 0;
}

Team::Primary::Primary(Team &team) : team_(team) {
    state.team = &team;
    active += team.threads_;
}

Team::Primary::~Primary() {
    active -= team_.threads_;
    state.team = nullptr;
}

Team::Single::Single() : before_(state.part) {
    state.part = {};
}

Team::Single::~Single() {
    state.part = before_;
}

bool Team::claim(int index, std::uint32_t region) {
    std::uint32_t before = region - 1;
    return claims_[static_cast<std::size_t>(index)].region.compare_exchange_strong(before, region);
}

void Team::execute(int index) {
    const State before = state;
    state = {this, {index, parts_}, true, max_threads_};
    function_(data_);
    state = before;
}

void Team::begin(Function function, void *data, int parts) {
    function_ = function;
    data_ = data;
    parts_ = parts;
    max_threads_ = state.max_threads;
    done_.set(0);
    arrived_ = 0;
    const std::uint32_t region = region_.get() + 1;
    for (int index = parts; index < threads_; ++index) {
        claims_[static_cast<std::size_t>(index)].region = region;
    }
    region_.set(region);
    state.part = {0, parts};
    state.inside = true;
}

void Team::end() {
    state.part = {};
    state.inside = false;
    const auto others = static_cast<std::uint32_t>(parts_ - 1);
    // Parts of the same size end at the same time: usually, no claim has to be looked at.
    constexpr int grace = 20;
    for (int turn = 0; turn < grace && done_.get() != others; ++turn) pause_briefly();
    std::uint32_t missing = others, done = done_.get();
    if (done == missing) return;
    for (int index = 1; shared_ && index < parts_; ++index) {
        if (!claim(index, region_.get())) continue;
        execute(index);
        --missing;
    }
    for (done = done_.get(); done != missing;) done = done_.wait_while(done);
}

void Team::run(Function function, void *data, int parts) {
    begin(function, data, parts);
    function(data);
    end();
}

void Team::run_on_each(Function function, void *data) {
    shared_ = false;
    run(function, data, threads_);
    shared_ = true;
}

void Team::wait_for_all() {
    const std::uint32_t passed = passed_.get();
    if (++arrived_ < parts_) {
        passed_.wait_while(passed);
        return;
    }
    arrived_ = 0;
    passed_.increase();
}

void Team::serve(int index) {
    const State before = state;
    state = {this, {}, false, 0};
    std::uint32_t seen = claims_[static_cast<std::size_t>(index)].region;
    while (!dismissed_) {
        seen = region_.wait_while(seen);
        if (!claim(index, seen)) continue;
        execute(index);
        done_.increase();
    }
    state = before;
}

void Team::dismiss() {
    dismissed_ = true;
    begin(nullptr, nullptr, 1);
    end();
}

void Team::expect_workers() {
    dismissed_ = false;
}

int max_threads() {
    return state.max_threads > 0 ? state.max_threads : processor_count();
}

ThreadScope::ThreadScope(int threads) : previous_(state.max_threads) {
    require(threads >= 1, "threads: expected at least 1, got " + std::to_string(threads));
    state.max_threads = threads;
}

ThreadScope::~ThreadScope() {
    state.max_threads = previous_;
}

}  // namespace stridewise
