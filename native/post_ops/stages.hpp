// Post-ops as stages of the kernels of Stridewise.
//
// It includes no standard templates, for the reason in winograd/kernels.hpp.
#pragma once

namespace stridewise {

enum class StageOp : int {
    relu,  // alpha: the slope of negative values
    clip,  // alpha, beta: the bounds
    linear,
    round,  // to the nearest whole number, ties to even
    abs,
    hardsigmoid,
    hardswish,
    logistic,
    swish,  // alpha: the factor inside of the logistic
    tanh,
    gelu_erf,
    elu,  // alpha: the factor of negative results
    sqrt,
    exp,
    pow,  // alpha: the factor, beta: the exponent
    sum,  // add the previous content of the result
    add,  // this and the following: the operand is a tensor with the format of the result
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
    const void *operand;  // of the type of the kernel's result
};

}  // namespace stridewise
