#include "reduction/fold.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>

#include "support/errors.hpp"
#include "threads/openmp.hpp"

namespace stridewise {
namespace {

// Results that one thread works on at a time, so that they stay in the first-level cache.
constexpr std::int64_t kChunk = 512;
// Terms that go into one partial sum; sums of partial sums keep rounding errors small.
constexpr std::int64_t kTerms = 128;
constexpr int kLanes = 16;

struct Greatest {
    static constexpr float kNeutral = -std::numeric_limits<float>::infinity();
    // NaN is no larger than anything, and stays where it is.
    static float step(float found, float x) { return x > found || x != x ? x : found; }
    static double join(double a, double b) { return b > a || b != b ? b : a; }
    static double finish(double value, double) { return value; }
};

struct Least {
    static constexpr float kNeutral = std::numeric_limits<float>::infinity();
    static float step(float found, float x) { return x < found || x != x ? x : found; }
    static double join(double a, double b) { return b < a || b != b ? b : a; }
    static double finish(double value, double) { return value; }
};

struct Sum {
    static constexpr float kNeutral = 0.0F;
    static float step(float sum, float x) { return sum + x; }
    static double join(double a, double b) { return a + b; }
    static double finish(double value, double) { return value; }
};

struct Mean : Sum {
    static double finish(double value, double scale) { return value * scale; }
};

struct Product {
    static constexpr float kNeutral = 1.0F;
    static float step(float product, float x) { return product * x; }
    static double join(double a, double b) { return a * b; }
    static double finish(double value, double) { return value; }
};

struct Magnitude : Sum {
    static float step(float sum, float x) { return sum + std::fabs(x); }
};

struct Squares : Sum {
    static float step(float sum, float x) { return sum + x * x; }
};

struct Norm : Squares {
    static double finish(double value, double) { return std::sqrt(value); }
};

std::int64_t count_of(const std::vector<Fold::Digit> &digits) {
    std::int64_t count = 1;
    for (const auto &digit : digits) count *= digit.extent;
    return count;
}

// The offset of the number-th element of the first `count` digits, the last of which runs fastest.
std::int64_t offset_of(const std::vector<Fold::Digit> &digits, std::size_t count,
                       std::int64_t number) {
    std::int64_t offset = 0;
    for (std::size_t at = count; at-- > 0;) {
        offset += number % digits[at].extent * digits[at].stride;
        number /= digits[at].extent;
    }
    return offset;
}

// Calls `body(offset)` for each element of digits, in order.
template <typename Body>
void each_offset(const std::vector<Fold::Digit> &digits, const Body &body) {
    if (digits.empty()) return body(std::int64_t{0});
    const auto last = digits.back();
    const std::int64_t count = count_of(digits) / last.extent;
    for (std::int64_t number = 0; number < count; ++number) {
        const std::int64_t from = offset_of(digits, digits.size() - 1, number);
        for (std::int64_t i = 0; i < last.extent; ++i) body(from + i * last.stride);
    }
}

// `count` neighboring results, up to kChunk; the terms of each lie `walk.gone` apart.
template <typename Op>
void fold_rows(const Fold::Walk &walk, const float *source, std::int64_t count, float *result) {
    std::array<float, kChunk> partial;
    std::array<double, kChunk> whole;
    std::fill_n(partial.begin(), count, Op::kNeutral);
    std::fill_n(whole.begin(), count, static_cast<double>(Op::kNeutral));
    std::int64_t terms = 0;
    const auto flush = [&] {
        for (std::int64_t i = 0; i < count; ++i) {
            whole[i] = Op::join(whole[i], partial[i]);
            partial[i] = Op::kNeutral;
        }
        terms = 0;
    };
    each_offset(walk.gone, [&](std::int64_t offset) {
        const float *row = source + offset;
        for (std::int64_t i = 0; i < count; ++i) partial[i] = Op::step(partial[i], row[i]);
        if (++terms == kTerms) flush();
    });
    flush();
    for (std::int64_t i = 0; i < count; ++i) {
        result[i] = static_cast<float>(Op::finish(whole[i], walk.scale));
    }
}

template <typename Op>
double fold_run(const float *run, std::int64_t count) {
    std::array<float, kLanes> lanes;
    lanes.fill(Op::kNeutral);
    std::int64_t i = 0;
    for (; i + kLanes <= count; i += kLanes) {
        for (int lane = 0; lane < kLanes; ++lane)
            lanes[lane] = Op::step(lanes[lane], run[i + lane]);
    }
    for (; i < count; ++i) lanes[0] = Op::step(lanes[0], run[i]);
    double found = lanes[0];
    for (int lane = 1; lane < kLanes; ++lane) found = Op::join(found, lanes[lane]);
    return found;
}

// One result, whose terms are contiguous runs that lie `walk.gone` apart.
template <typename Op>
float fold_runs(const Fold::Walk &walk, const float *source) {
    double whole = Op::kNeutral;
    each_offset(walk.gone, [&](std::int64_t offset) {
        for (std::int64_t i = 0; i < walk.run; i += kTerms * kLanes) {
            const std::int64_t count = std::min(kTerms * kLanes, walk.run - i);
            whole = Op::join(whole, fold_run<Op>(source + offset + i, count));
        }
    });
    return static_cast<float>(Op::finish(whole, walk.scale));
}

template <typename Op>
void fold_part(const Fold::Walk &walk, const float *source, float *result, int part, int parts) {
    const std::int64_t outer = count_of(walk.kept);
    const std::int64_t run = walk.run_is_kept ? walk.run : 1;
    const std::int64_t chunks = (run + kChunk - 1) / kChunk, total = outer * chunks;
    for (std::int64_t task = total * part / parts; task < total * (part + 1) / parts; ++task) {
        const std::int64_t row = task / chunks, begin = task % chunks * kChunk;
        const float *from = source + offset_of(walk.kept, walk.kept.size(), row) + begin;
        float *to = result + row * run + begin;
        if (walk.run_is_kept) {
            fold_rows<Op>(walk, from, std::min(kChunk, run - begin), to);
        } else {
            *to = fold_runs<Op>(walk, from);
        }
    }
}

Fold::Part find_part(const std::string &algorithm) {
    static const std::map<std::string, Fold::Part> table = {
        {"max", fold_part<Greatest>}, {"min", fold_part<Least>},
        {"sum", fold_part<Sum>},      {"mean", fold_part<Mean>},
        {"mul", fold_part<Product>},  {"l1", fold_part<Magnitude>},
        {"l2", fold_part<Norm>},      {"sum_square", fold_part<Squares>},
    };
    const auto found = table.find(algorithm);
    require(found != table.end(), "fold: there is no algorithm " + algorithm);
    return found->second;
}

Dims row_major(const Dims &dims) {
    require(!dims.empty(), "fold: expected 1 to 12 dimensions, got none");
    Dims strides(dims.size(), 1);
    for (std::size_t axis = dims.size() - 1; axis > 0; --axis) {
        strides[axis - 1] = strides[axis] * dims[axis];
    }
    return strides;
}

MemoryDesc plain(const Dims &dims) {
    return MemoryDesc::strided(dims, "f32", row_major(dims));
}

Fold::Walk walk_of(const Dims &source, const Dims &result) {
    require(source.size() == result.size(), "fold: source and result have different ranks");
    const Dims strides = row_major(source);
    Fold::Walk walk{{}, {}, 1, true, 1.0};
    for (std::size_t axis = 0; axis < source.size(); ++axis) {
        const bool kept = source[axis] == result[axis];
        require(kept || result[axis] == 1, "fold: expected a result of extent 1 or " +
                                               std::to_string(source[axis]) + ", got " +
                                               std::to_string(result[axis]));
        (kept ? walk.kept : walk.gone).push_back({source[axis], strides[axis]});
        if (!kept) walk.scale /= static_cast<double>(source[axis]);
    }
    // The last axis is walked apart, as its elements are neighbors.
    walk.run_is_kept = source.back() == result.back();
    walk.run = source.back();
    (walk.run_is_kept ? walk.kept : walk.gone).pop_back();
    return walk;
}

}  // namespace

Fold::Fold(const std::string &algorithm, const Dims &source, const Dims &result, int threads)
    : source_(plain(source)),
      result_(plain(result)),
      walk_(walk_of(source, result)),
      part_(find_part(algorithm)),
      threads_(threads),
      args_{DNNL_ARG_SRC, DNNL_ARG_DST} {
    require(threads >= 1, "threads: expected at least 1, got " + std::to_string(threads));
}

MemoryDesc Fold::arg_desc(int arg) const {
    if (arg == DNNL_ARG_SRC) return source_;
    if (arg == DNNL_ARG_DST) return result_;
    require(arg == DNNL_ARG_SCRATCHPAD, "fold: there is no argument " + std::to_string(arg));
    return MemoryDesc({1}, "f32", "a");
}

void Fold::execute(const std::vector<void *> &data, void *) const {
    const auto *source = static_cast<const float *>(data[0]);
    auto *result = static_cast<float *>(data[1]);
    // Threads share results, not terms.
    in_parallel(threads_, [&](int part, int parts) { part_(walk_, source, result, part, parts); });
}

}  // namespace stridewise
