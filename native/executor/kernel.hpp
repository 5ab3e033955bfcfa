// Kernels of the core; programs hold them beside the library's primitives.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "onednn/memory.hpp"
#include "support/require.hpp"

namespace stridewise {

// Stateless: one kernel may execute on any number of threads at the same time.
class Kernel {
  public:
    virtual ~Kernel() = default;

    virtual std::string impl() const = 0;
    int threads() const { return threads_; }
    virtual std::size_t scratchpad_nbytes() const { return 0; }
    // The arguments of an execution, by the library's numbers, without the scratchpad.
    const std::vector<int> &args() const { return args_; }
    // Those of args() that an execution writes.
    virtual std::vector<int> written() const { return {DNNL_ARG_DST}; }
    virtual MemoryDesc arg_desc(int arg) const = 0;
    // `data` holds one address for each of args(), in their order. Throws std::out_of_range, in the
    // form "expected ..., found ...", for values that the kernel cannot take.
    virtual void execute(const std::vector<void *> &data, void *scratchpad) const = 0;

  protected:
    // Kernels append the arguments that depend on their options.
    explicit Kernel(int threads, std::vector<int> args = {})
        : threads_(threads), args_(std::move(args)) {
        require(threads >= 1, "threads: expected at least 1, got " + std::to_string(threads));
    }

    bool takes(int arg) const { return std::find(args_.begin(), args_.end(), arg) != args_.end(); }

    int threads_;
    std::vector<int> args_;
};

}  // namespace stridewise
