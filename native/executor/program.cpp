#include "executor/program.hpp"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <deque>
#include <functional>
#include <mutex>
#include <stdexcept>

#include "executor/context.hpp"
#include "support/errors.hpp"
#include "threads/regions.hpp"

namespace stridewise {
namespace {

const char *name(Space space) {
    switch (space) {
        case Space::arena:
            return "arena";
        case Space::constants:
            return "constants";
        case Space::inputs:
            return "inputs";
        case Space::outputs:
            return "outputs";
        case Space::parameters:
            return "parameters";
        case Space::states:
            return "states";
    }
    throw std::invalid_argument(
        "space: expected 0 (arena), 1 (constants), 2 (inputs), 3 (outputs), 4 (parameters) or 5 "
        "(states), got " +
        std::to_string(static_cast<int>(space)));
}

std::string describe(const Ref &ref) {
    const std::string space = name(ref.space);
    return ref.space == Space::arena ? space : space + "[" + std::to_string(ref.index) + "]";
}

bool same_place(const Ref &a, const Ref &b) {
    return a.space == b.space && (a.space == Space::arena || a.index == b.index);
}

bool is_mutable(Space space) {
    return space == Space::parameters || space == Space::states;
}

bool overlap(const Ref &a, std::size_t a_nbytes, const Ref &b, std::size_t b_nbytes) {
    return a_nbytes > 0 && b_nbytes > 0 && same_place(a, b) && a.offset < b.offset + b_nbytes &&
           b.offset < a.offset + a_nbytes;
}

bool overlap(const Arg &a, const Arg &b) {
    if (!overlap(a.ref, a.desc.extent(), b.ref, b.desc.extent())) return false;
    const auto first = [](const Arg &arg) {
        return static_cast<std::int64_t>(arg.ref.offset + arg.desc.offset());
    };
    return bytes_meet(a.desc.loops(), b.desc.loops(), first(b) - first(a));
}

bool contains(const std::vector<int> &items, int item) {
    return std::find(items.begin(), items.end(), item) != items.end();
}

std::vector<std::shared_ptr<Buffer>> buffers(const std::vector<std::size_t> &sizes) {
    std::vector<std::shared_ptr<Buffer>> found;
    for (const std::size_t size : sizes) found.push_back(std::make_shared<Buffer>(size));
    return found;
}

void check_views(const Program::Views &views, const std::vector<std::size_t> &nbytes,
                 std::size_t parts, const char *what) {
    require(views.size() == nbytes.size(), std::string(what) + ": expected " +
                                               std::to_string(nbytes.size()) + " arrays, got " +
                                               std::to_string(views.size()));
    for (std::size_t i = 0; i < views.size(); ++i) {
        const std::size_t wanted = nbytes[i] * parts;
        require(views[i].nbytes == wanted, std::string(what) + "[" + std::to_string(i) +
                                               "]: expected " + std::to_string(wanted) +
                                               " bytes, got " + std::to_string(views[i].nbytes));
    }
}

Program::Views cut(const Program::Views &views, std::size_t part, std::size_t parts) {
    Program::Views found = views;
    for (auto &view : found) {
        view.nbytes /= parts;
        view.data = static_cast<std::byte *>(view.data) + part * view.nbytes;
    }
    return found;
}

// Guards the pools of all programs, for moments. One for all can be held while the process forks:
// a child that found it locked would wait for a thread that it does not have.
std::mutex &pools() {
    static std::mutex mutex;
    static const int registered =
        pthread_atfork([] { mutex.lock(); }, [] { mutex.unlock(); }, [] { mutex.unlock(); });
    static_cast<void>(registered);
    return mutex;
}

bool overlap(const View &a, const View &b) {
    const auto *a_first = static_cast<const std::byte *>(a.data);
    const auto *b_first = static_cast<const std::byte *>(b.data);
    const std::less<const std::byte *> before;
    return a.nbytes > 0 && b.nbytes > 0 && before(a_first, b_first + b.nbytes) &&
           before(b_first, a_first + a.nbytes);
}

}  // namespace

// A context for the duration of one run; returned also if an exception is thrown.
class Program::Lease {
  public:
    explicit Lease(Program &program) : program_(program) {
        {
            const std::lock_guard lock(pools());
            if (!program_.idle_.empty()) {
                context_ = std::move(program_.idle_.back());
                program_.idle_.pop_back();
            }
        }
        if (context_) return;
        context_ =
            std::make_unique<Context>(program_.arena_nbytes_, program_.constants_,
                                      program_.mutables_, program_.steps_, program_.threads_);
        const std::lock_guard lock(pools());
        // Capacity for every context, so that returning one cannot fail.
        program_.idle_.reserve(program_.context_count_ + 1);
        ++program_.context_count_;
    }
    ~Lease() {
        const std::lock_guard lock(pools());
        program_.idle_.push_back(std::move(context_));
    }
    Lease(const Lease &) = delete;
    Lease &operator=(const Lease &) = delete;

    Context &context() { return *context_; }

  private:
    Program &program_;
    std::unique_ptr<Context> context_;
};

// Sole access to parameters and states, for a run or for a copy; none is needed where there are
// none.
class Program::Exclusive {
  public:
    explicit Exclusive(Program &program) : program_(program) {
        if (program.mutables_.parameters.empty() && program.mutables_.states.empty()) return;
        const auto self = std::this_thread::get_id();
        if (program.runner_ == self) {
            throw std::logic_error("the program has parameters or states and runs on this thread");
        }
        lock_ = std::unique_lock(program.exclusive_);
        program.runner_ = self;
    }
    ~Exclusive() {
        if (lock_) program_.runner_ = std::thread::id();
    }
    Exclusive(const Exclusive &) = delete;
    Exclusive &operator=(const Exclusive &) = delete;

  private:
    Program &program_;
    std::unique_lock<std::mutex> lock_;
};

// What one part of a call sees of its arrays.
struct Program::Part {
    Views inputs;
    Views outputs;
};

Program::Program(std::size_t arena_nbytes, std::vector<Constant> constants,
                 std::vector<std::size_t> input_nbytes, std::vector<std::size_t> output_nbytes,
                 int threads, std::size_t parts, int lanes,
                 const std::vector<std::size_t> &parameter_nbytes,
                 const std::vector<std::size_t> &state_nbytes)
    : arena_nbytes_(arena_nbytes),
      constants_(std::move(constants)),
      mutables_{buffers(parameter_nbytes), buffers(state_nbytes)},
      input_nbytes_(std::move(input_nbytes)),
      output_nbytes_(std::move(output_nbytes)),
      threads_(threads),
      parts_(parts),
      lanes_(lanes) {
    require(threads >= 1, "threads: expected at least 1, got " + std::to_string(threads));
    require(parts >= 1, "parts: expected at least 1, got " + std::to_string(parts));
    require(lanes == 1 || (lanes > 1 && threads == 1 && static_cast<std::size_t>(lanes) <= parts),
            "lanes: expected 1, or with one thread at most as many as parts (" +
                std::to_string(parts) + "), got " + std::to_string(lanes));
    for (const auto &sizes : {input_nbytes_, output_nbytes_}) {
        for (const std::size_t size : sizes) {
            require(size <= SIZE_MAX / parts, std::to_string(parts) + " parts of " +
                                                  std::to_string(size) +
                                                  " bytes: expected less memory than there can be");
        }
    }
}

Program::~Program() = default;

std::size_t Program::space_nbytes(const Ref &ref) const {
    const auto at = [&](const std::vector<std::size_t> &sizes) {
        require(ref.index < sizes.size(), where() + ": there is no " + describe(ref));
        return sizes[ref.index];
    };
    switch (ref.space) {
        case Space::arena:
            return arena_nbytes_;
        case Space::constants:
            require(ref.index < constants_.size(), where() + ": there is no " + describe(ref));
            return constants_[ref.index].nbytes;
        case Space::inputs:
            return at(input_nbytes_);
        case Space::outputs:
            return at(output_nbytes_);
        case Space::parameters:
        case Space::states: {
            const auto &held = ref.space == Space::states ? mutables_.states : mutables_.parameters;
            require(ref.index < held.size(), where() + ": there is no " + describe(ref));
            return held[ref.index]->nbytes();
        }
    }
    throw std::invalid_argument(where() + ": " + name(ref.space));
}

void Program::check_ref(const Ref &ref, std::size_t nbytes, bool written) const {
    const std::size_t size = space_nbytes(ref);
    require(ref.offset <= size && nbytes <= size - ref.offset,
            where() + ": " + std::to_string(nbytes) + " bytes at offset " +
                std::to_string(ref.offset) + " do not fit into the " + std::to_string(size) +
                " bytes of " + describe(ref));
    require(!written || (ref.space != Space::constants && ref.space != Space::inputs),
            where() + ": " + describe(ref) + " is read only");
    require(!written || !is_mutable(ref.space) || parts_ == 1,
            where() + ": " + describe(ref) + " is read only in a program of parts");
}

void Program::check_building() const {
    if (frozen_) throw std::logic_error("the program is frozen: no step can be added");
}

// The library and the core's kernels read arguments while they write others.
void Program::check_overlaps(const std::vector<Arg> &args, const std::vector<int> &written,
                             const std::vector<InPlace> &in_place, const std::string &what) const {
    for (const auto &pair : in_place) {
        const auto given = [&](int id) {
            return std::any_of(args.begin(), args.end(),
                               [&](const Arg &arg) { return arg.id == id; });
        };
        require(contains(written, pair.written) && given(pair.written) && given(pair.read) &&
                    !contains(written, pair.read),
                what + ": in place, expected a written and a read argument, got " +
                    std::to_string(pair.written) + " and " + std::to_string(pair.read));
    }
    for (const auto &arg : args) {
        if (!contains(written, arg.id)) continue;
        for (const auto &other : args) {
            if (&other == &arg || !overlap(arg, other)) continue;
            const bool declared =
                arg.ref.offset == other.ref.offset &&
                std::any_of(in_place.begin(), in_place.end(), [&](const InPlace &pair) {
                    return pair.written == arg.id && pair.read == other.id;
                });
            require(declared, what + ": argument " + std::to_string(arg.id) + " in " +
                                  describe(arg.ref) + " overlaps argument " +
                                  std::to_string(other.id) +
                                  ", expected them apart or declared in place");
        }
    }
}

template <class Operation>
void Program::check_args(const Operation &operation, const std::vector<Arg> &args,
                         const std::vector<InPlace> &in_place) const {
    const std::string what = where() + " (" + operation.impl() + ")";
    require(operation.threads() == threads_ || operation.threads() == 1,
            what + ": expected a primitive made for threads=" + std::to_string(threads_) +
                " or 1, got one for " + std::to_string(operation.threads()));
    std::vector<int> expected = operation.args();
    if (operation.scratchpad_nbytes() > 0) expected.push_back(DNNL_ARG_SCRATCHPAD);
    for (const int id : expected) {
        const auto given =
            std::count_if(args.begin(), args.end(), [&](const Arg &arg) { return arg.id == id; });
        require(given == 1, what + ": expected argument " + std::to_string(id) + " once, got it " +
                                std::to_string(given) + " times");
    }
    require(args.size() == expected.size(), what + ": expected " + std::to_string(expected.size()) +
                                                " arguments, got " + std::to_string(args.size()));
    std::vector<int> written = operation.written();
    written.push_back(DNNL_ARG_SCRATCHPAD);
    for (const auto &arg : args) {
        // The library does not compare descriptors when it executes; a wrong one would have it
        // read or write out of bounds.
        const MemoryDesc wanted = operation.arg_desc(arg.id);
        require(arg.desc == wanted, what + ": argument " + std::to_string(arg.id) + " expected " +
                                        wanted.repr() + ", got " + arg.desc.repr());
        check_ref(arg.ref, arg.desc.extent(), contains(written, arg.id));
    }
    check_overlaps(args, written, in_place, what);
}

void Program::add_primitive(const Primitive &primitive, std::vector<Arg> args,
                            const std::vector<InPlace> &in_place) {
    check_building();
    check_args(primitive, args, in_place);
    steps_.emplace_back(PrimitiveStep{primitive, std::move(args)});
}

void Program::add_kernel(std::shared_ptr<Kernel> kernel, std::vector<Arg> args,
                         const std::vector<InPlace> &in_place) {
    check_building();
    require(kernel != nullptr, where() + ": expected a kernel");
    check_args(*kernel, args, in_place);
    steps_.emplace_back(KernelStep{std::move(kernel), std::move(args)});
}

void Program::add_copy(const Ref &dst, const Ref &src, std::size_t nbytes) {
    check_building();
    check_ref(dst, nbytes, true);
    check_ref(src, nbytes, false);
    require(!overlap(dst, nbytes, src, nbytes),
            where() + ": a copy within " + describe(dst) + " overlaps itself");
    steps_.emplace_back(CopyStep{dst, src, nbytes});
}

void Program::add_fill(const Ref &dst, std::size_t count, float value) {
    check_building();
    require(count <= SIZE_MAX / sizeof(float), where() + ": fill of too many values");
    require(
        dst.offset % sizeof(float) == 0,
        where() + ": fill at offset " + std::to_string(dst.offset) + ": expected a multiple of 4");
    check_ref(dst, count * sizeof(float), true);
    steps_.emplace_back(FillStep{dst, count, value});
}

void Program::add_host(std::shared_ptr<const HostFunction> function, std::vector<HostArg> args) {
    check_building();
    // What it sees of the caller's arrays is their owner's, which knows nothing of parts.
    require(parts_ == 1, where() + ": a program of parts has no host steps");
    for (const auto &arg : args) check_ref(arg.ref, arg.nbytes, arg.written);
    for (const auto &arg : args) {
        const auto clashes = [&](const HostArg &other) {
            return &other != &arg && overlap(arg.ref, arg.nbytes, other.ref, other.nbytes);
        };
        require(!arg.written || std::none_of(args.begin(), args.end(), clashes),
                where() + ": a result in " + describe(arg.ref) + " overlaps another argument");
    }
    steps_.emplace_back(HostStep{std::move(function), std::move(args)});
}

void Program::check_run(const Views &inputs, const Views &outputs, std::size_t parts) const {
    if (!frozen_) throw std::logic_error("the program is not frozen: call freeze() before running");
    check_views(inputs, input_nbytes_, parts, "inputs");
    check_views(outputs, output_nbytes_, parts, "outputs");
    for (const auto &constant : constants_) {
        if (constant.mapped != nullptr) constant.mapped->check_file();
    }
    for (std::size_t i = 0; i < outputs.size(); ++i) {
        const auto clashes = [&](const View &view) { return overlap(view, outputs[i]); };
        require(std::none_of(inputs.begin(), inputs.end(), clashes) &&
                    std::none_of(outputs.begin(), outputs.begin() + static_cast<std::ptrdiff_t>(i),
                                 clashes),
                "outputs[" + std::to_string(i) + "]: shares memory with another array of the call");
    }
}

std::size_t Program::next_host(std::size_t step) const {
    const auto begin = steps_.begin() + static_cast<std::ptrdiff_t>(step);
    const auto found = std::find_if(begin, steps_.end(), [](const Step &candidate) {
        return std::holds_alternative<HostStep>(candidate);
    });
    return static_cast<std::size_t>(found - steps_.begin());
}

// Functions outside of the core are called by the thread of the caller, whose settings they may
// depend on; all other steps run on a team.
template <class Before, class After>
void Program::execute_part(Context &context, const Part &part, const Before &before,
                           const After &after) {
    const auto execute_step = [&](std::size_t step) {
        before();
        context.execute(step);
        after(step, context);
    };
    context.bind(part.inputs, part.outputs);
    if (poison_) context.poison();
    for (std::size_t step = 0; step < context.step_count(); ++step) {
        const std::size_t end = next_host(step);
        if (step < end) {
            with_threads(threads_, [&] {
                for (; step < end; ++step) execute_step(step);
                context.wait();
            });
        }
        if (step < context.step_count()) execute_step(step);
    }
}

template <class Watch>
void Program::execute(const Views &inputs, const Views &outputs, const Watch &watch) {
    check_run(inputs, outputs, parts_);
    const Pass pass(gate());
    const Exclusive exclusive(*this);
    // All memory that the threads need is there before they begin.
    std::deque<Lease> leases;
    for (int lane = 0; lane < lanes_; ++lane) leases.emplace_back(*this);
    std::vector<Part> all;
    for (std::size_t part = 0; part < parts_; ++part) {
        all.push_back({cut(inputs, part, parts_), cut(outputs, part, parts_)});
    }
    std::atomic<std::size_t> next{0};
    const auto run_lane = [&](int lane) {
        Context &context = leases[static_cast<std::size_t>(lane)].context();
        const auto [before, after] = watch(lane);
        for (std::size_t part = next++; part < parts_; part = next++) {
            execute_part(context, all[part], before, after);
        }
    };
    if (parts_ == 1) return run_lane(0);
    if (lanes_ == 1) return with_threads(threads_, [&] { run_lane(0); });
    in_parallel(lanes_, [&](int lane, int) {
        try {
            // Some of the library's kernels for one thread have barriers, which would wait for the
            // threads of other lanes.
            in_region(1, [&](int, int) { run_lane(lane); });
        } catch (...) {
            next = parts_;  // the others stop
            throw;
        }
    });
}

void Program::run(const Views &inputs, const Views &outputs) {
    execute(inputs, outputs, [](int) { return std::pair([] {}, [](std::size_t, Context &) {}); });
}

std::vector<std::vector<std::int64_t>> Program::profile(const Views &inputs, const Views &outputs,
                                                        int runs) {
    using Clock = std::chrono::steady_clock;
    require(runs >= 1, "runs: expected at least 1, got " + std::to_string(runs));
    std::vector<std::vector<std::int64_t>> all;
    for (int run = 0; run < runs; ++run) {
        std::vector<std::vector<std::int64_t>> taken(static_cast<std::size_t>(lanes_),
                                                     std::vector<std::int64_t>(steps_.size()));
        std::vector<Clock::time_point> begun(taken.size());
        execute(inputs, outputs, [&](int lane) {
            auto &samples = taken[static_cast<std::size_t>(lane)];
            auto &begin = begun[static_cast<std::size_t>(lane)];
            return std::pair(
                [&begin] { begin = Clock::now(); },
                [&begin, &samples](std::size_t step, Context &context) {
                    context.wait();
                    const auto spent = Clock::now() - begin;
                    samples[step] +=
                        std::chrono::duration_cast<std::chrono::nanoseconds>(spent).count();
                });
        });
        std::vector<std::int64_t> samples(steps_.size());
        for (const auto &lane : taken) {
            std::transform(lane.begin(), lane.end(), samples.begin(), samples.begin(),
                           [](std::int64_t more, std::int64_t sum) { return sum + more; });
        }
        for (auto &sample : samples) sample /= lanes_;
        all.push_back(std::move(samples));
    }
    return all;
}

void Program::trace(const Views &inputs, const Views &outputs, const AfterStep &after_step) {
    check_run(inputs, outputs, 1);
    const Exclusive exclusive(*this);
    Lease lease(*this);
    Context &context = lease.context();
    context.bind(inputs, outputs);
    context.poison();
    for (std::size_t step = 0; step < context.step_count(); ++step) {
        const auto execute_step = [&] {
            context.execute(step);
            context.wait();
        };
        next_host(step) == step ? execute_step() : with_threads(threads_, execute_step);
        after_step(step, context.arena());
    }
}

std::byte *Program::mutable_bytes(const Ref &ref, std::size_t nbytes) const {
    require(is_mutable(ref.space), describe(ref) + ": expected a parameter or a state");
    const auto &held = ref.space == Space::states ? mutables_.states : mutables_.parameters;
    require(ref.index < held.size(), "there is no " + describe(ref));
    const std::size_t size = held[ref.index]->nbytes();
    require(ref.offset <= size && nbytes <= size - ref.offset,
            describe(ref) + ": expected at most " + std::to_string(size) + " bytes, got " +
                std::to_string(nbytes) + " at offset " + std::to_string(ref.offset));
    return held[ref.index]->data() + ref.offset;
}

void Program::read(const Ref &ref, void *bytes, std::size_t nbytes) {
    const std::byte *held = mutable_bytes(ref, nbytes);
    const Exclusive exclusive(*this);
    if (nbytes > 0) std::memcpy(bytes, held, nbytes);
}

void Program::write(const std::vector<Written> &all) {
    std::vector<std::byte *> held;
    for (const auto &item : all) held.push_back(mutable_bytes(item.ref, item.nbytes));
    const Exclusive exclusive(*this);
    for (std::size_t i = 0; i < all.size(); ++i) {
        if (all[i].nbytes > 0) std::memcpy(held[i], all[i].bytes, all[i].nbytes);
    }
}

void Program::set_gate(std::shared_ptr<Gate> gate) {
    const std::lock_guard lock(pools());
    gate_ = std::move(gate);
}

std::shared_ptr<Gate> Program::gate() const {
    const std::lock_guard lock(pools());
    return gate_;
}

std::size_t Program::context_count() const {
    const std::lock_guard lock(pools());
    return context_count_;
}

}  // namespace stridewise
