// Kernels of the core; programs hold them beside the library's primitives.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "onednn/memory.hpp"

namespace stridewise {

// Stateless: one kernel may execute on any number of threads at the same time.
class Kernel {
  public:
    virtual ~Kernel() = default;

    virtual std::string impl() const = 0;
    virtual int threads() const = 0;
    virtual std::size_t scratchpad_nbytes() const = 0;
    // The arguments of an execution, by the library's numbers, without the scratchpad.
    virtual const std::vector<int> &args() const = 0;
    // Those of args() that an execution writes.
    virtual std::vector<int> written() const { return {DNNL_ARG_DST}; }
    virtual MemoryDesc arg_desc(int arg) const = 0;
    // `data` holds one address for each of args(), in their order.
    virtual void execute(const std::vector<void *> &data, void *scratchpad) const = 0;
};

}  // namespace stridewise
