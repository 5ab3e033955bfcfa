// The execution state of a Program: everything one run writes to, allocated once.
#pragma once

#include <memory>
#include <optional>
#include <variant>
#include <vector>

#include "executor/program.hpp"
#include "onednn/onednn.hpp"

namespace stridewise {

// A step with its memory bound. Places in the caller's arrays are resolved for each run.
struct BoundPrimitive {
    dnnl_primitive_t primitive;
    int threads;
    std::vector<dnnl_exec_arg_t> args;
    // The destination of one that streams.
    struct Streamed {
        dnnl_memory_t memory;
        Ref ref;
        std::size_t nbytes;
    };
    std::optional<Streamed> streamed;
};
// Kernels take bare addresses, one for each of their arguments in their own order.
struct BoundKernel {
    const Kernel *kernel;
    std::vector<Ref> refs;
    std::optional<Ref> scratchpad;
    std::vector<void *> data;
};
struct BoundCopy {
    Ref dst;
    Ref src;
    std::size_t nbytes;
};
struct BoundFill {
    Ref dst;
    std::size_t count;
    float value;
};
struct BoundHost {
    std::shared_ptr<const HostFunction> function;
    std::vector<HostArg> args;
};
using BoundStep = std::variant<BoundPrimitive, BoundKernel, BoundCopy, BoundFill, BoundHost>;

class Context {
  public:
    Context(std::size_t arena_nbytes, const std::vector<Constant> &constants,
            const Mutables &mutables, const std::vector<Step> &steps, int threads);

    // Points every memory that lives in the caller's arrays at the arrays of this run.
    void bind(const Program::Views &inputs, const Program::Views &outputs);
    void poison();
    void execute(std::size_t step);
    void wait();

    std::size_t step_count() const { return steps_.size(); }
    const std::shared_ptr<Buffer> &arena() const { return arena_; }

  private:
    struct Rebound {
        dnnl_memory_t memory;
        Ref ref;
    };

    BoundStep bind_step(const Step &step);
    std::byte *resolve(const Ref &ref) const;
    HostView host_view(const HostArg &arg) const;
    void execute_kernel(BoundKernel &step);
    void execute_primitive(std::size_t index, const BoundPrimitive &step);
    // Whether a primitive would stream its result to where no vector begins.
    bool is_astray(const BoundPrimitive &step) const;
    // By way of memory that begins at a cache line.
    void execute_aside(std::size_t index, const BoundPrimitive &step);
    void execute_host(const BoundHost &step);

    int threads_;
    // Shared, because an array handed to a trace may outlive the program.
    std::shared_ptr<Buffer> arena_;
    const std::vector<Constant> &constants_;
    const Mutables &mutables_;
    const Program::Views *inputs_ = nullptr;
    const Program::Views *outputs_ = nullptr;
    dnnl::stream stream_;
    std::vector<dnnl::memory> memories_;
    std::vector<Rebound> rebound_;
    std::vector<BoundStep> steps_;
};

}  // namespace stridewise
