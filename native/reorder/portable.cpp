// The inner loops of a reorder in portable C++: the fallback for all processors, and the reference
// for tests of the other kernels.
#include "reorder/elements.hpp"

namespace stridewise {
namespace {

template <std::int64_t kWidth>
void transpose(const Transposition &t) {
    const auto zeros = static_cast<std::size_t>(t.zero_rows * kWidth);
    for (std::int64_t c = 0; c < t.column_count; ++c) {
        std::byte *column = t.dst + t.columns[c];
        for (std::int64_t r = 0; r < t.row_count; ++r) {
            std::memcpy(column + r * kWidth, t.src + t.rows[r] + c * kWidth, kWidth);
        }
        if (zeros != 0) std::memset(column + t.row_count * kWidth, 0, zeros);
    }
}

void copy(const Runs &runs) {
    for (std::int64_t i = 0; i < runs.count; ++i) {
        std::memcpy(runs.dst + runs.to[i], runs.src + runs.from[i],
                    static_cast<std::size_t>(runs.nbytes));
    }
}

void fence() {}

template <typename From, typename To>
struct Each {
    static void run(const std::byte *src, std::byte *dst, std::int64_t count,
                    const Quantization *quantization, std::int64_t step) {
        for (std::int64_t i = 0; i < count; ++i) {
            convert_one<From, To>(src, dst, i, quantization, step);
        }
    }
};

ReorderKernels make() {
    ReorderKernels kernels{};
    kernels.transpose[0] = &transpose<1>;
    kernels.transpose[1] = &transpose<2>;
    kernels.transpose[2] = &transpose<4>;
    kernels.transpose[3] = &transpose<8>;
    kernels.transpose[4] = &transpose<16>;
    kernels.copy = &copy;
    kernels.fence = &fence;
    fill_conversions<Each>(kernels.convert);
    return kernels;
}

}  // namespace

const ReorderKernels &portable_reorder_kernels() {
    static const ReorderKernels kernels = make();
    return kernels;
}

}  // namespace stridewise
