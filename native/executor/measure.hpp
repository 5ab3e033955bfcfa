// How long one primitive or kernel takes on this machine.
#pragma once

#include <cstdint>
#include <vector>

#include "executor/kernel.hpp"
#include "onednn/primitives.hpp"

namespace stridewise {

struct MeasureOptions {
    int threads;
    int min_runs;
    int max_runs;
    std::int64_t budget_ns;
    // Arguments that are not in any cache when a run begins, as the weights of a large network.
    std::vector<int> cold;
    // Runs take turns on copies of all operands that together have at least this many bytes, so
    // that small operands come from an outer cache, as they do between the layers of a network.
    std::size_t spread_nbytes;
};

struct Measured {
    std::vector<std::int64_t> samples;  // duration of each timed run in ns
    // How long threads were ready to run and did not, relative to the time that all runs took: on
    // an idle machine next to nothing. Zero where the system does not count it.
    double waited;
};

// Runs the primitive on made-up data, once to warm up and then until `max_runs`, or until the
// runs have used up the budget and there are `min_runs`. Where one run takes several budgets,
// warming up is one of the timed runs.
Measured measure(const Primitive &primitive, const MeasureOptions &options);
Measured measure(const Kernel &kernel, const MeasureOptions &options);

}  // namespace stridewise
