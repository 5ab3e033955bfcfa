#include "pointwise/pointwise.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "support/errors.hpp"
#include "support/images.hpp"
#include "threads/openmp.hpp"
#include "winograd/winograd.hpp"

namespace stridewise {
namespace {

const PointwiseKernel *find_kernel(const std::string &isa, const std::string &name) {
#ifdef STRIDEWISE_AVX2
    if (isa == "avx512" || isa == "avx512_bf16") return avx512_pointwise_kernel(name.c_str());
    if (isa == "avx2") return avx2_pointwise_kernel(name.c_str());
#endif
    return portable_pointwise_kernel(name.c_str());
}

const Bfloat16Loops &find_loops(const std::string &isa) {
#ifdef STRIDEWISE_AVX2
    if (isa == "avx512_bf16") return avx512_bf16_bfloat16_loops();
    if (isa == "avx512") return avx512_bfloat16_loops();
    if (isa == "avx2") return avx2_bfloat16_loops();
#endif
    return portable_bfloat16_loops();
}

std::vector<MemoryDesc> all_of(std::vector<MemoryDesc> descs, const MemoryDesc &last) {
    descs.push_back(last);
    return descs;
}

}  // namespace

// The operands of all steps, by their numbers: memory of a source, or a vector of elements.
struct Expression::Registers {
    static constexpr std::size_t kMost = kMostSources + kMostLiterals + kMostSteps;

    alignas(64) std::array<std::array<float, kPart>, kMost> vectors;
    std::array<const float *, kMost> at;
};

Expression::Expression(const std::vector<PointwiseStep> &steps, std::vector<float> literals,
                       const MemoryDesc &result, const std::vector<MemoryDesc> &sources,
                       const std::string &isa)
    : isa_(known_isa(isa, has_halves(all_of(sources, result)))),
      walk_(result, sources),
      halves_(&find_loops(isa_)),
      is_half_(is_half(result)),
      literals_(std::move(literals)) {
    for (std::size_t at = 0; at < sources.size(); ++at) {
        const auto other = walk_.is_whole(at) ? Reading::whole : Reading::copied;
        sources_.push_back({walk_.is_scalar(at) ? Reading::scalar : other, is_half(sources[at])});
    }
    require(!steps.empty() && steps.size() <= kMostSteps && !sources_.empty() &&
                sources_.size() <= kMostSources && literals_.size() <= kMostLiterals,
            "pointwise: expected 1 to " + std::to_string(kMostSteps) + " steps, 1 to " +
                std::to_string(kMostSources) + " sources and at most " +
                std::to_string(kMostLiterals) + " literals");
    bind(steps);
}

void Expression::bind(const std::vector<PointwiseStep> &steps) {
    for (const auto &step : steps) {
        const auto *kernel = find_kernel(isa_, step.name);
        require(kernel != nullptr, "pointwise: there is no operation " + step.name);
        require(static_cast<int>(step.operands.size()) == kernel->operands,
                "pointwise: expected " + std::to_string(kernel->operands) + " operands of " +
                    step.name + ", got " + std::to_string(step.operands.size()));
        Bound bound{kernel->run, {0, 0, 0}, step.alpha, step.beta};
        const auto known = static_cast<int>(sources_.size() + literals_.size() + steps_.size());
        for (std::size_t at = 0; at < step.operands.size(); ++at) {
            const int operand = step.operands[at];
            require(operand >= 0 && operand < known,
                    "pointwise: expected an operand below " + std::to_string(known) + " of " +
                        step.name + ", got " + std::to_string(operand));
            bound.operands[at] = operand;
        }
        steps_.push_back(bound);
    }
}

const float *Expression::read(std::size_t at, const void *from, std::int64_t begin,
                              std::int64_t count, float *vector) const {
    const auto *floats = static_cast<const float *>(from);
    const auto *halves = static_cast<const Bfloat16 *>(from);
    const bool is_half = sources_[at].is_half;
    if (sources_[at].reading == Reading::whole && count % kPointwiseLanes == 0) {
        if (!is_half) return floats + begin;
        halves_->widen(halves + begin, vector, count);
        return vector;
    }
    is_half ? walk_.gather(at, halves, begin, count, vector)
            : walk_.gather(at, floats, begin, count, vector);
    std::fill_n(vector + count, ceil_div(count, kPointwiseLanes) * kPointwiseLanes - count, 0.0F);
    return vector;
}

void Expression::run_part(Registers &registers, const void *const *sources, void *result,
                          std::int64_t begin, std::int64_t count) const {
    const std::int64_t rounded = ceil_div(count, kPointwiseLanes) * kPointwiseLanes;
    for (std::size_t at = 0; at < sources_.size(); ++at) {
        if (sources_[at].reading == Reading::scalar) continue;
        registers.at[at] = read(at, sources[at], begin, count, registers.vectors[at].data());
    }
    auto *floats = static_cast<float *>(result) + begin;
    auto *halves = static_cast<Bfloat16 *>(result) + begin;
    const bool is_direct = rounded == count && !is_half_;
    std::size_t number = sources_.size() + literals_.size();
    for (std::size_t index = 0; index < steps_.size(); ++index, ++number) {
        const Bound &step = steps_[index];
        const bool is_last = index + 1 == steps_.size();
        float *to = is_last && is_direct ? floats : registers.vectors[number].data();
        const auto operand = [&](int at) {
            return registers.at[static_cast<std::size_t>(step.operands[at])];
        };
        step.run({operand(0), operand(1), operand(2), to, rounded, step.alpha, step.beta});
        registers.at[number] = to;
    }
    if (is_half_) {
        halves_->round(registers.at[number - 1], halves, count);
        return walk_.clear_padding(begin, count, halves);
    }
    if (!is_direct) std::copy_n(registers.at[number - 1], count, floats);
    walk_.clear_padding(begin, count, floats);
}

void Expression::run(const void *const *sources, void *result, int part, int parts) const {
    const std::int64_t whole = ceil_div(walk_.size(), kPart);
    const std::int64_t first = whole * part / parts, last = whole * (part + 1) / parts;
    if (first == last) return;
    Registers registers;
    for (std::size_t at = 0; at < sources_.size() + literals_.size(); ++at) {
        const bool is_literal = at >= sources_.size();
        registers.at[at] = registers.vectors[at].data();
        if (is_literal) {
            registers.vectors[at].fill(literals_[at - sources_.size()]);
        } else if (sources_[at].reading == Reading::scalar) {
            const void *from = sources[at];
            registers.vectors[at].fill(sources_[at].is_half
                                           ? as_float(*static_cast<const Bfloat16 *>(from))
                                           : *static_cast<const float *>(from));
        }
    }
    for (std::int64_t number = first; number < last; ++number) {
        const std::int64_t begin = number * kPart;
        run_part(registers, sources, result, begin, std::min(kPart, walk_.size() - begin));
    }
}

Pointwise::Pointwise(const std::vector<PointwiseStep> &steps, std::vector<float> literals,
                     const std::vector<MemoryDesc> &sources, const MemoryDesc &result, int threads,
                     const std::string &isa)
    : sources_(sources),
      result_((check_pointwise(sources), check_pointwise({result}), result)),
      expression_(steps, std::move(literals), result, sources, isa),
      threads_(threads) {
    require(threads >= 1, "threads: expected at least 1, got " + std::to_string(threads));
    for (std::size_t at = 0; at < sources.size(); ++at) {
        args_.push_back(DNNL_ARG_MULTIPLE_SRC + static_cast<int>(at));
    }
    args_.push_back(DNNL_ARG_DST);
}

MemoryDesc Pointwise::arg_desc(int arg) const {
    if (arg == DNNL_ARG_DST) return result_;
    const auto at = static_cast<std::size_t>(arg - DNNL_ARG_MULTIPLE_SRC);
    require(arg >= DNNL_ARG_MULTIPLE_SRC && at < sources_.size(),
            "pointwise: there is no argument " + std::to_string(arg));
    return sources_[at];
}

void Pointwise::execute(const std::vector<void *> &data, void *) const {
    in_parallel(threads_, [&](int part, int parts) {
        expression_.run(data.data(), data.back(), part, parts);
    });
}

void check_pointwise(const std::vector<MemoryDesc> &descs) {
    for (const auto &desc : descs) {
        const bool is_known = desc.dtype() == "f32" || desc.dtype() == "bf16";
        require(!desc.is_any() && !desc.is_empty() && is_known && desc.offset() == 0,
                "pointwise: expected float32 or bfloat16 in a known format, got " + desc.repr());
    }
}

bool is_half(const MemoryDesc &desc) {
    return desc.dtype() == "bf16";
}

bool has_halves(const std::vector<MemoryDesc> &descs) {
    return std::any_of(descs.begin(), descs.end(), is_half);
}

std::string known_isa(const std::string &isa, bool halves) {
    const auto known = pointwise_isas(halves);
    const std::string found = isa.empty() ? known.front() : isa;
    require(std::find(known.begin(), known.end(), found) != known.end(),
            "pointwise: there are no " + found + " kernels here");
    return found;
}

std::vector<std::string> pointwise_isas(bool halves) {
    std::vector<std::string> found;
    // Kernels of 16 lanes exist where AVX-512 does, those of 8 where AVX2 does.
    for (const int lanes : {16, 8}) {
        const auto some = winograd_isas(lanes, halves);
        found.insert(found.end(), some.begin(), some.end() - 1);  // without the portable one
    }
    found.emplace_back("portable");
    return found;
}

}  // namespace stridewise
