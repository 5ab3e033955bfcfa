// Parallel regions of a few threads that wait for them.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

namespace stridewise {

// A part of a region: what one of its threads has to do.
struct Part {
    int index = 0;
    int count = 1;
};

// The threads of a run: its primary thread, which enters regions, and workers, which wait for them.
//
// A region has a part for each thread. The primary thread does part 0, and then those that no
// worker has begun: on a machine that does other work, too, and on virtual machines above all, a
// worker may wake or be scheduled milliseconds late, while its part often takes microseconds. Each
// part runs once. A barrier inside a region ends nevertheless: its worker begins a part that the
// primary thread waits for.
//
// Threads spin for a while before they sleep, because waking a thread takes some 50 us.
class Team {
  public:
    using Function = void (*)(void *data);

    // Throws std::invalid_argument if `threads` is below 1.
    explicit Team(int threads);

    int threads() const { return threads_; }

    // The team in whose job the calling thread takes part; null outside of jobs.
    static Team *current();
    // What the calling thread does: part 0 of 1 outside of regions.
    static Part part();
    // Whether the calling thread is inside of a region. Further regions have one part there.
    static bool is_inside();
    // In the child of a fork, no thread takes part in a job.
    static void forget_others();

    // Makes the calling thread the primary thread of a team for a scope.
    class Primary {
      public:
        explicit Primary(Team &team);
        ~Primary();
        Primary(const Primary &) = delete;
        Primary &operator=(const Primary &) = delete;

      private:
        Team &team_;
    };

    // Makes the calling thread do part 0 of 1 for a scope: a region of one thread in another
    // region.
    class Single {
      public:
        Single();
        ~Single();
        Single(const Single &) = delete;
        Single &operator=(const Single &) = delete;

      private:
        Part before_;
    };

    // Calls `function(data)` for each of up to threads() parts; on the primary thread, outside of
    // regions. The function throws nothing. `begin` returns as part 0, and `end` ends the region.
    void run(Function function, void *data, int parts);
    void begin(Function function, void *data, int parts);
    void end();
    // Calls it on every thread of the team.
    void run_on_each(Function function, void *data);
    // Waits, inside of a region, until all its parts have come to a barrier.
    void wait_for_all();

    // Executes parts of regions as worker `index`, from 1 to threads() - 1, until `dismiss`. A
    // worker may come late, and after `expect_workers` it may come again.
    void serve(int index);
    void dismiss();
    void expect_workers();

  private:
    // A number that threads wait for. Each has cache lines of its own.
    class Word {
      public:
        std::uint32_t get() const { return value_.load(); }
        void set(std::uint32_t value);
        void increase();
        // Waits until the number is no longer `seen`, and returns it.
        std::uint32_t wait_while(std::uint32_t seen);

      private:
        void wake();

        alignas(64) std::atomic<std::uint32_t> value_{0};
        alignas(64) std::atomic<int> sleepers_{0};
    };

    // The last region in which the part of a thread was begun.
    struct alignas(64) Claim {
        std::atomic<std::uint32_t> region{0};
    };

    bool claim(int index, std::uint32_t region);
    void execute(int index);

    int threads_;
    std::unique_ptr<Claim[]> claims_;
    std::atomic<bool> dismissed_{false};
    Word region_, done_, passed_;
    std::atomic<int> arrived_{0};
    // Of the region; written before its number.
    Function function_ = nullptr;
    void *data_ = nullptr;
    int parts_ = 1, max_threads_ = 0;
    bool shared_ = true;
};

// Number of threads that the calling thread asks for where it does not say one: what the library
// divides its work by. The default is the number of processors that the process may use.
int max_threads();

// Sets it for a scope.
class ThreadScope {
  public:
    explicit ThreadScope(int threads);
    ~ThreadScope();
    ThreadScope(const ThreadScope &) = delete;
    ThreadScope &operator=(const ThreadScope &) = delete;

  private:
    int previous_;
};

}  // namespace stridewise
