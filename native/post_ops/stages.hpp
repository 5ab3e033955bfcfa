// Post-ops as our own kernels apply them.
//
// It includes no standard templates, for the reason in winograd/kernels.hpp.
#pragma once

namespace stridewise {

enum class StageOp : int {
    relu,  // alpha: the slope of negative values
    clip,  // alpha, beta: the bounds
    linear,
    abs,
    square,
    hardsigmoid,
    hardswish,
    logistic,
    swish,  // alpha: the factor inside of the logistic
    tanh,
    elu,  // alpha: the factor of negative results
    sqrt,
    exp,  // these and the following: one lane at a time
    log,
    soft_relu,  // alpha: the steepness
    gelu_erf,
    pow,  // alpha: the factor, beta: the exponent
    sum,  // add what the result held before
    add,  // and the following: with the element of another tensor of the result's format
    sub,
    mul,
    div,
    max,
    min,
};

struct Stage {
    StageOp op;
    float alpha;
    float beta;
    const float *operand;
};

}  // namespace stridewise
