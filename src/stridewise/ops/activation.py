"""Elementwise operators of one operand.

All take the attributes ``alpha`` and ``beta``; the table says what they mean. Kernels keep
whatever format their operand has. Operators of two operands are in ``elementwise.py``, functions
that the library has no kernel for in ``functions.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from stridewise.graph import Node, Refusal, TensorType
from stridewise.ops.element_types import (
    FLOATS,
    NUMBERS,
    SIGNED,
    Family,
    computed,
    needs_type,
    other_than_float32,
)
from stridewise.ops.functions import exact_erf
from stridewise.ops.geometry import elementwise_formats
from stridewise.ops.kernels import (
    Alias,
    Arg,
    Call,
    KernelContext,
    KernelOption,
    KernelSpec,
    input_of,
    output_of,
)
from stridewise.ops.registry import Array, Operands, OpSpec, Types, array, register

__all__ = ["UNARY", "Unary", "eltwise_steps"]


@dataclass(frozen=True, slots=True)
class Unary:
    """One elementwise function.

    Attributes:
        function: the NumPy definition, of x, alpha and beta.
        algorithm: oneDNN's eltwise algorithm, or ``""`` where it has none.
        arguments: oneDNN's alpha and beta from ours.
        defaults: alpha and beta where the node has none.
        family: the element types that it takes.
    """

    function: Callable[[Array, float, float], Array]
    algorithm: str = ""
    arguments: Callable[[float, float], tuple[float, float]] = lambda a, b: (a, b)
    defaults: tuple[float, float] = (0.0, 0.0)
    family: Family = FLOATS


def _sigmoid(x: Array) -> Array:
    # exp of a non-positive number only, so that nothing overflows
    e = np.exp(-np.abs(x))
    return np.where(x >= 0, 1 / (1 + e), e / (1 + e))


def _hard_sigmoid(x: Array, alpha: float, beta: float) -> Array:
    return np.clip(alpha * x + beta, 0, 1)


def _elu(x: Array, alpha: float) -> Array:
    return np.where(x >= 0, x, alpha * np.expm1(np.minimum(x, 0)))


def _gelu_tanh(x: Array) -> Array:
    """Source: ONNX, Gelu with approximate="tanh"."""
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


_SELU = (1.67326319217681884765625, 1.05070102214813232421875)
"""Alpha and gamma (source: ONNX, Selu)."""

UNARY: dict[str, Unary] = {
    "relu": Unary(
        lambda x, _a, _b: np.maximum(x, 0), "relu", lambda _a, _b: (0.0, 0.0), family=SIGNED
    ),
    "leaky_relu": Unary(
        lambda x, a, _b: np.where(x >= 0, x, a * x), "relu", lambda a, _b: (a, 0.0), (0.01, 0.0)
    ),
    "clip": Unary(np.clip, "clip", defaults=(float("-inf"), float("inf"))),
    "sigmoid": Unary(lambda x, _a, _b: _sigmoid(x), "logistic"),
    "tanh": Unary(lambda x, _a, _b: np.tanh(x), "tanh"),
    "hard_sigmoid": Unary(_hard_sigmoid, "hardsigmoid", defaults=(0.2, 0.5)),
    "hard_swish": Unary(
        lambda x, a, b: x * _hard_sigmoid(x, a, b), "hardswish", defaults=(1 / 6, 0.5)
    ),
    "thresholded_relu": Unary(lambda x, a, _b: np.where(x > a, x, 0), defaults=(1.0, 0.0)),
    "shrink": Unary(
        lambda x, a, b: np.where(x < -a, x + b, np.where(x > a, x - b, 0)), defaults=(0.5, 0.0)
    ),
    "mish": Unary(lambda x, _a, _b: x * np.tanh(np.logaddexp(x, 0)), "mish"),
    "gelu_tanh": Unary(lambda x, _a, _b: _gelu_tanh(x), "gelu_tanh"),
    "selu": Unary(lambda x, a, b: b * _elu(x, a), "elu", defaults=_SELU),
    "celu": Unary(lambda x, a, _b: a * _elu(x / a, 1.0), "elu", defaults=(1.0, 0.0)),
    "swish": Unary(lambda x, a, _b: x * _sigmoid(a * x), "swish", defaults=(1.0, 0.0)),
    "elu": Unary(lambda x, a, _b: _elu(x, a), "elu", defaults=(1.0, 0.0)),
    "gelu": Unary(lambda x, _a, _b: 0.5 * x * (1 + exact_erf(x / np.sqrt(2.0))), "gelu_erf"),
    "softplus": Unary(lambda x, _a, _b: np.logaddexp(x, 0), "soft_relu", lambda _a, _b: (1.0, 0.0)),
    "exp": Unary(lambda x, _a, _b: np.exp(x), "exp"),
    "log": Unary(lambda x, _a, _b: np.log(x), "log"),
    "sqrt": Unary(lambda x, _a, _b: np.sqrt(x), "sqrt"),
    "abs": Unary(lambda x, _a, _b: np.abs(x), "abs", family=NUMBERS),
    "neg": Unary(lambda x, _a, _b: -x, "linear", lambda _a, _b: (-1.0, 0.0), family=SIGNED),
    "power": Unary(
        lambda x, a, _b: np.power(x, x.dtype.type(a)), "pow", lambda a, _b: (1.0, a), (1.0, 0.0)
    ),
    "reciprocal": Unary(lambda x, _a, _b: 1 / x, "pow", lambda _a, _b: (1.0, -1.0)),
    "round": Unary(lambda x, _a, _b: np.rint(x), "round"),
}


Step = tuple[str, float, float]
"""One of oneDNN's algorithms with its alpha and beta."""

_STEPS: dict[str, Callable[[float, float], tuple[Step, ...]]] = {
    "selu": lambda a, b: (("elu", a, 0.0), ("linear", b, 0.0)),
    "celu": lambda a, _b: (("linear", 1 / a, 0.0), ("elu", 1.0, 0.0), ("linear", a, 0.0)),
}
"""Functions that take several of oneDNN's algorithms, one after another."""


def _parameters(node: Node) -> tuple[float, float]:
    a, b = UNARY[node.op].defaults
    return node.float_attr("alpha", a), node.float_attr("beta", b)


def _infer(node: Node, types: Types) -> tuple[TensorType, ...]:
    return (needs_type(node, types, 0, UNARY[node.op].family),)


def _evaluate(node: Node, operands: Operands) -> tuple[Array, ...]:
    function, parameters = UNARY[node.op].function, _parameters(node)

    def of(x: Array) -> Array:
        return function(x, *parameters)

    return computed(of, array(operands, 0))


def eltwise_steps(op: str, alpha: float, beta: float) -> tuple[Step, ...]:
    """Return oneDNN's algorithms, with their alphas and betas, of an operator with our parameters.

    There are none where the library cannot compute it.
    """
    if op in _STEPS:
        return _STEPS[op](alpha, beta)
    unary = UNARY[op]
    return ((unary.algorithm, *unary.arguments(alpha, beta)),) if unary.algorithm else ()


def _kernels(context: KernelContext) -> Iterable[KernelOption | Refusal]:
    node = context.node
    refusal = other_than_float32(context)
    if refusal is not None:
        yield refusal
        return
    x, y = context.value(node.inputs[0]), context.value(node.outputs[0])
    steps = eltwise_steps(node.op, *_parameters(node))
    for fmt, result, memory in elementwise_formats(context, x, y):
        specs = [
            KernelSpec(
                "eltwise",
                (("src", memory), ("dst", memory)),
                (("algorithm", algorithm), ("alpha", alpha), ("beta", beta)),
                flops=float(prod(x.shape)),
            )
            for algorithm, alpha, beta in steps
        ]
        # Each step but the first works on the result in its own place.
        sources = (input_of(0), *(output_of(),) * (len(specs) - 1))
        calls = tuple(
            Call(spec, (Arg("src", source), Arg("dst", output_of())))
            for spec, source in zip(specs, sources, strict=True)
        )
        yield KernelOption("elementwise", (fmt,), (result,), calls, (Alias(0, 0, 0, "in place"),))


for _name, _unary in UNARY.items():
    _spec = OpSpec(_name, (1, 1), _infer, _evaluate, "elementwise")
    if _unary.algorithm:
        _spec = replace(_spec, kernels=_kernels, post_op="eltwise")
    register(_spec)
