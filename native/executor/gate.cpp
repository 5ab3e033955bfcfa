#include "executor/gate.hpp"

#include <string>

#include "support/require.hpp"

namespace stridewise {

Gate::Gate(int width) : width_(width), state_(std::make_unique<State>()) {
    require(width >= 1, "width: expected at least 1, got " + std::to_string(width));
}

void Gate::enter() {
    State &state = *state_;
    std::unique_lock lock(state.mutex);
    const std::uint64_t ticket = state.come++;
    state.changed.wait(lock,
                       [&] { return ticket < state.left + static_cast<std::uint64_t>(width_); });
}

void Gate::leave() noexcept {
    State &state = *state_;
    {
        const std::lock_guard lock(state.mutex);
        // A process that forked inside the gate finds a renewed gate, which it never entered.
        if (state.left < state.come) ++state.left;
    }
    state.changed.notify_all();
}

void Gate::renew() {
    auto fresh = std::make_unique<State>();
    static_cast<void>(state_.release());
    state_ = std::move(fresh);
}

}  // namespace stridewise
