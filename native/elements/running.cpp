#include "elements/running.hpp"

#include <algorithm>
#include <type_traits>

#include "elements/elements.hpp"
#include "support/images.hpp"
#include "threads/regions.hpp"

namespace stridewise {
namespace {

constexpr std::int64_t kColumns = 64;  // at a time

template <class T, class Total, bool kIsProduct>
void run(const void *from, void *to, std::int64_t rows, std::int64_t step, std::int64_t columns,
         bool is_exclusive) {
    const auto *source = static_cast<const T *>(from);
    auto *result = static_cast<T *>(to);
    Total totals[kColumns];
    std::fill(totals, totals + columns, static_cast<Total>(kIsProduct ? 1 : 0));
    for (std::int64_t row = 0; row < rows; ++row, source += step, result += step) {
        for (std::int64_t i = 0; i < columns; ++i) {
            const Total before = totals[i];
            const auto value = static_cast<Total>(source[i]);
            totals[i] = kIsProduct ? before * value : before + value;
            result[i] = static_cast<T>(is_exclusive ? before : totals[i]);
        }
    }
}

}  // namespace

Running::Running(const std::string &op, const std::string &type, const Dims &extents,
                 bool is_exclusive, bool is_reverse, int threads)
    : Kernel(threads, {DNNL_ARG_SRC, DNNL_ARG_DST}),
      loop_(nullptr),
      is_exclusive_(is_exclusive),
      is_reverse_(is_reverse) {
    const bool is_product = op == "cumprod";
    require(is_product || op == "cumsum", "running: expected cumsum or cumprod, got " + op);
    if (type == "f32") loop_ = is_product ? &run<float, double, true> : &run<float, double, false>;
    if (type == "f64") {
        loop_ = is_product ? &run<double, double, true> : &run<double, double, false>;
    }
    // Sums and products of the lower bits do not depend on the sign.
    if (type == "s32") {
        loop_ = is_product ? &run<std::uint32_t, std::uint32_t, true>
                           : &run<std::uint32_t, std::uint32_t, false>;
    }
    if (type == "s64") {
        loop_ = is_product ? &run<std::uint64_t, std::uint64_t, true>
                           : &run<std::uint64_t, std::uint64_t, false>;
    }
    require(loop_ != nullptr, "running: expected f32, f64, s32 or s64, got " + type);
    require(extents.size() == 3 && *std::min_element(extents.begin(), extents.end()) >= 1,
            "running: expected positive extents of three axes");
    outer_ = extents[0];
    rows_ = extents[1];
    inner_ = extents[2];
    nbytes_ = element_nbytes(type);
}

MemoryDesc Running::arg_desc(int arg) const {
    require(takes(arg), "running: there is no argument " + std::to_string(arg));
    return {{outer_ * rows_ * inner_ * nbytes_}, "u8", "a"};
}

void Running::execute(const std::vector<void *> &data, void *) const {
    const auto *from = static_cast<const char *>(data[0]);
    auto *to = static_cast<char *>(data[1]);
    const std::int64_t blocks = ceil_div(inner_, kColumns), total = outer_ * blocks;
    const std::int64_t first = is_reverse_ ? (rows_ - 1) * inner_ : 0;
    in_parallel(threads_, [&](int part, int parts) {
        for (std::int64_t i = total * part / parts; i < total * (part + 1) / parts; ++i) {
            const std::int64_t column = i % blocks * kColumns;
            const std::int64_t at = (i / blocks * rows_ * inner_ + first + column) * nbytes_;
            loop_(from + at, to + at, rows_, is_reverse_ ? -inner_ : inner_,
                  std::min(kColumns, inner_ - column), is_exclusive_);
        }
    });
}

}  // namespace stridewise
