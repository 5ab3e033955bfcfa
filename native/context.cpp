#include "context.hpp"

#include <algorithm>
#include <cstring>

#include "errors.hpp"

namespace stridewise {

Context::Context(std::size_t arena_nbytes, const std::vector<Constant> &constants,
                 const std::vector<Step> &steps)
    : arena_(std::make_shared<Buffer>(arena_nbytes)), constants_(constants), stream_(cpu_engine()) {
    steps_.reserve(steps.size());
    for (const auto &step : steps) steps_.push_back(bind_step(step));
}

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
    const auto &primitive = std::get<PrimitiveStep>(step);
    BoundPrimitive bound{primitive.primitive.get(), {}};
    for (const auto &arg : primitive.args) {
        const bool owned = arg.ref.space == Space::arena || arg.ref.space == Space::constants;
        void *data = owned ? resolve(arg.ref) : DNNL_MEMORY_NONE;
        memories_.emplace_back(arg.desc.get(), cpu_engine(), data);
        const dnnl_memory_t memory = memories_.back().get();
        bound.args.push_back({arg.id, memory});
        if (!owned) rebound_.push_back({memory, arg.ref});
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
    const auto status = dnnl_primitive_execute(
        step.primitive, stream_.get(), static_cast<int>(step.args.size()), step.args.data());
    if (status != dnnl_success) {
        throw NativeError(status, "could not execute step " + std::to_string(index));
    }
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

void Context::execute(std::size_t index) {
    const BoundStep &step = steps_[index];
    if (const auto *primitive = std::get_if<BoundPrimitive>(&step)) {
        execute_primitive(index, *primitive);
    } else if (const auto *copy = std::get_if<BoundCopy>(&step)) {
        // Empty arrays may have no address, and memcpy wants one.
        if (copy->nbytes > 0) {
            std::memcpy(resolve(copy->dst), resolve(copy->src), copy->nbytes);
        }
    } else if (const auto *host = std::get_if<BoundHost>(&step)) {
        execute_host(*host);
    } else {
        const auto &fill = std::get<BoundFill>(step);
        auto *first = reinterpret_cast<float *>(resolve(fill.dst));
        std::fill_n(first, fill.count, fill.value);
    }
}

void Context::wait() {
    check(dnnl_stream_wait(stream_.get()), "could not wait for a stream");
}

}  // namespace stridewise
