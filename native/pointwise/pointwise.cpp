#include "pointwise/pointwise.hpp"

#include <algorithm>

#include "support/errors.hpp"
#include "support/images.hpp"
#include "threads/openmp.hpp"
#include "winograd/winograd.hpp"

namespace stridewise {
namespace {

// Parts of the work for each thread, so that a share is never much larger than another.
constexpr std::int64_t kShares = 4;
constexpr std::int64_t kLine = 64 / sizeof(float);

const PointwiseKernels *find_kernels(const std::string &isa, const std::string &algorithm) {
#ifdef STRIDEWISE_AVX2
    if (isa == "avx512") return avx512_pointwise_kernels(algorithm.c_str());
    if (isa == "avx2") return avx2_pointwise_kernels(algorithm.c_str());
#endif
    return portable_pointwise_kernels(algorithm.c_str());
}

// The elements of one block of an axis, 1 where it has none.
std::int64_t block_of(const dnnl::memory::desc &desc, int axis) {
    require(desc.get_inner_nblks() <= 1, "pointwise: expected at most one block");
    const bool is_blocked = desc.get_inner_nblks() == 1 && desc.get_inner_idxs()[0] == axis;
    return is_blocked ? desc.get_inner_blks()[0] : 1;
}

// How far the elements of a block lie apart in an operand, and the blocks themselves.
struct Strides {
    std::int64_t block, lane;
};

Strides strides_of(const MemoryDesc &operand, const MemoryDesc &result, int axis) {
    const auto &desc = operand.get();
    const auto at = static_cast<std::size_t>(axis);
    const std::int64_t extent = operand.dims()[at], wanted = result.dims()[at];
    const std::int64_t own = block_of(desc, axis), block = block_of(result.get(), axis);
    require(extent == wanted || extent == 1, "pointwise: expected an extent of 1 or " +
                                                 std::to_string(wanted) + ", got " +
                                                 std::to_string(extent));
    if (extent == 1) return {0, 0};
    require(own == 1 || own == block, "pointwise: expected the blocks of the result, or none");
    require(wanted % block == 0, "pointwise: expected a format without padding");
    const std::int64_t stride = desc.get_strides()[at];
    return own == block && block > 1 ? Strides{stride, 1} : Strides{stride * block, stride};
}

}  // namespace

std::vector<Pointwise::Axis> Pointwise::axes_of(const MemoryDesc &a, const MemoryDesc &b,
                                                const MemoryDesc &result) {
    require(a.ndims() == result.ndims() && b.ndims() == result.ndims(),
            "pointwise: operands and result have different ranks");
    std::vector<Axis> axes;
    for (int axis = 0; axis < result.ndims(); ++axis) {
        const std::int64_t extent = result.dims()[static_cast<std::size_t>(axis)];
        const std::int64_t block = block_of(result.get(), axis);
        const Strides to = strides_of(result, result, axis);
        const Strides from_a = strides_of(a, result, axis), from_b = strides_of(b, result, axis);
        axes.push_back({extent / block, to.block, from_a.block, from_b.block});
        axes.push_back({block, to.lane, from_a.lane, from_b.lane});
    }
    axes.erase(
        std::remove_if(axes.begin(), axes.end(), [](const Axis &x) { return x.extent == 1; }),
        axes.end());
    std::stable_sort(axes.begin(), axes.end(),
                     [](const Axis &x, const Axis &y) { return x.result > y.result; });
    std::vector<Axis> merged;
    for (const auto &axis : axes) {
        const auto follows = [&](const Axis &outer) {
            return outer.result == axis.result * axis.extent && outer.a == axis.a * axis.extent &&
                   outer.b == axis.b * axis.extent;
        };
        if (!merged.empty() && follows(merged.back())) {
            merged.back() = {merged.back().extent * axis.extent, axis.result, axis.a, axis.b};
        } else {
            merged.push_back(axis);
        }
    }
    return merged;
}

Pointwise::Pointwise(const std::string &algorithm, const MemoryDesc &a, const MemoryDesc &b,
                     const MemoryDesc &result, int threads, const std::string &isa)
    : a_(a), b_(b), result_(result), threads_(threads) {
    require(threads >= 1, "threads: expected at least 1, got " + std::to_string(threads));
    for (const auto *desc : {&a, &b, &result}) {
        require(
            !desc->is_any() && !desc->is_empty() && desc->dtype() == "f32" && desc->offset() == 0,
            "pointwise: expected float32 in a known format, got " + desc->repr());
    }
    const auto known = pointwise_isas();
    isa_ = isa.empty() ? known.front() : isa;
    require(std::find(known.begin(), known.end(), isa_) != known.end(),
            "pointwise: there are no " + isa_ + " kernels here");
    const auto *found = find_kernels(isa_, algorithm);
    require(found != nullptr, "pointwise: there is no algorithm " + algorithm);
    kernel_ = found->run;
    args_ = {DNNL_ARG_SRC_0, DNNL_ARG_SRC_1, DNNL_ARG_DST};
    outer_ = axes_of(a, b, result);
    inner_ = {1, 1, 0, 0};
    if (!outer_.empty()) {
        inner_ = outer_.back();
        outer_.pop_back();
    }
    require(inner_.result == 1, "pointwise: expected a dense result");
    if (outer_.empty()) outer_.push_back({1, 0, 0, 0});
    std::int64_t rows = 1;
    for (const auto &axis : outer_) rows *= axis.extent;
    const std::int64_t wanted = ceil_div(kShares * threads, rows);
    pieces_ = std::clamp<std::int64_t>(ceil_div(inner_.extent, kLine), 1, wanted);
    units_ = rows * pieces_;
}

MemoryDesc Pointwise::arg_desc(int arg) const {
    if (arg == DNNL_ARG_SRC_0) return a_;
    if (arg == DNNL_ARG_SRC_1) return b_;
    require(arg == DNNL_ARG_DST, "pointwise: there is no argument " + std::to_string(arg));
    return result_;
}

// Some units of the work. Rows that differ in the last outer axis alone are done in one call.
void Pointwise::run(std::int64_t first, std::int64_t last, PointwiseRows base) const {
    const Axis &fastest = outer_.back();
    base.a_row = fastest.a;
    base.b_row = fastest.b;
    base.result_row = fastest.result;
    base.a_step = inner_.a;
    base.b_step = inner_.b;
    for (std::int64_t unit = first; unit < last;) {
        const std::int64_t row = unit / pieces_, piece = unit % pieces_;
        PointwiseRows rows = base;
        std::int64_t number = row;
        for (std::size_t at = outer_.size(); at-- > 0;) {
            const Axis &axis = outer_[at];
            const std::int64_t index = number % axis.extent;
            number /= axis.extent;
            rows.a += index * axis.a;
            rows.b += index * axis.b;
            rows.result += index * axis.result;
        }
        const std::int64_t begin = inner_.extent * piece / pieces_ / kLine * kLine;
        const std::int64_t end = piece + 1 == pieces_
                                     ? inner_.extent
                                     : inner_.extent * (piece + 1) / pieces_ / kLine * kLine;
        rows.a += begin * inner_.a;
        rows.b += begin * inner_.b;
        rows.result += begin;
        rows.count = end - begin;
        rows.rows = pieces_ == 1 ? std::min(last - unit, fastest.extent - row % fastest.extent) : 1;
        kernel_(rows);
        unit += rows.rows;
    }
}

void Pointwise::execute(const std::vector<void *> &data, void *) const {
    PointwiseRows base{};
    base.a = static_cast<const float *>(data[0]);
    base.b = static_cast<const float *>(data[1]);
    base.result = static_cast<float *>(data[2]);
    in_parallel(threads_, [&](int part, int parts) {
        run(units_ * part / parts, units_ * (part + 1) / parts, base);
    });
}

std::vector<std::string> pointwise_isas() {
    std::vector<std::string> found;
    // Kernels of 16 lanes exist where AVX-512 does, those of 8 where AVX2 does.
    for (const int lanes : {16, 8}) {
        const std::string best = winograd_isas(lanes).front();
        if (best != "portable") found.push_back(best);
    }
    found.emplace_back("portable");
    return found;
}

}  // namespace stridewise
