#include "winograd/fitted.hpp"

#include <algorithm>

#include "support/errors.hpp"
#include "threads/regions.hpp"
#include "threads/shares.hpp"
#include "winograd/weights.hpp"

namespace stridewise {
namespace {

constexpr std::size_t kAlignment = 64;

}  // namespace

FittedWinograd::FittedWinograd(Winograd kernel, bool is_transposed)
    : Kernel(kernel.threads(), kernel.args()),
      kernel_(std::move(kernel)),
      is_transposed_(is_transposed),
      quick_(winograd_weights_kernels(kernel_.options().isa, kernel_.options().lanes,
                                      kernel_.kernels().tile)) {
    require(!is_transposed || kernel_.options().groups == 1,
            "winograd: transposed weights have no groups");
    if (quick_ != nullptr) {
        vertical_ = winograd_transform_matrix(quick_->tile.places_high(), quick_->tile.taps_high);
        horizontal_ = winograd_transform_matrix(quick_->tile.places_wide(), quick_->tile.taps_wide);
        packs_pairs_ = kernel_.pack_pairs();
    }
}

std::size_t FittedWinograd::packed_nbytes() const {
    if (packs_pairs_) return 0;
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

WinogradFilters FittedWinograd::filters_of(const float *weights, std::int64_t pair) const {
    const auto &o = kernel_.options();
    const std::int64_t taps = o.window[0] * o.window[1], channels = o.channels / o.groups;
    WinogradFilters filters{weights, channels * taps, taps, is_transposed_};
    if (is_transposed_) {
        filters.output = taps;
        filters.channel = o.outputs * taps;
    }
    filters.data += pair * kernel_.pair_outputs() * filters.output;
    return filters;
}

void FittedWinograd::pack(const float *weights, std::int64_t pair, float *packed) const {
    const WinogradFilters filters = filters_of(weights, pair);
    const std::int64_t unit = kernel_.pair_outputs(), first = pair * unit;
    if (quick_ == nullptr) {
        return kernel_.pack(filters, packed, first, std::min(unit, kernel_.outputs() - first));
    }
    pack_quickly(filters, pair, packed + pair * kernel_.window() * kernel_.panel_count());
}

void FittedWinograd::pack_quickly(const WinogradFilters &filters, std::int64_t pair,
                                  float *panels) const {
    const auto &o = kernel_.options();
    const std::int64_t taps = o.window[0] * o.window[1], channels = o.channels / o.groups;
    const std::int64_t unit = kernel_.pair_outputs(), panel = kernel_.panel_count();
    WinogradFilterPair work{};
    work.distance = filters.output;
    work.step = filters.is_rotated ? -1 : 1;
    work.outputs = std::min(unit, o.outputs - pair * unit);
    work.vertical = vertical_.data();
    work.horizontal = horizontal_.data();
    work.xi_stride = panel;
    // Channels that share an element of `packed`.
    const std::int64_t together = o.multiplies_halves ? 2 : 1, rows = ceil_div(channels, together);
    const auto pack = o.multiplies_halves ? quick_->pack_halves : quick_->pack;
    for (std::int64_t row = 0; row < rows; ++row) {
        const std::int64_t channel = row * together;
        work.windows =
            filters.data + channel * filters.channel + (filters.is_rotated ? taps - 1 : 0);
        work.odd = channel + 1 < channels ? work.windows + filters.channel : nullptr;
        work.packed = panels + row * unit;
        pack(work);
    }
    for (std::int64_t xi = 0; xi < kernel_.window(); ++xi) {
        std::fill(panels + xi * panel + rows * unit, panels + (xi + 1) * panel, 0.0F);
    }
}

struct FittedWinograd::Packer final : public WinogradPacker {
    Packer(const FittedWinograd &kernel, const void *weights)
        : kernel_(kernel), weights_(static_cast<const float *>(weights)) {}

    void pack(std::int64_t pair, float *panels) const override {
        kernel_.pack_quickly(kernel_.filters_of(weights_, pair), pair, panels);
    }

  private:
    const FittedWinograd &kernel_;
    const float *weights_;
};

void FittedWinograd::execute(const std::vector<void *> &data, void *scratchpad) const {
    if (packs_pairs_) {
        const Packer packer(*this, data[1]);
        return kernel_.execute(data, scratchpad, &packer);
    }
    const auto *weights = static_cast<const float *>(data[1]);
    Shares items(ceil_div(kernel_.options().outputs, kernel_.pair_outputs()), threads());
    in_parallel(threads(), [&](int part, int) {
        for (std::int64_t pair; (pair = items.next(part)) >= 0;) {
            pack(weights, pair, static_cast<float *>(scratchpad));
        }
    });
    std::vector<void *> given = data;
    given[1] = scratchpad;
    kernel_.execute(given, static_cast<std::byte *>(scratchpad) + packed_nbytes());
}

}  // namespace stridewise
