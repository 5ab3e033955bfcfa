// Threads of the core's own, which work for the threads that call it.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <vector>

namespace stridewise {

// A bounded set of teams, each with the workers of one caller at a time.
class Teams {
  public:
    using Job = void (*)(const void *data);

    explicit Teams(int most);
    ~Teams();

    // The teams of this process. In the child of a fork, which lacks the workers of its parent,
    // these are others.
    static Teams &process();

    // Runs a job on the calling thread, which becomes the primary thread of a team of `threads`
    // threads. Callers block while all teams are busy. Throws what the job throws, and
    // std::runtime_error if a thread cannot be started.
    void run(int threads, Job job, const void *data);

    // Number of teams, busy or idle.
    int count();

  private:
    class Crew;

    Crew &acquire(int threads);
    void release(Crew &crew);

    int most_;
    std::mutex mutex_;
    std::condition_variable released_;
    std::vector<std::unique_ptr<Crew>> crews_;
    std::vector<Crew *> idle_;
};

}  // namespace stridewise
