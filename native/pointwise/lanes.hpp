// Elementwise operators in vectors of any width. Their definitions, with what they do with NaN and
// infinities, are those of stridewise.ops.
//
// It includes no standard templates, for the reason in winograd/kernels.hpp.
#pragma once

#include "pointwise/kernels.hpp"
#include "support/wide_functions.hpp"

namespace stridewise {
namespace {

template <int N>
struct Operators {
    using L = Lanes<N>;
    using V = typename L::V;
    using F = Functions<N>;
    using W = WideFunctions<N>;

    static inline V truth(typename L::Mask mask) { return mask ? L::all(1.0F) : V{}; }
    static inline V clipped(V x, V low, V high) { return L::smaller(high, L::larger(low, x)); }
    static inline V fraction(V x) { return clipped(x, V{}, L::all(1.0F)); }
    static inline V elu(V x, V alpha) {
        return x >= 0.0F ? x : alpha * F::exponential_less_one(L::smaller(V{}, x));
    }
    // A negative alpha gives the power a positive exponent; the exact one overflows above 88.8.
    static inline V celu(V x, V alpha) {
        const V ratio = L::smaller(V{}, x) / alpha;
        const V power = F::exponential_less_one(ratio);
        return L::larger(V{}, x) + alpha * (ratio > 88.8F ? L::all(__builtin_inff()) : power);
    }
    static inline V softplus(V x) {
        return L::larger(V{}, x) + F::logarithm_of_next(F::exponential(x < 0.0F ? x : -x));
    }

    // A struct for each operation; `a` and `b` are its parameters.
#define STRIDEWISE_OPERATOR(Name, expression)                                                \
    struct Name {                                                                            \
        static inline V of([[maybe_unused]] V x, [[maybe_unused]] V y, [[maybe_unused]] V z, \
                           [[maybe_unused]] V a, [[maybe_unused]] V b) {                     \
            return expression;                                                               \
        }                                                                                    \
    }
    STRIDEWISE_OPERATOR(Add, x + y);
    STRIDEWISE_OPERATOR(Subtract, x - y);
    STRIDEWISE_OPERATOR(Multiply, x *y);
    STRIDEWISE_OPERATOR(Divide, x / y);
    // NaN of either operand is the result, as in NumPy.
    STRIDEWISE_OPERATOR(Maximum, (x > y ? x : (x != x ? x : y)));
    STRIDEWISE_OPERATOR(Minimum, (x < y ? x : (x != x ? x : y)));
    STRIDEWISE_OPERATOR(Rectified, (x < 0.0F ? x * y : x));
    STRIDEWISE_OPERATOR(Power, W::power(x, y));
    STRIDEWISE_OPERATOR(Equal, truth(x == y));
    STRIDEWISE_OPERATOR(Greater, truth(x > y));
    STRIDEWISE_OPERATOR(GreaterEqual, truth(x >= y));
    STRIDEWISE_OPERATOR(Less, truth(x < y));
    STRIDEWISE_OPERATOR(LessEqual, truth(x <= y));
    STRIDEWISE_OPERATOR(And, x *y);
    STRIDEWISE_OPERATOR(Or, (x > y ? x : y));
    STRIDEWISE_OPERATOR(Xor, truth(x != y));
    STRIDEWISE_OPERATOR(Not, 1.0F - x);
    STRIDEWISE_OPERATOR(IsNan, truth(x != x));
    STRIDEWISE_OPERATOR(Where, (x != 0.0F ? y : z));
    STRIDEWISE_OPERATOR(Identity, x);
    STRIDEWISE_OPERATOR(Negative, -x);
    STRIDEWISE_OPERATOR(Absolute, F::floats(F::bits(x) & 0x7FFFFFFF));
    STRIDEWISE_OPERATOR(Reciprocal, 1.0F / x);
    STRIDEWISE_OPERATOR(Sign, (x > 0.0F ? L::all(1.0F) : (x < 0.0F ? L::all(-1.0F) : x * 0.0F)));
    STRIDEWISE_OPERATOR(Exponential, F::exponential(x));
    STRIDEWISE_OPERATOR(Logarithm, F::logarithm(x));
    STRIDEWISE_OPERATOR(Sine, W::sine(x));
    STRIDEWISE_OPERATOR(Cosine, W::cosine(x));
    STRIDEWISE_OPERATOR(Tangent, F::tangent(x));
    STRIDEWISE_OPERATOR(Logistic, F::logistic(x));
    STRIDEWISE_OPERATOR(ErrorFunction, F::error_function(x));
    STRIDEWISE_OPERATOR(Relu, L::larger(V{}, x));
    STRIDEWISE_OPERATOR(LeakyRelu, (x >= 0.0F ? x : a * x));
    STRIDEWISE_OPERATOR(ThresholdedRelu, (x > a ? x : V{}));
    STRIDEWISE_OPERATOR(Shrink, (x < -a ? x + b : (x > a ? x - b : V{})));
    STRIDEWISE_OPERATOR(Clip, clipped(x, a, b));
    STRIDEWISE_OPERATOR(HardSigmoid, fraction(a *x + b));
    STRIDEWISE_OPERATOR(HardSwish, x *fraction(a *x + b));
    STRIDEWISE_OPERATOR(Swish, x *F::logistic(a *x));
    STRIDEWISE_OPERATOR(Elu, elu(x, a));
    STRIDEWISE_OPERATOR(Selu, b *elu(x, a));
    STRIDEWISE_OPERATOR(Celu, celu(x, a));
    STRIDEWISE_OPERATOR(Softplus, softplus(x));
    STRIDEWISE_OPERATOR(Mish, x *F::tangent(softplus(x)));
    STRIDEWISE_OPERATOR(Gelu, L::gelu(x));
    STRIDEWISE_OPERATOR(GeluTanh, 0.5F * x *
                                      (1.0F + F::tangent(0.79788456080286535588F *
                                                         (x + 0.044715F * x * x * x))));
#undef STRIDEWISE_OPERATOR

    template <class Op, int Count>
    static void run(const PointwiseLoop &loop) {
        const V a = L::all(loop.alpha), b = L::all(loop.beta);
        for (std::int64_t i = 0; i < loop.count; i += N) {
            const V x = L::load(loop.a + i);
            const V y = Count > 1 ? L::load(loop.b + i) : V{};
            const V z = Count > 2 ? L::load(loop.c + i) : V{};
            L::store(loop.result + i, Op::of(x, y, z, a, b));
        }
    }
};

// Functions that the compiler has vectors for only in loops over elements.
template <class Function>
void run_scalar(const PointwiseLoop &loop, const Function &function) {
    const float *a = loop.a;
    float *result = loop.result;
#pragma GCC ivdep
    for (std::int64_t i = 0; i < loop.count; ++i) result[i] = function(a[i]);
}

void run_sqrt(const PointwiseLoop &loop) {
    run_scalar(loop, [](float x) { return __builtin_sqrtf(x); });
}
void run_round(const PointwiseLoop &loop) {
    run_scalar(loop, [](float x) { return __builtin_rintf(x); });
}
void run_floor(const PointwiseLoop &loop) {
    run_scalar(loop, [](float x) { return __builtin_floorf(x); });
}
void run_ceil(const PointwiseLoop &loop) {
    run_scalar(loop, [](float x) { return __builtin_ceilf(x); });
}

// x^alpha. The square root of a negative zero is one, and its power is not; that of negative
// infinity is NaN, and its power is infinite.
template <int N>
void run_power(const PointwiseLoop &loop) {
    constexpr float kInfinity = __builtin_inff();
    const auto root = [](float x) {
        return x == -kInfinity ? kInfinity : __builtin_sqrtf(x + 0.0F);
    };
    const float exponent = loop.alpha;
    if (exponent == 2.0F) return run_scalar(loop, [](float x) { return x * x; });
    if (exponent == 3.0F) return run_scalar(loop, [](float x) { return x * x * x; });
    if (exponent == 4.0F) return run_scalar(loop, [](float x) { return (x * x) * (x * x); });
    if (exponent == -1.0F) return run_scalar(loop, [](float x) { return 1.0F / x; });
    if (exponent == 0.5F) return run_scalar(loop, root);
    if (exponent == -0.5F) return run_scalar(loop, [&](float x) { return 1.0F / root(x); });
    using L = Lanes<N>;
    for (std::int64_t i = 0; i < loop.count; i += N) {
        const auto x = L::load(loop.a + i);
        L::store(loop.result + i, WideFunctions<N>::power(x, L::all(exponent)));
    }
}

template <int N>
const PointwiseKernel *find_pointwise(const char *name) {
    using O = Operators<N>;
    static constexpr PointwiseKernel kTable[] = {
        {"abs", 1, O::template run<typename O::Absolute, 1>},
        {"add", 2, O::template run<typename O::Add, 2>},
        {"ceil", 1, run_ceil},
        {"celu", 1, O::template run<typename O::Celu, 1>},
        {"clip", 1, O::template run<typename O::Clip, 1>},
        {"cos", 1, O::template run<typename O::Cosine, 1>},
        {"div", 2, O::template run<typename O::Divide, 2>},
        {"elu", 1, O::template run<typename O::Elu, 1>},
        {"equal", 2, O::template run<typename O::Equal, 2>},
        {"erf", 1, O::template run<typename O::ErrorFunction, 1>},
        {"exp", 1, O::template run<typename O::Exponential, 1>},
        {"floor", 1, run_floor},
        {"gelu", 1, O::template run<typename O::Gelu, 1>},
        {"gelu_tanh", 1, O::template run<typename O::GeluTanh, 1>},
        {"greater", 2, O::template run<typename O::Greater, 2>},
        {"greater_equal", 2, O::template run<typename O::GreaterEqual, 2>},
        {"hard_sigmoid", 1, O::template run<typename O::HardSigmoid, 1>},
        {"hard_swish", 1, O::template run<typename O::HardSwish, 1>},
        {"identity", 1, O::template run<typename O::Identity, 1>},
        {"is_nan", 1, O::template run<typename O::IsNan, 1>},
        {"leaky_relu", 1, O::template run<typename O::LeakyRelu, 1>},
        {"less", 2, O::template run<typename O::Less, 2>},
        {"less_equal", 2, O::template run<typename O::LessEqual, 2>},
        {"log", 1, O::template run<typename O::Logarithm, 1>},
        {"logical_and", 2, O::template run<typename O::And, 2>},
        {"logical_not", 1, O::template run<typename O::Not, 1>},
        {"logical_or", 2, O::template run<typename O::Or, 2>},
        {"logical_xor", 2, O::template run<typename O::Xor, 2>},
        {"maximum", 2, O::template run<typename O::Maximum, 2>},
        {"minimum", 2, O::template run<typename O::Minimum, 2>},
        {"mish", 1, O::template run<typename O::Mish, 1>},
        {"mul", 2, O::template run<typename O::Multiply, 2>},
        {"neg", 1, O::template run<typename O::Negative, 1>},
        {"pow", 2, O::template run<typename O::Power, 2>},
        {"power", 1, run_power<N>},
        {"prelu", 2, O::template run<typename O::Rectified, 2>},
        {"reciprocal", 1, O::template run<typename O::Reciprocal, 1>},
        {"relu", 1, O::template run<typename O::Relu, 1>},
        {"round", 1, run_round},
        {"selu", 1, O::template run<typename O::Selu, 1>},
        {"shrink", 1, O::template run<typename O::Shrink, 1>},
        {"sigmoid", 1, O::template run<typename O::Logistic, 1>},
        {"sign", 1, O::template run<typename O::Sign, 1>},
        {"sin", 1, O::template run<typename O::Sine, 1>},
        {"softplus", 1, O::template run<typename O::Softplus, 1>},
        {"sqrt", 1, run_sqrt},
        {"sub", 2, O::template run<typename O::Subtract, 2>},
        {"swish", 1, O::template run<typename O::Swish, 1>},
        {"tanh", 1, O::template run<typename O::Tangent, 1>},
        {"thresholded_relu", 1, O::template run<typename O::ThresholdedRelu, 1>},
        {"where", 3, O::template run<typename O::Where, 3>},
    };
    for (const auto &entry : kTable) {
        if (__builtin_strcmp(entry.name, name) == 0) return &entry;
    }
    return nullptr;
}

}  // namespace
}  // namespace stridewise
