// A fixed list of steps over one arena, constants, inputs and outputs, and its execution.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include "executor/gate.hpp"
#include "executor/kernel.hpp"
#include "onednn/memory.hpp"
#include "onednn/primitives.hpp"

namespace stridewise {

// The numbers are part of the Python interface.
enum class Space : int {
    arena = 0,
    constants = 1,
    inputs = 2,
    outputs = 3,
    parameters = 4,
    states = 5
};

// A place in one of the spaces; `index` means nothing in the arena.
struct Ref {
    Space space;
    std::size_t index;
    std::size_t offset;
};

struct Arg {
    int id;
    MemoryDesc desc;
    Ref ref;
};

// An argument that a step writes over one that it reads: both begin at the same byte.
struct InPlace {
    int written;
    int read;
};

// Memory of another owner, with an object that keeps it alive.
struct Constant {
    std::shared_ptr<const void> owner;
    const void *data;
    std::size_t nbytes;
    const Buffer *mapped = nullptr;  // where a file is that may be cut off
};

// The memory of parameters and states, which lives as long as the program and is zero at first.
struct Mutables {
    std::vector<std::shared_ptr<Buffer>> parameters;
    std::vector<std::shared_ptr<Buffer>> states;
};

// `exporter` is the object that the memory belongs to, as far as a host function may need it.
struct View {
    void *data;
    std::size_t nbytes;
    void *exporter = nullptr;
};

// New bytes of a parameter or a state.
struct Written {
    Ref ref;
    const void *bytes;
    std::size_t nbytes;
};

// An argument of a host step.
struct HostArg {
    Ref ref;
    std::size_t nbytes;
    bool written;
};

// The memory of an argument during one execution. To keep `data` for longer, keep its
// owner: `owner` for the arena and constants, the exporter for the caller's arrays.
struct HostView {
    std::byte *data;
    std::size_t nbytes;
    bool written;
    std::shared_ptr<const void> owner;
    void *exporter;
};

// A function outside of the core. It may throw; execution ends there, and the context is given
// back as after any other error.
using HostFunction = std::function<void(const std::vector<HostView> &)>;

struct PrimitiveStep {
    Primitive primitive;
    std::vector<Arg> args;
};
struct KernelStep {
    std::shared_ptr<Kernel> kernel;
    std::vector<Arg> args;
};
struct CopyStep {
    Ref dst;
    Ref src;
    std::size_t nbytes;
};
struct FillStep {
    Ref dst;
    std::size_t count;
    float value;
};
// Shared, because contexts are made by threads that may not touch what the function holds.
struct HostStep {
    std::shared_ptr<const HostFunction> function;
    std::vector<HostArg> args;
};
using Step = std::variant<PrimitiveStep, KernelStep, CopyStep, FillStep, HostStep>;

// All that one execution writes to. Programs keep a pool of these, one for each caller that was
// ever running at the same time as the others.
class Context;

class Program {
  public:
    using Views = std::vector<View>;
    // Called after a step with its number and the arena.
    using AfterStep = std::function<void(std::size_t, const std::shared_ptr<Buffer> &)>;

    // Arrays of a call are cut into `parts` of equal size, and the steps run once for each. `lanes`
    // of them run at the same time, each on a thread of its own; `threads` is what each of them
    // has.
    // A program with parameters or states runs once at a time.
    Program(std::size_t arena_nbytes, std::vector<Constant> constants,
            std::vector<std::size_t> input_nbytes, std::vector<std::size_t> output_nbytes,
            int threads, std::size_t parts = 1, int lanes = 1,
            const std::vector<std::size_t> &parameter_nbytes = {},
            const std::vector<std::size_t> &state_nbytes = {});
    ~Program();
    Program(const Program &) = delete;
    Program &operator=(const Program &) = delete;

    // Arguments that are written may overlap others only as `in_place` declares.
    void add_primitive(const Primitive &primitive, std::vector<Arg> args,
                       const std::vector<InPlace> &in_place = {});
    void add_kernel(std::shared_ptr<Kernel> kernel, std::vector<Arg> args,
                    const std::vector<InPlace> &in_place = {});
    void add_copy(const Ref &dst, const Ref &src, std::size_t nbytes);
    void add_fill(const Ref &dst, std::size_t count, float value);
    void add_host(std::shared_ptr<const HostFunction> function, std::vector<HostArg> args);
    void freeze() { frozen_ = true; }

    // Any number of threads may run a frozen program at the same time; those that the gate does not
    // let in wait. Traces do not, as what they call may run the program again.
    void run(const Views &inputs, const Views &outputs);
    std::vector<std::vector<std::int64_t>> profile(const Views &inputs, const Views &outputs,
                                                   int runs);
    void trace(const Views &inputs, const Views &outputs, const AfterStep &after_step);

    // Copies bytes of parameters and states, between two runs.
    void read(const Ref &ref, void *bytes, std::size_t nbytes);
    void write(const std::vector<Written> &all);

    void set_gate(std::shared_ptr<Gate> gate);
    std::shared_ptr<Gate> gate() const;
    bool poison() const { return poison_; }
    void set_poison(bool poison) { poison_ = poison; }
    bool frozen() const { return frozen_; }
    std::size_t arena_nbytes() const { return arena_nbytes_; }
    std::size_t step_count() const { return steps_.size(); }
    std::size_t context_count() const;
    int threads() const { return threads_; }
    // Bytes of each input and output of one part.
    const std::vector<std::size_t> &input_nbytes() const { return input_nbytes_; }
    const std::vector<std::size_t> &output_nbytes() const { return output_nbytes_; }
    std::size_t parts() const { return parts_; }
    int lanes() const { return lanes_; }

  private:
    class Lease;
    class Exclusive;
    struct Part;

    std::string where() const { return "step " + std::to_string(steps_.size()); }
    std::size_t space_nbytes(const Ref &ref) const;
    void check_ref(const Ref &ref, std::size_t nbytes, bool written) const;
    void check_building() const;
    void check_run(const Views &inputs, const Views &outputs, std::size_t parts) const;
    // For primitives and kernels, which describe their arguments alike.
    template <class Operation>
    void check_args(const Operation &operation, const std::vector<Arg> &args,
                    const std::vector<InPlace> &in_place) const;
    void check_overlaps(const std::vector<Arg> &args, const std::vector<int> &written,
                        const std::vector<InPlace> &in_place, const std::string &what) const;
    std::byte *mutable_bytes(const Ref &ref, std::size_t nbytes) const;
    // The first step from `step` on that calls a function outside of the core.
    std::size_t next_host(std::size_t step) const;
    template <class Before, class After>
    void execute_part(Context &context, const Part &part, const Before &before, const After &after);
    // Runs all parts; `watch(lane)` gives what is called before and after the steps of a lane.
    template <class Watch>
    void execute(const Views &inputs, const Views &outputs, const Watch &watch);

    std::size_t arena_nbytes_;
    std::vector<Constant> constants_;
    Mutables mutables_;
    std::vector<std::size_t> input_nbytes_;
    std::vector<std::size_t> output_nbytes_;
    int threads_;
    std::size_t parts_;
    int lanes_;
    std::vector<Step> steps_;
    std::atomic<bool> frozen_{false};
    std::atomic<bool> poison_{false};
    std::shared_ptr<Gate> gate_;
    std::mutex exclusive_;
    std::atomic<std::thread::id> runner_{};
    std::vector<std::unique_ptr<Context>> idle_;
    std::size_t context_count_ = 0;
};

}  // namespace stridewise
