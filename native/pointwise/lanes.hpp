// The inner loops of elementwise operators. The compiler turns them into vectors of the instruction
// set that the including file is compiled for.
//
// It includes no standard templates, for the reason in winograd/kernels.hpp.
#pragma once

#include "pointwise/kernels.hpp"

namespace stridewise {
namespace {

struct Add {
    static float of(float a, float b) { return a + b; }
};
struct Subtract {
    static float of(float a, float b) { return a - b; }
};
struct Multiply {
    static float of(float a, float b) { return a * b; }
};
struct Divide {
    static float of(float a, float b) { return a / b; }
};
// NaN of either operand is the result, as in NumPy.
struct Greater {
    static float of(float a, float b) { return a > b || a != a ? a : b; }
};
struct Less {
    static float of(float a, float b) { return a < b || a != a ? a : b; }
};

// Operands of one row, as the loop over it reads them.
struct Elements {
    const float *from;
    float operator[](std::int64_t i) const { return from[i]; }
};
struct Spread {
    explicit Spread(const float *from) : value(*from) {}
    float value;
    float operator[](std::int64_t) const { return value; }
};
struct Strided {
    const float *from;
    std::int64_t step;
    float operator[](std::int64_t i) const { return from[i * step]; }
};

// Results may overwrite an operand, element for element, which is what `ivdep` says of the loop.
template <class Op, class A, class B>
void run_row(A a, B b, float *result, std::int64_t count) {
#pragma GCC ivdep
    for (std::int64_t i = 0; i < count; ++i) result[i] = Op::of(a[i], b[i]);
}

template <class Op>
void run_pointwise(const PointwiseRows &r) {
    for (std::int64_t row = 0; row < r.rows; ++row) {
        const float *a = r.a + row * r.a_row, *b = r.b + row * r.b_row;
        float *result = r.result + row * r.result_row;
        if (r.a_step == 1 && r.b_step == 1) {
            run_row<Op>(Elements{a}, Elements{b}, result, r.count);
        } else if (r.a_step == 1 && r.b_step == 0) {
            run_row<Op>(Elements{a}, Spread(b), result, r.count);
        } else if (r.a_step == 0 && r.b_step == 1) {
            run_row<Op>(Spread(a), Elements{b}, result, r.count);
        } else {
            run_row<Op>(Strided{a, r.a_step}, Strided{b, r.b_step}, result, r.count);
        }
    }
}

bool same_name(const char *a, const char *b) {
    while (*a != '\0' && *a == *b) ++a, ++b;
    return *a == *b;
}

const PointwiseKernels *find_pointwise(const char *name) {
    static constexpr PointwiseKernels kTable[] = {
        {"add", run_pointwise<Add>},      {"sub", run_pointwise<Subtract>},
        {"mul", run_pointwise<Multiply>}, {"div", run_pointwise<Divide>},
        {"max", run_pointwise<Greater>},  {"min", run_pointwise<Less>},
    };
    for (const auto &entry : kTable) {
        if (same_name(entry.name, name)) return &entry;
    }
    return nullptr;
}

}  // namespace
}  // namespace stridewise
