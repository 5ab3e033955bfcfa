#include "executor/context.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>

#include "support/errors.hpp"
#include "threads/regions.hpp"

namespace stridewise {

Context::Context(std::size_t arena_nbytes, const std::vector<Constant> &constants,
                 const Mutables &mutables, const std::vector<Step> &steps, int threads)
    : threads_(threads),
      arena_(std::make_shared<Buffer>(arena_nbytes)),
      constants_(constants),
      mutables_(mutables),
      stream_(cpu_engine()) {
    steps_.reserve(steps.size());
    for (const auto &step : steps) steps_.push_back(bind_step(step));
}

namespace {

// Calls `body(first, count)` for ranges of elements: on all threads if they have so many bytes that
// one thread cannot use the bandwidth of the memory.
template <class Body>
void in_ranges(std::size_t count, std::size_t element_nbytes, int threads, const Body &body) {
    constexpr std::size_t kLarge = 1 << 20, kLine = 64;
    const std::size_t line = kLine / element_nbytes, lines = (count + line - 1) / line;
    in_parallel(count * element_nbytes >= kLarge ? threads : 1, [&](int part, int parts) {
        const auto begin = [&](int at) {
            const auto whole = static_cast<std::size_t>(parts);
            return std::min(count, lines * static_cast<std::size_t>(at) / whole * line);
        };
        body(begin(part), begin(part + 1) - begin(part));
    });
}

BoundKernel bind_kernel(const KernelStep &step) {
    BoundKernel bound{step.kernel.get(), {}, std::nullopt, {}};
    const auto given = [&](int id) {
        return std::find_if(step.args.begin(), step.args.end(),
                            [&](const Arg &arg) { return arg.id == id; });
    };
    for (const int id : step.kernel->args()) bound.refs.push_back(given(id)->ref);
    const auto scratchpad = given(DNNL_ARG_SCRATCHPAD);
    if (scratchpad != step.args.end()) bound.scratchpad = scratchpad->ref;
    bound.data.resize(bound.refs.size());
    return bound;
}

}  // namespace

BoundStep Context::bind_step(const Step &step) {
    if (const auto *copy = std::get_if<CopyStep>(&step)) {
        return BoundCopy{copy->dst, copy->src, copy->nbytes};
    }
    if (const auto *fill = std::get_if<FillStep>(&step)) {
        return BoundFill{fill->dst, fill->count, fill->value};
    }
    if (const auto *host = std::get_if<HostStep>(&step)) {
        return BoundHost{host->function, host->args};
    }
    if (const auto *kernel = std::get_if<KernelStep>(&step)) return bind_kernel(*kernel);
    const auto &primitive = std::get<PrimitiveStep>(step);
    BoundPrimitive bound{
        primitive.primitive.get(), primitive.primitive.threads(), {}, std::nullopt};
    for (const auto &arg : primitive.args) {
        const bool owned = arg.ref.space != Space::inputs && arg.ref.space != Space::outputs;
        void *data = owned ? resolve(arg.ref) : DNNL_MEMORY_NONE;
        memories_.emplace_back(arg.desc.get(), cpu_engine(), data);
        const dnnl_memory_t memory = memories_.back().get();
        bound.args.push_back({arg.id, memory});
        if (!owned) rebound_.push_back({memory, arg.ref});
        if (arg.id == DNNL_ARG_DST && primitive.primitive.streams()) {
            bound.streamed = {memory, arg.ref, arg.desc.nbytes()};
        }
    }
    return bound;
}

std::byte *Context::resolve(const Ref &ref) const {
    switch (ref.space) {
        case Space::arena:
            return arena_->data() + ref.offset;
        case Space::constants: {
            // Constants are only ever sources, which Program::check_ref makes sure of.
            auto *data = const_cast<void *>(constants_[ref.index].data);
            return static_cast<std::byte *>(data) + ref.offset;
        }
        case Space::inputs:
            return static_cast<std::byte *>((*inputs_)[ref.index].data) + ref.offset;
        case Space::outputs:
            return static_cast<std::byte *>((*outputs_)[ref.index].data) + ref.offset;
        case Space::parameters:
            return mutables_.parameters[ref.index]->data() + ref.offset;
        case Space::states:
            return mutables_.states[ref.index]->data() + ref.offset;
    }
    throw std::logic_error("a reference to an unknown space");
}

void Context::bind(const Program::Views &inputs, const Program::Views &outputs) {
    inputs_ = &inputs;
    outputs_ = &outputs;
    for (const auto &[memory, ref] : rebound_) {
        check(dnnl_memory_set_data_handle(memory, resolve(ref)), "could not bind an array");
    }
}

// 0xFF in every byte is a NaN in every floating-point type.
void Context::poison() {
    if (arena_->nbytes() > 0) std::memset(arena_->data(), 0xFF, arena_->nbytes());
}

void Context::execute_primitive(std::size_t index, const BoundPrimitive &step) {
    const ThreadScope scope(step.threads);
    const auto status = dnnl_primitive_execute(
        step.primitive, stream_.get(), static_cast<int>(step.args.size()), step.args.data());
    if (status != dnnl_success) {
        throw NativeError(status, "could not execute step " + std::to_string(index));
    }
}

bool Context::is_astray(const BoundPrimitive &step) const {
    constexpr std::uintptr_t kVector = 64;
    constexpr std::size_t kCached = 1 << 20;  // results up to this size stay in any cache
    return step.streamed && step.streamed->nbytes > kCached &&
           reinterpret_cast<std::uintptr_t>(resolve(step.streamed->ref)) % kVector != 0;
}

void Context::execute_aside(std::size_t index, const BoundPrimitive &step) {
    const auto &[memory, ref, nbytes] = *step.streamed;
    Buffer aside(nbytes);
    std::byte *dst = resolve(ref);
    // Whatever happens, the memory points to its own place afterwards.
    const std::unique_ptr<dnnl_memory, std::function<void(dnnl_memory_t)>> redirected(
        memory, [dst](dnnl_memory_t it) { dnnl_memory_set_data_handle(it, dst); });
    check(dnnl_memory_set_data_handle(memory, aside.data()), "could not bind a result");
    execute_primitive(index, step);
    wait();
    std::memcpy(dst, aside.data(), nbytes);
}

HostView Context::host_view(const HostArg &arg) const {
    HostView view{resolve(arg.ref), arg.nbytes, arg.written, nullptr, nullptr};
    switch (arg.ref.space) {
        case Space::arena:
            view.owner = arena_;
            break;
        case Space::constants:
            view.owner = constants_[arg.ref.index].owner;
            break;
        case Space::inputs:
            view.exporter = (*inputs_)[arg.ref.index].exporter;
            break;
        case Space::outputs:
            view.exporter = (*outputs_)[arg.ref.index].exporter;
            break;
        case Space::parameters:
            view.owner = mutables_.parameters[arg.ref.index];
            break;
        case Space::states:
            view.owner = mutables_.states[arg.ref.index];
            break;
    }
    return view;
}

void Context::execute_host(const BoundHost &step) {
    // Primitives before it must be done with the memory that the function sees.
    wait();
    std::vector<HostView> views;
    views.reserve(step.args.size());
    for (const auto &arg : step.args) views.push_back(host_view(arg));
    (*step.function)(views);
}

void Context::execute_kernel(BoundKernel &step) {
    std::transform(step.refs.begin(), step.refs.end(), step.data.begin(),
                   [&](const Ref &ref) { return resolve(ref); });
    step.kernel->execute(step.data, step.scratchpad ? resolve(*step.scratchpad) : nullptr);
}

void Context::execute(std::size_t index) {
    BoundStep &step = steps_[index];
    if (const auto *primitive = std::get_if<BoundPrimitive>(&step)) {
        is_astray(*primitive) ? execute_aside(index, *primitive)
                              : execute_primitive(index, *primitive);
    } else if (auto *kernel = std::get_if<BoundKernel>(&step)) {
        try {
            execute_kernel(*kernel);
        } catch (const std::out_of_range &error) {
            throw std::runtime_error("step " + std::to_string(index) + ": " + error.what());
        }
    } else if (const auto *copy = std::get_if<BoundCopy>(&step)) {
        // Empty arrays may have no address, and memcpy wants one.
        if (copy->nbytes == 0) return;
        std::byte *dst = resolve(copy->dst);
        const std::byte *src = resolve(copy->src);
        in_ranges(copy->nbytes, 1, threads_, [&](std::size_t first, std::size_t count) {
            std::memcpy(dst + first, src + first, count);
        });
    } else if (const auto *host = std::get_if<BoundHost>(&step)) {
        execute_host(*host);
    } else {
        const auto &fill = std::get<BoundFill>(step);
        auto *first = reinterpret_cast<float *>(resolve(fill.dst));
        in_ranges(fill.count, sizeof(float), threads_, [&](std::size_t begin, std::size_t count) {
            std::fill_n(first + begin, count, fill.value);
        });
    }
}

void Context::wait() {
    check(dnnl_stream_wait(stream_.get()), "could not wait for a stream");
}

}  // namespace stridewise
