#include "winograd/fitted.hpp"

#include <algorithm>

#include "support/errors.hpp"
#include "threads/openmp.hpp"
#include "threads/shares.hpp"

namespace stridewise {
namespace {

constexpr std::size_t kAlignment = 64;

}  // namespace

FittedWinograd::FittedWinograd(Winograd kernel, bool is_transposed)
    : kernel_(std::move(kernel)), is_transposed_(is_transposed) {
    require(!is_transposed || kernel_.options().groups == 1,
            "winograd: transposed weights have no groups");
    require(!kernel_.options().multiplies_halves, "winograd: expected weights of float32");
}

std::size_t FittedWinograd::packed_nbytes() const {
    const std::size_t nbytes = kernel_.arg_desc(DNNL_ARG_WEIGHTS).nbytes();
    return (nbytes + kAlignment - 1) / kAlignment * kAlignment;
}

std::size_t FittedWinograd::scratchpad_nbytes() const {
    return packed_nbytes() + kernel_.scratchpad_nbytes();
}

MemoryDesc FittedWinograd::arg_desc(int arg) const {
    const auto &o = kernel_.options();
    if (arg == DNNL_ARG_WEIGHTS) {
        const std::int64_t channels = o.channels / o.groups;
        const Dims dims = {is_transposed_ ? channels : o.outputs,
                           is_transposed_ ? o.outputs : channels, o.window[0], o.window[1]};
        return MemoryDesc(dims, "f32", "abcd");
    }
    if (arg == DNNL_ARG_SCRATCHPAD) {
        return MemoryDesc({static_cast<std::int64_t>(scratchpad_nbytes())}, "u8", "a");
    }
    return kernel_.arg_desc(arg);
}

void FittedWinograd::execute(const std::vector<void *> &data, void *scratchpad) const {
    const auto &o = kernel_.options();
    const std::int64_t taps = o.window[0] * o.window[1], channels = o.channels / o.groups;
    const std::int64_t unit = kernel_.pair_outputs(), pairs = ceil_div(o.outputs, unit);
    const auto *weights = static_cast<const float *>(data[1]);
    Shares items(pairs, threads());
    in_parallel(threads(), [&](int part, int) {
        for (std::int64_t pair; (pair = items.next(part)) >= 0;) {
            const std::int64_t first = pair * unit, count = std::min(unit, o.outputs - first);
            const std::int64_t output = is_transposed_ ? taps : channels * taps;
            const std::int64_t channel = is_transposed_ ? o.outputs * taps : taps;
            kernel_.pack({weights + first * output, output, channel, is_transposed_}, scratchpad,
                         first, count);
        }
    });
    std::vector<void *> given = data;
    given[1] = scratchpad;
    kernel_.execute(given, static_cast<std::byte *>(scratchpad) + packed_nbytes());
}

}  // namespace stridewise
