#include "elements/totals.hpp"

#include <algorithm>
#include <cmath>

#include "elements/elements.hpp"
#include "elements/extremes.hpp"
#include "support/images.hpp"
#include "support/small_vectors.hpp"
#include "threads/regions.hpp"

namespace stridewise {
namespace {

constexpr std::int64_t kCount = 256;  // results at a time, which stay in the first-level cache

struct Sum {
    template <class T>
    static T of(T total, T value) {
        return total + value;
    }
};

// What is made of an element before it is taken in.
struct Itself {
    template <class T>
    static T of(T value) {
        return value;
    }
};

struct Square {
    template <class T>
    static T of(T value) {
        return value * value;
    }
};

struct Size {
    template <class T>
    static T of(T value) {
        return value < 0 ? -value : value;
    }
};

// What is made of a total.
enum class Finish { kNone, kMean, kRoot };

// The total of a line of elements one after the other, as several that do not wait for one another.
// The vectors are explicit: the compiler makes none of a few that stay in registers.
template <class F, class Of, class T>
T total_of(const T *from, std::int64_t rows) {
    using Vector = SmallVector<T>;
    using V = typename Vector::V;
    constexpr std::int64_t kLanes = Vector::kLanes, kVectors = 4, kStep = kLanes * kVectors;
    T total = Of::of(from[0]);
    std::int64_t row = 1;
    if (rows >= kStep) {
        V parts[kVectors];
        for (std::int64_t i = 0; i < kVectors; ++i) {
            parts[i] = Of::of(Vector::load(from + i * kLanes));
        }
        for (row = kStep; row + kStep <= rows; row += kStep) {
            for (std::int64_t i = 0; i < kVectors; ++i) {
                const V values = Of::of(Vector::load(from + row + i * kLanes));
                parts[i] = F::template of<V>(parts[i], values);
            }
        }
        for (std::int64_t i = 1; i < kVectors; ++i)
            parts[0] = F::template of<V>(parts[0], parts[i]);
        total = parts[0][0];
        for (std::int64_t i = 1; i < kLanes; ++i) total = F::template of<T>(total, parts[0][i]);
    }
    for (; row < rows; ++row) total = F::template of<T>(total, Of::of(from[row]));
    return total;
}

template <class F, class T, class Of = Itself, Finish kFinish = Finish::kNone>
void run(const void *from, void *to, std::int64_t rows, std::int64_t row_step, std::int64_t step,
         std::int64_t count) {
    const auto *source = static_cast<const T *>(from);
    auto *result = static_cast<T *>(to);
    if (row_step == 1) {
        for (std::int64_t i = 0; i < count; ++i)
            result[i] = total_of<F, Of>(source + i * step, rows);
    } else {
        for (std::int64_t i = 0; i < count; ++i) result[i] = Of::of(source[i]);
        for (std::int64_t row = 1; row < rows; ++row) {
            const T *values = source + row * row_step;
            for (std::int64_t i = 0; i < count; ++i)
                result[i] = F::of(result[i], Of::of(values[i]));
        }
    }
    if constexpr (kFinish == Finish::kMean) {
        const T divisor = static_cast<T>(rows);
        for (std::int64_t i = 0; i < count; ++i) result[i] /= divisor;
    } else if constexpr (kFinish == Finish::kRoot) {
        for (std::int64_t i = 0; i < count; ++i) result[i] = std::sqrt(result[i]);
    }
}

// Sums of the lower bits do not depend on the sign.
template <class T, class Bits>
auto find_integers(const std::string &op) -> decltype(&run<Sum, Bits>) {
    if (op == "sum") return &run<Sum, Bits>;
    if (op == "max") return &run<Maximum, T>;
    return op == "min" ? &run<Minimum, T> : nullptr;
}

auto find_floats(const std::string &op) -> decltype(&run<Sum, float>) {
    if (op == "sum") return &run<Sum, float>;
    if (op == "mean") return &run<Sum, float, Itself, Finish::kMean>;
    if (op == "l1") return &run<Sum, float, Size>;
    if (op == "l2") return &run<Sum, float, Square, Finish::kRoot>;
    if (op == "sum_square") return &run<Sum, float, Square>;
    if (op == "max") return &run<Maximum, float>;
    return op == "min" ? &run<Minimum, float> : nullptr;
}

}  // namespace

Totals::Totals(const std::string &op, const std::string &type, const Dims &extents, int threads)
    : Kernel(threads, {DNNL_ARG_SRC, DNNL_ARG_DST}), loop_(nullptr) {
    if (type == "f32") loop_ = find_floats(op);
    if (type == "s32") loop_ = find_integers<std::int32_t, std::uint32_t>(op);
    if (type == "s64") loop_ = find_integers<std::int64_t, std::uint64_t>(op);
    require(loop_ != nullptr, "totals: there is no " + op + " of " + type);
    require(extents.size() == 3 && *std::min_element(extents.begin(), extents.end()) >= 1,
            "totals: expected positive extents of three axes");
    outer_ = extents[0];
    rows_ = extents[1];
    inner_ = extents[2];
    nbytes_ = element_nbytes(type);
}

MemoryDesc Totals::arg_desc(int arg) const {
    require(takes(arg), "totals: there is no argument " + std::to_string(arg));
    return {{outer_ * (arg == DNNL_ARG_SRC ? rows_ : 1) * inner_ * nbytes_}, "u8", "a"};
}

void Totals::execute(const std::vector<void *> &data, void *) const {
    const auto *from = static_cast<const char *>(data[0]);
    auto *to = static_cast<char *>(data[1]);
    // Results of lines that are dense lie beside one another as well.
    const std::int64_t outer = inner_ == 1 ? 1 : outer_, inner = inner_ == 1 ? outer_ : inner_;
    const std::int64_t row_step = inner_ == 1 ? 1 : inner_, step = inner_ == 1 ? rows_ : 1;
    const std::int64_t blocks = ceil_div(inner, kCount), total = outer * blocks;
    in_parallel(threads_, [&](int part, int parts) {
        for (std::int64_t i = total * part / parts; i < total * (part + 1) / parts; ++i) {
            const std::int64_t first = i % blocks * kCount, item = i / blocks;
            loop_(from + (item * rows_ * inner + first * step) * nbytes_,
                  to + (item * inner + first) * nbytes_, rows_, row_step, step,
                  std::min(kCount, inner - first));
        }
    });
}

}  // namespace stridewise
