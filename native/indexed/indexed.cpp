#include "indexed/indexed.hpp"

#include <algorithm>
#include <cstring>

#include "indexed/tables.hpp"
#include "support/errors.hpp"
#include "threads/regions.hpp"

namespace stridewise {
namespace {

constexpr std::int64_t kLine = 64;

void check_dense(const char *what, const MemoryDesc &src, const MemoryDesc &dst, std::size_t rank) {
    const auto dense = [rank](const MemoryDesc &desc) {
        return !desc.is_any() && desc.dims().size() == rank && desc.offset() == 0 &&
               desc.extent() == desc.nbytes() && desc.nbytes() > 0;
    };
    require(dense(src) && dense(dst) && src.dtype() == dst.dtype() &&
                src.dims().back() == dst.dims().back() && src.dims()[rank - 2] <= INT32_MAX &&
                dst.dims()[rank - 2] <= INT32_MAX,
            std::string(what) + ": expected two dense tensors of " + std::to_string(rank) +
                " axes with rows of one length, got " + src.repr() + " and " + dst.repr());
}

std::int64_t element_nbytes(const MemoryDesc &desc) {
    std::int64_t count = 1;
    for (const std::int64_t extent : desc.dims()) count *= extent;
    return static_cast<std::int64_t>(desc.nbytes()) / count;
}

template <typename Word, typename Index>
void gather_words(const Index *table, const char *from, char *to, std::int64_t begin,
                  std::int64_t end, std::int64_t rows) {
    const auto *source = reinterpret_cast<const Word *>(from);
    auto *result = reinterpret_cast<Word *>(to);
    for (std::int64_t k = begin; k < end; ++k) {
        const std::int64_t row = table[k];
        result[k] = source[row < 0 ? row + rows : row];
    }
}

template <typename Index>
void gather_rows(const Index *table, const char *from, char *to, std::int64_t begin,
                 std::int64_t end, std::int64_t rows, std::int64_t nbytes) {
    if (nbytes == 4) return gather_words<std::uint32_t>(table, from, to, begin, end, rows);
    if (nbytes == 2) return gather_words<std::uint16_t>(table, from, to, begin, end, rows);
    if (nbytes == 1) return gather_words<std::uint8_t>(table, from, to, begin, end, rows);
    const auto row_of = [&](std::int64_t k) {
        return table[k] < 0 ? table[k] + rows : std::int64_t{table[k]};
    };
    for (std::int64_t k = begin; k < end;) {
        // Neighbors in the source are copied together.
        const std::int64_t row = row_of(k);
        std::int64_t next = k + 1;
        while (next < end && row_of(next) == row + (next - k)) ++next;
        std::memcpy(to + k * nbytes, from + row * nbytes,
                    static_cast<std::size_t>((next - k) * nbytes));
        k = next;
    }
}

template <typename Function>
void combine_rows(float *to, const float *from, std::int64_t count, const Function &function) {
    for (std::int64_t i = 0; i < count; ++i) to[i] = function(to[i], from[i]);
}

void add_row(float *to, const float *from, std::int64_t count) {
    combine_rows(to, from, count, [](float a, float b) { return a + b; });
}
void multiply_row(float *to, const float *from, std::int64_t count) {
    combine_rows(to, from, count, [](float a, float b) { return a * b; });
}
// NaN in either operand is propagated.
void raise_row(float *to, const float *from, std::int64_t count) {
    combine_rows(to, from, count, [](float a, float b) { return a != a || a > b ? a : b; });
}
void lower_row(float *to, const float *from, std::int64_t count) {
    combine_rows(to, from, count, [](float a, float b) { return a != a || a < b ? a : b; });
}

}  // namespace

GatherRows::GatherRows(const MemoryDesc &src, const MemoryDesc &dst, int words, int threads)
    : Kernel(threads, {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST}),
      src_(src),
      dst_(dst),
      table_({1}, "s32", "a"),
      is_wide_(words == 2) {
    require(words == 1 || words == 2, "gather: expected numbers of one or two words");
    check_dense("gather", src, dst, 3);
    require(src.dims()[0] == dst.dims()[0],
            "gather: expected as many outer parts, got " + src.repr() + " and " + dst.repr());
    outer_ = src.dims()[0];
    rows_ = src.dims()[1];
    count_ = dst.dims()[1];
    row_nbytes_ = src.dims()[2] * element_nbytes(src);
    table_ = MemoryDesc({words * count_}, "s32", "a");
}

MemoryDesc GatherRows::arg_desc(int arg) const {
    if (arg == DNNL_ARG_SRC) return src_;
    if (arg == DNNL_ARG_WEIGHTS) return table_;
    require(arg == DNNL_ARG_DST, "gather: there is no argument " + std::to_string(arg));
    return dst_;
}

void GatherRows::execute(const std::vector<void *> &data, void *) const {
    is_wide_ ? gather<std::int64_t>(data) : gather<std::int32_t>(data);
}

template <typename Index>
void GatherRows::gather(const std::vector<void *> &data) const {
    const auto *from = static_cast<const char *>(data[0]);
    const Index *table = checked<Index>(data[1], count_, rows_);
    auto *to = static_cast<char *>(data[2]);
    const std::int64_t total = outer_ * count_;
    // Parts end with cache lines of the result, so that no two threads write to one.
    const std::int64_t step = std::max<std::int64_t>(1, kLine / row_nbytes_);
    const std::int64_t steps = (total + step - 1) / step;
    in_parallel(threads_, [&](int part, int parts) {
        std::int64_t begin = std::min(total, steps * part / parts * step);
        const std::int64_t end = std::min(total, steps * (part + 1) / parts * step);
        while (begin < end) {
            const std::int64_t outer = begin / count_, first = begin % count_;
            const std::int64_t last = std::min(count_, first + (end - begin));
            gather_rows(table, from + outer * rows_ * row_nbytes_,
                        to + outer * count_ * row_nbytes_, first, last, rows_, row_nbytes_);
            begin += last - first;
        }
    });
}

ScatterRows::ScatterRows(const std::string &reduction, const MemoryDesc &src, const MemoryDesc &dst,
                         int threads)
    : Kernel(threads, {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST}),
      src_(src),
      dst_(dst),
      table_({1}, "s32", "a"),
      combine_(nullptr) {
    check_dense("scatter", src, dst, 2);
    count_ = src.dims()[0];
    rows_ = dst.dims()[0];
    row_nbytes_ = src.dims()[1] * element_nbytes(src);
    table_ = MemoryDesc({count_}, "s32", "a");
    if (reduction == "none") return;
    if (reduction == "add") combine_ = add_row;
    if (reduction == "mul") combine_ = multiply_row;
    if (reduction == "max") combine_ = raise_row;
    if (reduction == "min") combine_ = lower_row;
    require(combine_ != nullptr && src.dtype() == "f32",
            "scatter: expected none, or add, mul, max or min of f32, got " + reduction + " of " +
                src.dtype());
}

MemoryDesc ScatterRows::arg_desc(int arg) const {
    if (arg == DNNL_ARG_SRC) return src_;
    if (arg == DNNL_ARG_WEIGHTS) return table_;
    require(arg == DNNL_ARG_DST, "scatter: there is no argument " + std::to_string(arg));
    return dst_;
}

void ScatterRows::execute(const std::vector<void *> &data, void *) const {
    const auto *from = static_cast<const char *>(data[0]);
    const auto *table = checked<std::int32_t>(data[1], count_, rows_);
    auto *to = static_cast<char *>(data[2]);
    const std::int64_t values = row_nbytes_ / static_cast<std::int64_t>(sizeof(float));
    // Each thread writes its own rows, so that the order of updates of a row is that of the table.
    in_parallel(threads_, [&](int part, int parts) {
        const std::int64_t begin = rows_ * part / parts, end = rows_ * (part + 1) / parts;
        for (std::int64_t k = 0; k < count_; ++k) {
            const std::int64_t row = table[k] < 0 ? table[k] + rows_ : table[k];
            if (row < begin || row >= end) continue;
            char *target = to + row * row_nbytes_;
            const char *source = from + k * row_nbytes_;
            if (combine_ == nullptr) {
                std::memcpy(target, source, static_cast<std::size_t>(row_nbytes_));
            } else {
                combine_(reinterpret_cast<float *>(target), reinterpret_cast<const float *>(source),
                         values);
            }
        }
    });
}

}  // namespace stridewise
