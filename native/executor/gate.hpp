// How many executions there may be at the same time, of whichever programs share the gate.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>

namespace stridewise {

class Gate {
  public:
    explicit Gate(int width);

    // Waits for a place, in order of arrival.
    void enter();
    void leave() noexcept;

    // Forgets all threads inside or waiting. For the child of a fork, in which they do not exist.
    void renew();

    int width() const { return width_; }

  private:
    // Apart from the gate, because a child cannot destroy a mutex that another thread had locked.
    struct State {
        std::mutex mutex;
        std::condition_variable changed;
        std::uint64_t come = 0;
        std::uint64_t left = 0;
    };

    int width_;
    std::unique_ptr<State> state_;
};

// A place inside for a scope; none is needed where there is no gate.
class Pass {
  public:
    explicit Pass(std::shared_ptr<Gate> gate) : gate_(std::move(gate)) {
        if (gate_) gate_->enter();
    }
    ~Pass() {
        if (gate_) gate_->leave();
    }
    Pass(const Pass &) = delete;
    Pass &operator=(const Pass &) = delete;

  private:
    std::shared_ptr<Gate> gate_;
};

}  // namespace stridewise
