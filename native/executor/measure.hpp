// How long one primitive or kernel takes on this machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <dnnl.hpp>
#include <functional>
#include <vector>

#include "executor/kernel.hpp"
#include "onednn/memory.hpp"
#include "onednn/primitives.hpp"

namespace stridewise {

// Operands of an operation, made up.
struct Operands {
    std::vector<Buffer> buffers;
    std::vector<dnnl::memory> memories;
    std::vector<dnnl_exec_arg_t> args;
    std::vector<std::size_t> cold;  // positions of the buffers that no cache has when a run begins
};

struct Runs {
    int least;
    int most;
    std::int64_t budget_ns;
};

struct Measured {
    std::vector<std::int64_t> samples;  // duration of each timed run in ns
    // How long threads waited for processors (Waits), relative to the time that all runs took: on
    // an idle machine next to nothing.
    double waited;
};

// One operation with its operands, ready to be timed again and again.
class Measurement {
  public:
    // The operation must outlive the measurement. The arguments in `cold` are in no cache when a
    // run begins, as the weights of a large network. Runs take turns on copies of all operands that
    // together have at least `spread_nbytes`, so that small operands come from an outer cache, as
    // they do between the layers of a network.
    Measurement(const Primitive &primitive, const std::vector<int> &cold,
                std::size_t spread_nbytes);
    Measurement(const Kernel &kernel, const std::vector<int> &cold, std::size_t spread_nbytes);
    Measurement(const Measurement &) = delete;
    Measurement &operator=(const Measurement &) = delete;
    ~Measurement() = default;

    // Runs the operation once on each copy to warm up, and then `runs.most` times, or until the
    // runs have used up the budget and there are `runs.least`. Where one run takes several budgets,
    // warming up is one of the timed runs.
    Measured run(const Runs &runs) const;

    std::size_t nbytes() const;

  private:
    std::int64_t timed(std::size_t index) const;

    int threads_;
    std::vector<Operands> copies_;
    std::function<void(const Operands &)> execute_;
};

}  // namespace stridewise
