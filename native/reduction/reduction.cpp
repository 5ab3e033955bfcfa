#include "reduction/reduction.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <utility>

#include "support/errors.hpp"
#include "threads/regions.hpp"

namespace stridewise {
namespace {

const ReductionKernel *find_kernel(const std::string &isa, const char *name, bool halves) {
#ifdef STRIDEWISE_AVX2
    const bool is_wide = isa == "avx512" || isa == "avx512_bf16";
    if (is_wide) return avx512_reduction_kernel(name, halves);
    if (isa == "avx2") return avx2_reduction_kernel(name, halves);
#endif
    return portable_reduction_kernel(name, halves);
}

struct NamedPass {
    const char *kernel;
    double (*finish)(double total, double first, double per_term, double epsilon);
};

double total(double value, double, double, double) {
    return value;
}
double mean(double value, double, double per_term, double) {
    return value * per_term;
}
double root(double value, double, double, double) {
    return std::sqrt(value);
}
double logarithm(double value, double, double, double) {
    return std::log(value);
}
double inverse(double value, double, double, double) {
    return 1 / value;
}
double inverse_deviation(double value, double, double per_term, double epsilon) {
    return 1 / std::sqrt(value * per_term + epsilon);
}
// Infinity less infinity is no number.
double finite(double value, double, double, double) {
    return std::isinf(value) ? 0 : value;
}
double shifted_logarithm(double value, double first, double, double) {
    return std::log(value) + first;
}

std::vector<Statistics::Pass> find_passes(const std::string &algorithm, const std::string &isa,
                                          bool halves) {
    static const std::map<std::string, std::vector<NamedPass>> table = {
        {"max", {{"max", total}}},
        {"min", {{"min", total}}},
        {"sum", {{"sum", total}}},
        {"mean", {{"sum", mean}}},
        {"mul", {{"mul", total}}},
        {"l1", {{"abs", total}}},
        {"l2", {{"square", root}}},
        {"sum_square", {{"square", total}}},
        {"log_sum", {{"sum", logarithm}}},
        {"log_sum_exp", {{"max", finite}, {"exp", shifted_logarithm}}},
        {"softmax", {{"max", total}, {"exp", inverse}}},
        {"log_softmax", {{"max", total}, {"exp", logarithm}}},
        {"norm", {{"sum", mean}, {"deviation", inverse_deviation}}},
    };
    const auto found = table.find(algorithm);
    require(found != table.end(), "reduction: there is no algorithm " + algorithm);
    std::vector<Statistics::Pass> passes;
    for (const auto &pass : found->second) {
        passes.push_back({find_kernel(isa, pass.kernel, halves), pass.finish});
    }
    return passes;
}

// Operands of expressions: the source, both numbers, then scale and shift.
std::vector<PointwiseStep> find_steps(const std::string &algorithm, bool scales, bool shifts) {
    std::vector<PointwiseStep> steps{{"sub", {0, 1}, 0, 0}};
    int next = 3 + int{scales} + int{shifts};  // the number of the last step's result
    const auto add = [&](const char *name, std::vector<int> others) {
        others.insert(others.begin(), next);
        steps.push_back({name, std::move(others), 0, 0});
        ++next;
    };
    if (algorithm == "softmax") add("exp", {});
    add(algorithm == "log_softmax" ? "sub" : "mul", {2});
    if (scales) add("mul", {3});
    if (shifts) add("add", {3 + int{scales}});
    return steps;
}

std::vector<MemoryDesc> operands_of(const MemoryDesc &source, const MemoryDesc &statistics,
                                    const Normalization::Affine &affine) {
    std::vector<MemoryDesc> operands{source, statistics, statistics};
    operands.insert(operands.end(), affine.scale.begin(), affine.scale.end());
    operands.insert(operands.end(), affine.shift.begin(), affine.shift.end());
    return operands;
}

const RowKernels &find_row_kernels(const std::string &isa, HalfSides halves) {
#ifdef STRIDEWISE_AVX2
    if (isa == "avx512" || isa == "avx512_bf16") return avx512_row_kernels(halves);
    if (isa == "avx2") return avx2_row_kernels(halves);
#endif
    return portable_row_kernels(halves);
}

// Returns the elements of a row if the tensor consists of rows that are normalized, each dense, and
// with the same scale and shift: 0 otherwise.
std::int64_t find_row(const MemoryDesc &source, const MemoryDesc &result,
                      const MemoryDesc &statistics, const Normalization::Affine &affine) {
    if (has_halves(affine.scale) || has_halves(affine.shift)) return 0;
    const Walk walk(result, operands_of(source, statistics, affine));
    if (walk.is_padded() || !walk.is_whole(0)) return 0;
    for (const auto &loop : walk.loops()) {
        const bool is_row = &loop == &walk.loops().back();
        if ((loop.operands[1] == 0) != is_row) return 0;
        for (std::size_t at = 3; at < loop.operands.size(); ++at) {
            if (loop.operands[at] != (is_row ? 1 : 0)) return 0;
        }
    }
    const auto &row = walk.loops().back();
    return row.stride == 1 && row.extent <= kLongestRow ? row.extent : 0;
}

// Returns the tensor as slabs of rows side by side, if it consists of such rows that are
// normalized.
SideSlabs find_sides(const MemoryDesc &source, const MemoryDesc &result,
                     const MemoryDesc &statistics) {
    constexpr std::int64_t kFewUnits = 8, kSmall = 16384;  // elements
    if (has_halves({source, result})) return {};
    const Walk walk(result, {source, statistics});
    const auto &loops = walk.loops();
    if (walk.is_padded() || !walk.is_whole(0) || loops.size() < 2) return {};
    const auto &row = loops[loops.size() - 2], &inner = loops.back();
    for (const auto &loop : loops) {
        if ((loop.operands[1] == 0) != (&loop == &row)) return {};
    }
    if (inner.stride != 1 || row.stride != inner.extent || row.extent > kLongestRow) return {};
    SideSlabs found{1, row.extent, inner.extent};
    found.slabs = walk.size() / (found.count * found.width);
    const bool has_work_for_few = found.units() < kFewUnits && walk.size() > kSmall;
    return has_work_for_few ? SideSlabs{} : found;
}

// Where an operand of a walk has the elements of a row of the loops from `first` on.
std::vector<std::int64_t> places_of(const std::vector<Walk::Loop> &loops, std::size_t first,
                                    std::size_t operand) {
    std::vector<std::int64_t> found{0};
    for (std::size_t at = first; at < loops.size(); ++at) {
        std::vector<std::int64_t> next;
        next.reserve(found.size() * static_cast<std::size_t>(loops[at].extent));
        for (const std::int64_t place : found) {
            for (std::int64_t index = 0; index < loops[at].extent; ++index) {
                next.push_back(place + index * loops[at].operands[operand]);
            }
        }
        found = std::move(next);
    }
    return found;
}

// Returns the tensor as rows whose statistics, scale and shift depend on the neighbor alone, if it
// consists of such rows: images with channels last that are normalized over their pixels.
Columns find_columns(const MemoryDesc &source, const MemoryDesc &result,
                     const MemoryDesc &statistics, const Normalization::Affine &affine) {
    if (has_halves(affine.scale) || has_halves(affine.shift)) return {};
    const Walk walk(result, operands_of(source, statistics, affine));
    const auto &loops = walk.loops();
    if (walk.is_padded() || !walk.is_whole(0)) return {};
    // Loops over neighbors are the innermost ones with several statistics, and all inside of them.
    std::size_t first = loops.size();
    while (first > 0 && loops[first - 1].operands[1] == 0) --first;
    while (first > 0 && loops[first - 1].operands[1] != 0) --first;
    if (first == 0 || loops[first - 1].operands[1] != 0) return {};
    Columns found{1, loops[first - 1].extent, 1, {}, {}, {}, {}};
    for (std::size_t at = 0; at < loops.size(); ++at) {
        const auto &loop = loops[at];
        if (at >= first) found.width *= loop.extent;
        if (at + 1 < first) found.images *= loop.extent;
        for (std::size_t operand = 3; at < first && operand < loop.operands.size(); ++operand) {
            if (loop.operands[operand] != 0) return {};
        }
    }
    if (found.width > kLongestRow) return {};
    found.numbers = places_of(loops, first, 1);
    if (!affine.scale.empty()) found.scale = places_of(loops, first, 3);
    if (!affine.shift.empty()) {
        found.shift = places_of(loops, first, affine.scale.empty() ? 3 : 4);
    }
    const std::vector<Walk::Loop> outer(loops.begin(),
                                        loops.begin() + static_cast<std::ptrdiff_t>(first) - 1);
    found.starts = places_of(outer, 0, 1);
    return found;
}

MemoryDesc scratch_desc(std::size_t nbytes) {
    return MemoryDesc({std::max<std::int64_t>(static_cast<std::int64_t>(nbytes), 1)}, "u8", "a");
}

// Rounded, so that what lies behind is aligned.
std::size_t rounded_nbytes(std::size_t floats) {
    return (floats * sizeof(float) + 63) / 64 * 64;
}

}  // namespace

Statistics::Statistics(const std::string &algorithm, const MemoryDesc &source,
                       const MemoryDesc &result, double epsilon, const std::string &isa)
    : sweep_((check_pointwise({source, result}), source), result),
      passes_(find_passes(algorithm, isa, is_half(source))),
      is_half_(is_half(result)),
      epsilon_(epsilon) {
    const std::size_t element = is_half_ ? sizeof(Bfloat16) : sizeof(float);
    places_ = (result.extent() + element - 1) / element;
}

std::size_t Statistics::scratch_nbytes() const {
    const auto slices = static_cast<std::size_t>(sweep_.slices());
    return slices == 1 ? 0 : slices * places_ * sizeof(double);
}

void Statistics::finish(std::size_t pass, const Sweep::Task &task, const double *totals,
                        const Numbers &numbers) const {
    const bool rounds = is_half_ && pass + 1 == passes_.size();
    const double per_term = 1.0 / static_cast<double>(sweep_.terms());
    for (std::int64_t i = 0; i < task.count; ++i) {
        const std::int64_t place = task.place + i * task.step;
        const double first = pass == 0 ? 0.0 : static_cast<const float *>(numbers[0])[place];
        const auto found =
            static_cast<float>(passes_[pass].finish(totals[i], first, per_term, epsilon_));
        if (rounds) {
            put(static_cast<Bfloat16 *>(numbers[pass]) + place, found);
        } else {
            static_cast<float *>(numbers[pass])[place] = found;
        }
    }
}

void Statistics::run_task(std::int64_t number, const void *source, const Numbers &numbers) const {
    const Sweep::Task task = sweep_.task(number);
    std::array<double, kReductionLanes> totals;
    for (std::size_t pass = 0; pass < passes_.size(); ++pass) {
        sweep_.run(*passes_[pass].kernel, task, 0, source, shift_of(pass, numbers), totals.data());
        finish(pass, task, totals.data(), numbers);
    }
}

void Statistics::run_slices(std::size_t pass, const void *source, const Numbers &numbers,
                            double *scratch, int threads) const {
    const auto &kernel = *passes_[pass].kernel;
    const std::int64_t slices = sweep_.slices(), tasks = sweep_.tasks();
    const auto found = [&](std::int64_t slice, std::int64_t place) -> double & {
        return scratch[static_cast<std::size_t>(slice) * places_ + static_cast<std::size_t>(place)];
    };
    in_parallel(threads, [&](int part, int parts) {
        std::array<double, kReductionLanes> totals;
        const std::int64_t units = tasks * slices;
        for (auto unit = units * part / parts; unit < units * (part + 1) / parts; ++unit) {
            const Sweep::Task task = sweep_.task(unit / slices);
            sweep_.run(kernel, task, unit % slices, source, shift_of(pass, numbers), totals.data());
            for (std::int64_t i = 0; i < task.count; ++i) {
                found(unit % slices, task.place + i * task.step) =
                    totals[static_cast<std::size_t>(i)];
            }
        }
    });
    std::array<double, kReductionLanes> totals;
    for (std::int64_t number = 0; number < tasks; ++number) {
        const Sweep::Task task = sweep_.task(number);
        for (std::int64_t i = 0; i < task.count; ++i) {
            auto &whole = totals[static_cast<std::size_t>(i)];
            whole = found(0, task.place + i * task.step);
            for (std::int64_t slice = 1; slice < slices; ++slice) {
                whole = kernel.combine(whole, found(slice, task.place + i * task.step));
            }
        }
        finish(pass, task, totals.data(), numbers);
    }
}

void Statistics::run(const void *source, const Numbers &numbers, double *scratch,
                     int threads) const {
    if (sweep_.slices() > 1) {
        for (std::size_t pass = 0; pass < passes_.size(); ++pass) {
            run_slices(pass, source, numbers, scratch, threads);
        }
        return;
    }
    in_parallel(threads, [&](int part, int parts) {
        const std::int64_t tasks = sweep_.tasks();
        for (auto task = tasks * part / parts; task < tasks * (part + 1) / parts; ++task) {
            run_task(task, source, numbers);
        }
    });
}

Reduction::Reduction(const std::string &algorithm, const MemoryDesc &source,
                     const MemoryDesc &result, int threads, const std::string &isa)
    : Kernel(threads, {DNNL_ARG_SRC, DNNL_ARG_DST}),
      source_(source),
      result_(result),
      isa_(known_isa(isa, has_halves({source, result}))),
      statistics_(algorithm, source, result, 0, isa_) {
    if (Walk::valid_lanes(result) > 0) {
        padding_ = std::make_shared<const Walk>(result, std::vector<MemoryDesc>{result});
    }
}

std::size_t Reduction::scratchpad_nbytes() const {
    const std::size_t firsts = statistics_.count() > 1 ? statistics_.places() : 0;
    return rounded_nbytes(firsts) + statistics_.scratch_nbytes();
}

MemoryDesc Reduction::arg_desc(int arg) const {
    if (arg == DNNL_ARG_SRC) return source_;
    if (arg == DNNL_ARG_DST) return result_;
    require(arg == DNNL_ARG_SCRATCHPAD, "reduction: there is no argument " + std::to_string(arg));
    return scratch_desc(scratchpad_nbytes());
}

void Reduction::execute(const std::vector<void *> &data, void *scratchpad) const {
    void *result = data[1];
    auto *scratch = static_cast<std::byte *>(scratchpad);
    Statistics::Numbers numbers{result, result};
    if (statistics_.count() > 1) {
        numbers[0] = scratch;
        scratch += rounded_nbytes(statistics_.places());
    }
    statistics_.run(data[0], numbers, reinterpret_cast<double *>(scratch), threads_);
    if (padding_ == nullptr) return;
    if (is_half(result_)) {
        padding_->clear_padding(0, padding_->size(), static_cast<Bfloat16 *>(result));
    } else {
        padding_->clear_padding(0, padding_->size(), static_cast<float *>(result));
    }
}

Normalization::Normalization(const std::string &algorithm, const MemoryDesc &source,
                             const MemoryDesc &result, const MemoryDesc &statistics,
                             const Affine &affine, double epsilon, int threads,
                             const std::string &isa)
    : Kernel(threads, {DNNL_ARG_SRC}),
      descs_{source},
      isa_(known_isa(isa, has_halves({source, result}))),
      statistics_(algorithm, source, statistics, epsilon, isa_),
      expression_(find_steps(algorithm, !affine.scale.empty(), !affine.shift.empty()), {}, result,
                  operands_of(source, statistics, affine), {}, isa_),
      kernels_(&find_row_kernels(isa_, {is_half(source), is_half(result)})),
      row_(find_row(source, result, statistics, affine)),
      run_rows_(algorithm == "softmax"       ? kernels_->softmax
                : algorithm == "log_softmax" ? kernels_->log_softmax
                                             : kernels_->norm),
      sides_(algorithm == "norm" ? SideSlabs{} : find_sides(source, result, statistics)),
      run_sides_(algorithm == "softmax" ? kernels_->side_softmax : kernels_->side_log_softmax),
      columns_(algorithm == "norm" ? find_columns(source, result, statistics, affine) : Columns{}),
      epsilon_(epsilon) {
    require(statistics_.count() == 2, "normalization: there is no algorithm " + algorithm);
    check_pointwise({result});
    require(!is_half(statistics), "normalization: expected statistics of float32");
    require(result.dims() == source.dims(),
            "normalization: expected a result of " + source.repr() + ", got " + result.repr());
    for (const auto &[arg, desc] :
         {std::pair(DNNL_ARG_SCALE, affine.scale), std::pair(DNNL_ARG_SHIFT, affine.shift)}) {
        check_pointwise(desc);
        if (desc.empty()) continue;
        require(algorithm == "norm", "normalization: there is no scale or shift of " + algorithm);
        descs_.push_back(desc.front());
        args_.push_back(arg);
    }
    descs_.push_back(result);
    args_.push_back(DNNL_ARG_DST);
}

std::size_t Normalization::scratchpad_nbytes() const {
    const std::size_t columns = columns_.images > 0 ? columns_.nbytes() : 0;
    return statistics_nbytes() + static_cast<std::size_t>(threads_) * columns;
}

std::size_t Normalization::statistics_nbytes() const {
    return 2 * rounded_nbytes(statistics_.places()) + statistics_.scratch_nbytes();
}

const float *Normalization::parameter(const std::vector<void *> &data, int arg) const {
    const auto found = std::find(args_.begin(), args_.end(), arg);
    if (found == args_.end()) return nullptr;
    return static_cast<const float *>(data[static_cast<std::size_t>(found - args_.begin())]);
}

MemoryDesc Normalization::arg_desc(int arg) const {
    if (arg == DNNL_ARG_SCRATCHPAD) return scratch_desc(scratchpad_nbytes());
    const auto found = std::find(args_.begin(), args_.end(), arg);
    require(found != args_.end(), "normalization: there is no argument " + std::to_string(arg));
    return descs_[static_cast<std::size_t>(found - args_.begin())];
}

void *Normalization::element(const std::vector<void *> &data, std::size_t arg,
                             std::int64_t number) const {
    return static_cast<std::byte *>(data[arg]) + number * element_nbytes(is_half(descs_[arg]));
}

void Normalization::run_rows(const std::vector<void *> &data) const {
    const float *scale = parameter(data, DNNL_ARG_SCALE);
    const float *shift = parameter(data, DNNL_ARG_SHIFT);
    std::int64_t size = 1;
    for (const std::int64_t extent : descs_.front().dims()) size *= extent;
    const std::int64_t rows = size / row_;
    in_parallel(threads_, [&](int part, int parts) {
        const std::int64_t begin = rows * part / parts, end = rows * (part + 1) / parts;
        run_rows_({element(data, 0, begin * row_), element(data, data.size() - 1, begin * row_),
                   scale, shift, row_, end - begin, epsilon_});
    });
}

void Normalization::run_sides(const std::vector<void *> &data) const {
    const std::int64_t size = sides_.count * sides_.width, chunks = sides_.chunks();
    in_parallel(threads_, [&](int part, int parts) {
        const std::int64_t begin = sides_.units() * part / parts;
        const std::int64_t end = sides_.units() * (part + 1) / parts;
        for (std::int64_t unit = begin; unit < end; ++unit) {
            const std::int64_t first = unit % chunks * kSideRows;
            const std::int64_t at = unit / chunks * size + first;
            run_sides_({static_cast<const float *>(data.front()) + at,
                        static_cast<float *>(data.back()) + at, sides_.count,
                        std::min(kSideRows, sides_.width - first), sides_.width});
        }
    });
}

void Normalization::run_columns(const std::vector<void *> &data, const Statistics::Numbers &numbers,
                                float *scratch) const {
    const float *scale = parameter(data, DNNL_ARG_SCALE);
    const float *shift = parameter(data, DNNL_ARG_SHIFT);
    const auto *first = static_cast<const float *>(numbers[0]);
    const auto *second = static_cast<const float *>(numbers[1]);
    const std::int64_t width = columns_.width, all = columns_.images * columns_.rows;
    in_parallel(threads_, [&](int part, int parts) {
        float *means = scratch + 3 * width * part, *factors = means + width;
        float *shifts = factors + width;
        const std::int64_t end = all * (part + 1) / parts;
        for (std::int64_t row = all * part / parts; row < end;) {
            const std::int64_t image = row / columns_.rows;
            const std::int64_t start = columns_.starts[static_cast<std::size_t>(image)];
            for (std::int64_t i = 0; i < width; ++i) {
                const auto at = static_cast<std::size_t>(i);
                const std::int64_t number = start + columns_.numbers[at];
                means[i] = first[number];
                factors[i] = second[number] * (scale == nullptr ? 1 : scale[columns_.scale[at]]);
                shifts[i] = shift == nullptr ? 0 : shift[columns_.shift[at]];
            }
            const std::int64_t rows = std::min(end, (image + 1) * columns_.rows) - row;
            kernels_->columns({element(data, 0, row * width),
                               element(data, data.size() - 1, row * width), means, factors, shifts,
                               width, rows});
            row += rows;
        }
    });
}

void Normalization::execute(const std::vector<void *> &data, void *scratchpad) const {
    if (row_ > 0) return run_rows(data);
    if (sides_.slabs > 0) return run_sides(data);
    auto *scratch = static_cast<std::byte *>(scratchpad);
    const std::size_t nbytes = rounded_nbytes(statistics_.places());
    const Statistics::Numbers numbers{scratch, scratch + nbytes};
    std::array<const void *, 5> sources{data[0], numbers[0], numbers[1]};
    for (std::size_t at = 1; at + 1 < data.size(); ++at) sources[2 + at] = data[at];
    statistics_.run(data[0], numbers, reinterpret_cast<double *>(scratch + 2 * nbytes), threads_);
    if (columns_.images > 0) {
        auto *free = reinterpret_cast<float *>(scratch + statistics_nbytes());
        return run_columns(data, numbers, free);
    }
    in_parallel(threads_, [&](int part, int parts) {
        expression_.run(sources.data(), data.back(), part, parts);
    });
}

}  // namespace stridewise
