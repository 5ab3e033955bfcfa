#include "onednn/sequence.hpp"

#include <algorithm>
#include <cstring>

#include "support/errors.hpp"
#include "threads/regions.hpp"

namespace stridewise {
namespace {

constexpr std::size_t kAlignment = 64;

std::size_t aligned(std::size_t nbytes) {
    return (nbytes + kAlignment - 1) / kAlignment * kAlignment;
}

std::size_t reach(const MemoryDesc &desc) {
    return std::max(desc.nbytes(), desc.extent());
}

}  // namespace

Sequence::Sequence(int threads) : Kernel(threads) {}

Sequence::Tensor Sequence::argument(int id, const MemoryDesc &desc, bool written) {
    require(!desc.is_any(), "sequence: expected arguments in known formats");
    places_.push_back({desc, true, args_.size()});
    args_.push_back(id);
    if (written) written_.push_back(id);
    return places_.size() - 1;
}

Sequence::Tensor Sequence::between(const MemoryDesc &desc) {
    places_.push_back({desc, false, between_nbytes_});
    between_nbytes_ += aligned(reach(desc));
    return places_.size() - 1;
}

Sequence::Tensor Sequence::within(Tensor tensor, const MemoryDesc &desc) {
    const Place whole = places_[tensor];
    require(desc.extent() <= reach(whole.desc), "sequence: expected a tensor that fits");
    places_.push_back({desc, whole.is_argument, whole.at});
    return places_.size() - 1;
}

void Sequence::clear(Tensor tensor) {
    require(!places_[tensor].is_argument, "sequence: expected a tensor in the scratchpad");
    const MemoryDesc none{dnnl::memory::desc()};
    stages_.push_back({dnnl::primitive(), none, {{DNNL_ARG_DST, tensor}}});
}

void Sequence::add(const dnnl::primitive_desc_base &desc, const Bound &args, bool names) {
    const MemoryDesc scratchpad(desc.scratchpad_desc());
    auto made = made_with_threads(threads_, [&] { return dnnl::primitive(desc.get()); });
    stages_.push_back({std::move(made), scratchpad, args});
    stage_nbytes_ = std::max(stage_nbytes_, aligned(scratchpad.nbytes()));
    if (names) impl_ = desc.impl_info_str();
}

Sequence::Tensor Sequence::read_as(Tensor tensor, const MemoryDesc &desc) {
    const MemoryDesc own = places_[tensor].desc;
    if (own == desc) return tensor;
    const Tensor found = between(desc);
    convert(tensor, found);
    return found;
}

Sequence::Tensor Sequence::write_as(Tensor tensor, const MemoryDesc &desc) {
    return places_[tensor].desc == desc ? tensor : between(desc);
}

void Sequence::convert(Tensor from, Tensor to) {
    if (from == to) return;
    const ThreadScope scope(threads_);
    const dnnl::reorder::primitive_desc desc(cpu_engine(), places_[from].desc.get(), cpu_engine(),
                                             places_[to].desc.get(), make_attr({}));
    add(desc, {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}}, false);
}

MemoryDesc Sequence::arg_desc(int arg) const {
    if (arg == DNNL_ARG_SCRATCHPAD) {
        return MemoryDesc({static_cast<std::int64_t>(scratchpad_nbytes())}, "u8", "a");
    }
    const auto found = std::find(args_.begin(), args_.end(), arg);
    require(found != args_.end(), "this kernel has no argument " + std::to_string(arg));
    const auto at = static_cast<std::size_t>(found - args_.begin());
    const auto place = std::find_if(places_.begin(), places_.end(), [&](const Place &item) {
        return item.is_argument && item.at == at;
    });
    return place->desc;
}

void Sequence::execute(const std::vector<void *> &data, void *scratchpad) const {
    auto *pad = static_cast<std::byte *>(scratchpad);
    std::vector<dnnl::memory> memories;
    for (const Place &place : places_) {
        void *at = place.is_argument ? data[place.at] : pad + place.at;
        memories.emplace_back(place.desc.get(), cpu_engine(), at);
    }
    dnnl::stream stream(cpu_engine());
    for (const Stage &stage : stages_) {
        if (!stage.primitive) {
            const Place &place = places_[stage.args.front().second];
            std::memset(pad + place.at, 0, reach(place.desc));
            continue;
        }
        std::vector<dnnl_exec_arg_t> args;
        for (const auto &[id, tensor] : stage.args) args.push_back({id, memories[tensor].get()});
        dnnl::memory own;
        if (stage.scratchpad.nbytes() > 0) {
            own = dnnl::memory(stage.scratchpad.get(), cpu_engine(), pad + between_nbytes_);
            args.push_back({DNNL_ARG_SCRATCHPAD, own.get()});
        }
        check(dnnl_primitive_execute(stage.primitive.get(), stream.get(),
                                     static_cast<int>(args.size()), args.data()),
              "could not execute a primitive of a sequence");
    }
    check(dnnl_stream_wait(stream.get()), "could not wait for a stream");
}

}  // namespace stridewise
