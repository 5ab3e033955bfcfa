// Post-ops of the kernels of Stridewise, in vectors of any width.
//
// It includes no standard templates, for the reason in winograd/kernels.hpp.
#pragma once

#include "post_ops/stages.hpp"
#include "support/wide_functions.hpp"

namespace stridewise {
namespace {

template <int N>
struct Stages {
    using L = Lanes<N>;
    using F = Functions<N>;
    using V = typename L::V;

    // One copy of it for all kernels of a file: inlined into loops, it would be most of their code.
    static V curve(const Stage &stage, V x) {
        switch (stage.op) {
            case StageOp::elu:
                return x > 0.0F ? x : stage.alpha * F::exponential_less_one(L::smaller(V{}, x));
            case StageOp::exp:
                return F::exponential(x);
            default:
                return stage.alpha * WideFunctions<N>::power(x, L::all(stage.beta));
        }
    }

    static inline V apply(const Stage &stage, V value, V other) {
        const V alpha = L::all(stage.alpha), beta = L::all(stage.beta);
        switch (stage.op) {
            case StageOp::relu:
                return value > 0.0F ? value : value * alpha;
            case StageOp::clip:
                return L::smaller(beta, L::larger(alpha, value));
            case StageOp::linear:
                return alpha * value + beta;
            case StageOp::round:
                return L::whole(value);
            case StageOp::abs:
                return L::absolute(value);
            case StageOp::hardsigmoid:
                return L::smaller(L::all(1.0F), L::larger(V{}, alpha * value + beta));
            case StageOp::hardswish:
                return value * L::smaller(L::all(1.0F), L::larger(V{}, alpha * value + beta));
            case StageOp::logistic:
                return L::logistic(value);
            case StageOp::swish:
                return L::swish(value, alpha);
            case StageOp::gelu_erf:
                return L::gelu(value);
            case StageOp::tanh:
                return L::tangent(value);
            case StageOp::sqrt:
                return L::each(value, [](float x) { return __builtin_sqrtf(x); });
            case StageOp::elu:
            case StageOp::exp:
            case StageOp::pow:
                return curve(stage, value);
            case StageOp::sum:
            case StageOp::add:
                return value + other;
            case StageOp::sub:
                return value - other;
            case StageOp::mul:
                return value * other;
            case StageOp::div:
                return value / other;
            case StageOp::max:
                return L::larger_or_nan(value, other);
            case StageOp::min:
                return L::smaller_or_nan(value, other);
        }
        return value;
    }

    // Applies one stage with an operand to several vectors. Those of the operand are `stride`
    // elements apart, and have `lanes` elements, at most those of a vector.
    template <int Count, class T>
    static inline void combine(const Stage &step, V *values, const T *others, std::int64_t stride,
                               std::int64_t lanes) {
        V other[Count];
        for (int k = 0; k < Count; ++k) {
            const T *from = others + k * stride;
            other[k] = lanes >= N ? L::load(from) : L::load_some(from, lanes);
        }
        // Frequent stages are inlined, so that several vectors are in flight.
        if (step.op == StageOp::mul) {
            for (int k = 0; k < Count; ++k) values[k] *= other[k];
        } else if (step.op == StageOp::add) {
            for (int k = 0; k < Count; ++k) values[k] += other[k];
        } else {
            for (int k = 0; k < Count; ++k) values[k] = apply(step, values[k], other[k]);
        }
    }

    // Applies one stage without operands to several vectors; the operator is dispatched once.
    template <int Count>
    static inline void activate(const Stage &step, V *values) {
        const V alpha = L::all(step.alpha), beta = L::all(step.beta);
        // Frequent stages are inlined, so that several vectors are in flight.
        if (step.op == StageOp::clip) {
            for (int k = 0; k < Count; ++k) {
                values[k] = L::smaller(beta, L::larger(alpha, values[k]));
            }
        } else if (step.op == StageOp::linear) {
            for (int k = 0; k < Count; ++k) values[k] = alpha * values[k] + beta;
        } else if (step.op == StageOp::round) {
            for (int k = 0; k < Count; ++k) values[k] = L::whole(values[k]);
        } else if (step.op == StageOp::swish) {
            for (int k = 0; k < Count; ++k) values[k] = L::swish(values[k], alpha);
        } else if (step.op == StageOp::gelu_erf) {
            for (int k = 0; k < Count; ++k) values[k] = L::gelu(values[k]);
        } else if (step.op == StageOp::hardswish) {
            for (int k = 0; k < Count; ++k) {
                values[k] *= L::smaller(L::all(1.0F), L::larger(V{}, alpha * values[k] + beta));
            }
        } else {
            for (int k = 0; k < Count; ++k) values[k] = apply(step, values[k], V{});
        }
    }
};

}  // namespace
}  // namespace stridewise
