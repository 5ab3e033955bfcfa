#include "pointwise/pointwise.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <utility>

#include "isa/choice.hpp"
#include "support/errors.hpp"
#include "support/images.hpp"
#include "threads/regions.hpp"

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

const ByteLoops &find_byte_loops(const std::string &isa) {
#ifdef STRIDEWISE_AVX2
    if (isa == "avx512" || isa == "avx512_bf16") return avx512_byte_loops();
    if (isa == "avx2") return avx2_byte_loops();
#endif
    return portable_byte_loops();
}

bool is_byte(const MemoryDesc &desc) {
    return desc.dtype() == "s8" || desc.dtype() == "u8";
}

void check_expression(const std::vector<MemoryDesc> &descs) {
    for (const auto &desc : descs) {
        const bool is_known = !desc.is_any() && !desc.is_empty() && desc.offset() == 0;
        if (!is_known || !is_byte(desc)) check_pointwise({desc});
    }
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
    // The elements of the result for which the vector of a source holds what they need.
    std::array<std::int64_t, kMostSources> held_from, held_to;
    // Elements whose factors and terms are folded; 0 where some are not finite, -1 if not known.
    std::int64_t folded;
};

Expression::Element Expression::element_of(const MemoryDesc &desc, const std::vector<Grid> &grids,
                                           std::size_t at) {
    if (!is_byte(desc)) return {is_half(desc) ? Type::bf16 : Type::f32, {1.0F, 0.0F}};
    const bool is_signed = desc.dtype() == "s8";
    require(at < grids.size(), "pointwise: expected a scale and a zero point of " + desc.repr());
    const Grid grid = grids[at];
    const float low = is_signed ? -128.0F : 0.0F;
    require(std::isfinite(grid.scale) && grid.scale > 0 && grid.zero == std::floor(grid.zero) &&
                grid.zero >= low && grid.zero <= low + 255,
            "pointwise: expected a positive scale and a zero point that is one of the integers, "
            "got " +
                std::to_string(grid.scale) + " and " + std::to_string(grid.zero));
    return {is_signed ? Type::s8 : Type::u8, grid};
}

Expression::Expression(const std::vector<PointwiseStep> &steps, std::vector<float> literals,
                       const MemoryDesc &result, const std::vector<MemoryDesc> &sources,
                       const std::vector<Grid> &grids, const std::string &isa)
    : isa_(known_isa(isa, has_halves(all_of(sources, result)))),
      walk_(result, sources),
      halves_(&find_loops(isa_)),
      bytes_(&find_byte_loops(isa_)),
      result_(element_of(result, grids, sources.size())),
      literals_(std::move(literals)) {
    for (std::size_t at = 0; at < sources.size(); ++at) {
        const auto other = walk_.is_whole(at) ? Reading::whole : Reading::copied;
        const auto reading = walk_.is_scalar(at) ? Reading::scalar : other;
        sources_.push_back({reading, element_of(sources[at], grids, at), 0});
    }
    require(!steps.empty() && steps.size() <= kMostSteps && !sources_.empty() &&
                sources_.size() <= kMostSources && literals_.size() <= kMostLiterals,
            "pointwise: expected 1 to " + std::to_string(kMostSteps) + " steps, 1 to " +
                std::to_string(kMostSources) + " sources and at most " +
                std::to_string(kMostLiterals) + " literals");
    bind(steps);
    join_steps(steps);
    choose_part();
}

void Expression::join_steps(const std::vector<PointwiseStep> &steps) {
    const auto first = static_cast<int>(sources_.size() + literals_.size());
    last_ = first + static_cast<int>(steps_.size()) - 1;
    if (result_.type == Type::f32 || result_.type == Type::bf16) return;
    const auto name = [&] { return steps[steps_.size() - 1].name; };
    if (steps_.size() > 1 && name() == "relu" && steps_.back().operands[0] == last_ - 1) {
        stored_.is_rectified = true;
        steps_.pop_back();
        --last_;
    }
    if (name() == "add" || name() == "mul") {
        stored_.kind = name() == "add" ? StoredOperation::sum : StoredOperation::product;
        last_ = steps_.back().operands[0];
        other_ = steps_.back().operands[1];
        steps_.pop_back();
    }
    if (steps_.empty() || steps.front().name != "mul") return;
    const int source = steps_.front().operands[0];
    const bool is_source = source < static_cast<int>(sources_.size());
    int uses = static_cast<int>(last_ == source) +
               static_cast<int>(stored_.kind != StoredOperation::none && other_ == source);
    for (std::size_t at = 0; at < steps_.size(); ++at) {
        const auto count = static_cast<std::ptrdiff_t>(steps[at].operands.size());
        const int *operands = steps_[at].operands;
        uses += static_cast<int>(std::count(operands, operands + count, source));
    }
    if (!is_source || uses > 1) return;
    const auto &[reading, element, span] = sources_[static_cast<std::size_t>(source)];
    const bool is_byte = element.type == Type::s8 || element.type == Type::u8;
    if (!is_byte || reading != Reading::whole || span != 0) return;
    multiplied_ = source;
    is_affine_ = steps_.size() == 1 && stored_.kind == StoredOperation::sum && last_ == first &&
                 other_ < first;
}

void Expression::choose_part() {
    // Parts are multiples of `least` elements, and end where `whole` ones do. Factors and terms
    // that repeat with them are folded once.
    const std::int64_t most = is_affine_ ? kPart : kShort;
    std::int64_t least = kPointwiseLanes, whole = 0;
    for (std::size_t at = 0; at < sources_.size(); ++at) {
        if (sources_[at].reading != Reading::copied) continue;
        const auto [period, span] = walk_.repetition(at);
        const std::int64_t wanted = std::lcm(std::max<std::int64_t>(period, 1), kPointwiseLanes);
        const bool repeats = period > 0 && wanted <= most;
        if (repeats) least = std::max(least, wanted);
        const std::int64_t ends = repeats ? span : walk_.row(at);
        if (whole == 0 && ends > most) whole = ends;
    }
    part_ = most / least * least;
    for (std::int64_t found = part_; whole > 0 && found >= most / 4; found -= least) {
        if (whole % found != 0) continue;
        part_ = found;
        break;
    }
    for (std::size_t at = 0; at < sources_.size(); ++at) {
        if (sources_[at].reading != Reading::copied) continue;
        const auto [period, span] = walk_.repetition(at);
        if (period > 0 && part_ % period == 0) sources_[at].span = span;
    }
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

void Expression::widen(const Element &element, const void *from, float *to,
                       std::int64_t count) const {
    switch (element.type) {
        case Type::f32:
            std::copy_n(static_cast<const float *>(from), count, to);
            break;
        case Type::bf16:
            halves_->widen(static_cast<const Bfloat16 *>(from), to, count);
            break;
        case Type::s8:
            bytes_->s8.widen(static_cast<const std::int8_t *>(from), to, count, element.grid);
            break;
        case Type::u8:
            bytes_->u8.widen(static_cast<const std::uint8_t *>(from), to, count, element.grid);
            break;
    }
}

const float *Expression::read(std::size_t at, const void *from, std::int64_t begin,
                              std::int64_t count, float *vector) const {
    const Reading reading = sources_[at].reading;
    const Element &element = sources_[at].element;
    const auto *floats = static_cast<const float *>(from);
    const auto *halves = static_cast<const Bfloat16 *>(from);
    const auto *bytes = static_cast<const std::uint8_t *>(from);
    if (reading == Reading::whole && count % kPointwiseLanes == 0) {
        if (element.type == Type::f32) return floats + begin;
        const void *first =
            element.type == Type::bf16 ? static_cast<const void *>(halves + begin) : bytes + begin;
        widen(element, first, vector, count);
        return vector;
    }
    if (element.type == Type::f32) {
        const bool is_row = reading == Reading::copied && count % kPointwiseLanes == 0;
        const std::int64_t offset = is_row ? walk_.offset_in_row(at, begin, count) : -1;
        if (offset >= 0) return floats + offset;
        walk_.gather(at, floats, begin, count, vector);
    } else if (element.type == Type::bf16) {
        walk_.gather(at, halves, begin, count, vector);
    } else {
        std::array<std::uint8_t, kPart> copied;
        walk_.gather(at, bytes, begin, count, copied.data());
        widen(element, copied.data(), vector, count);
    }
    std::fill_n(vector + count, ceil_div(count, kPointwiseLanes) * kPointwiseLanes - count, 0.0F);
    return vector;
}

bool Expression::is_held(Registers &registers, std::size_t at, std::int64_t begin,
                         std::int64_t count) const {
    const std::int64_t span = sources_[at].span, end = begin + count;
    if (span == 0) return false;
    if (registers.held_from[at] <= begin && end <= registers.held_to[at]) return true;
    const std::int64_t first = begin / span * span;
    registers.held_from[at] = first;
    registers.held_to[at] = end <= first + span ? first + span : 0;
    return false;
}

void Expression::store(const Registers &registers, void *result, std::int64_t begin,
                       std::int64_t count) const {
    const float *from = registers.at[static_cast<std::size_t>(last_)];
    const float *other = registers.at[static_cast<std::size_t>(other_)];
    if (result_.type == Type::bf16) {
        auto *halves = static_cast<Bfloat16 *>(result) + begin;
        halves_->round(from, halves, count);
        walk_.clear_padding(begin, count, halves);
    } else if (result_.type == Type::f32) {
        auto *floats = static_cast<float *>(result) + begin;
        if (from != floats) std::copy_n(from, count, floats);
        walk_.clear_padding(begin, count, floats);
    } else {
        auto *bytes = static_cast<std::uint8_t *>(result) + begin;
        if (result_.type == Type::u8) {
            bytes_->u8.round(from, other, bytes, count, result_.grid, stored_);
        } else {
            auto *signed_bytes = reinterpret_cast<std::int8_t *>(bytes);
            bytes_->s8.round(from, other, signed_bytes, count, result_.grid, stored_);
        }
        walk_.clear_padding(begin, count, bytes);
    }
}

bool Expression::fold(Registers &registers, std::int64_t count) const {
    const auto factors = static_cast<std::size_t>(steps_.front().operands[1]);
    const std::size_t free = sources_.size() + literals_.size();  // the vectors of steps
    return bytes_->fold(registers.at[factors], registers.at[static_cast<std::size_t>(other_)],
                        registers.vectors[free].data(), registers.vectors[free + 1].data(), count,
                        sources_[static_cast<std::size_t>(multiplied_)].element.grid, result_.grid);
}

void Expression::run_affine(const Registers &registers, const void *source, void *result,
                            std::int64_t begin, std::int64_t count) const {
    const Type type = sources_[static_cast<std::size_t>(multiplied_)].element.type;
    const std::size_t free = sources_.size() + literals_.size();
    const ByteAffine affine{registers.vectors[free].data(), registers.vectors[free + 1].data(),
                            result_.grid, stored_.is_rectified};
    const auto run = [&](const auto &loops, const auto *from) {
        if (result_.type == Type::u8) {
            loops.affine_to_u8(from, static_cast<std::uint8_t *>(result) + begin, count, affine);
        } else {
            loops.affine_to_s8(from, static_cast<std::int8_t *>(result) + begin, count, affine);
        }
    };
    if (type == Type::u8) {
        run(bytes_->u8, static_cast<const std::uint8_t *>(source) + begin);
    } else {
        run(bytes_->s8, static_cast<const std::int8_t *>(source) + begin);
    }
    walk_.clear_padding(begin, count, static_cast<std::uint8_t *>(result) + begin);
}

void Expression::run_part(Registers &registers, const void *const *sources, void *result,
                          std::int64_t begin, std::int64_t count) const {
    const std::int64_t rounded = ceil_div(count, kPointwiseLanes) * kPointwiseLanes;
    const int multiplied = rounded == count ? multiplied_ : -1;
    for (std::size_t at = 0; at < sources_.size(); ++at) {
        if (sources_[at].reading == Reading::scalar || static_cast<int>(at) == multiplied) continue;
        if (is_held(registers, at, begin, count)) continue;
        registers.folded = -1;
        registers.at[at] = read(at, sources[at], begin, count, registers.vectors[at].data());
    }
    if (is_affine_ && multiplied >= 0) {
        if (registers.folded < 0) registers.folded = fold(registers, count) ? count : 0;
        if (registers.folded >= count) {
            return run_affine(registers, sources[static_cast<std::size_t>(multiplied)], result,
                              begin, count);
        }
    }
    registers.folded = std::min<std::int64_t>(registers.folded, 0);  // steps use its vectors
    const bool is_direct = rounded == count && result_.type == Type::f32;
    std::size_t number = sources_.size() + literals_.size();
    for (std::size_t index = 0; index < steps_.size(); ++index, ++number) {
        const Bound &step = steps_[index];
        const bool is_last = index + 1 == steps_.size();
        float *to = is_last && is_direct ? static_cast<float *>(result) + begin
                                         : registers.vectors[number].data();
        const auto operand = [&](int at) {
            return registers.at[static_cast<std::size_t>(step.operands[at])];
        };
        registers.at[number] = to;
        if (index > 0 || multiplied < 0) {
            step.run({operand(0), operand(1), operand(2), to, rounded, step.alpha, step.beta});
            continue;
        }
        const auto at = static_cast<std::size_t>(multiplied);
        const auto &[type, grid] = sources_[at].element;
        const auto *bytes = static_cast<const std::uint8_t *>(sources[at]) + begin;
        if (type == Type::u8) {
            bytes_->u8.multiply(bytes, operand(1), to, count, grid);
        } else {
            const auto *signed_bytes = reinterpret_cast<const std::int8_t *>(bytes);
            bytes_->s8.multiply(signed_bytes, operand(1), to, count, grid);
        }
    }
    store(registers, result, begin, count);
}

void Expression::run(const void *const *sources, void *result, int part, int parts) const {
    const std::int64_t whole = ceil_div(walk_.size(), part_);
    const std::int64_t first = whole * part / parts, last = whole * (part + 1) / parts;
    if (first == last) return;
    Registers registers;
    registers.held_from.fill(0);
    registers.held_to.fill(0);
    registers.folded = -1;
    for (std::size_t at = 0; at < sources_.size() + literals_.size(); ++at) {
        const bool is_literal = at >= sources_.size();
        registers.at[at] = registers.vectors[at].data();
        if (is_literal) {
            registers.vectors[at].fill(literals_[at - sources_.size()]);
        } else if (sources_[at].reading == Reading::scalar) {
            float number;
            widen(sources_[at].element, sources[at], &number, 1);
            registers.vectors[at].fill(number);
        }
    }
    for (std::int64_t number = first; number < last; ++number) {
        const std::int64_t begin = number * part_;
        run_part(registers, sources, result, begin, std::min(part_, walk_.size() - begin));
    }
}

Pointwise::Pointwise(const std::vector<PointwiseStep> &steps, std::vector<float> literals,
                     const std::vector<MemoryDesc> &sources, const MemoryDesc &result,
                     const std::vector<Grid> &grids, int threads, const std::string &isa)
    : Kernel(threads),
      sources_(sources),
      result_((check_expression(all_of(sources, result)), result)),
      expression_(steps, std::move(literals), result, sources, grids, isa) {
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
        const auto some = kernel_isas(lanes, halves);
        found.insert(found.end(), some.begin(), some.end() - 1);  // without the portable one
    }
    found.emplace_back("portable");
    return found;
}

}  // namespace stridewise
