"""Kernels of elementwise functions of one operand."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import prod

from stridewise.graph import Refusal
from stridewise.ops.activation import SNAPS, parameters
from stridewise.targets.kernels import (
    Alias,
    Arg,
    Call,
    KernelContext,
    KernelOption,
    KernelSpec,
    input_of,
    output_of,
)
from stridewise.targets.onednn.family import Family, KernelKind, Offer, float32_only
from stridewise.targets.onednn.memory import elementwise_formats
from stridewise.tensor.quantization import RANGES

__all__ = ["ELTWISE", "FAMILY", "OWN", "eltwise_steps"]


Step = tuple[str, float, float]
"""One of the library's algorithms with its alpha and beta."""

_Steps = Callable[[float, float], tuple[Step, ...]]


def _as(algorithm: str) -> _Steps:
    """Return the one step of a function that the library has with the same alpha and beta."""
    return lambda a, b: ((algorithm, a, b),)


def _snap(dtype: str) -> _Steps:
    """Return the steps of a rounding to a grid: a quotient, a whole number in range, a product."""
    least, greatest = RANGES[dtype]
    return lambda scale, zero: (
        ("linear", 1 / scale, 0.0),
        ("round", 0.0, 0.0),
        ("clip", least - zero, greatest - zero),
        ("linear", scale, 0.0),
    )


ELTWISE: dict[str, _Steps] = {
    **{op: _snap(dtype) for op, dtype in SNAPS.items()},
    "relu": lambda _a, _b: (("relu", 0.0, 0.0),),
    "leaky_relu": lambda a, _b: (("relu", a, 0.0),),
    "clip": lambda a, b: (("clip", min(a, b), b),),
    "sigmoid": _as("logistic"),
    "tanh": _as("tanh"),
    "hard_sigmoid": _as("hardsigmoid"),
    "hard_swish": _as("hardswish"),
    "mish": _as("mish"),
    "gelu_tanh": _as("gelu_tanh"),
    "selu": lambda a, b: (("elu", a, 0.0), ("linear", b, 0.0)),
    "swish": _as("swish"),
    "elu": _as("elu"),
    "gelu": _as("gelu_erf"),
    "exp": _as("exp"),
    "sqrt": _as("sqrt"),
    "abs": _as("abs"),
    "neg": lambda _a, _b: (("linear", -1.0, 0.0),),
    "linear": _as("linear"),
    "power": lambda a, _b: (("pow", 1.0, a),),
    "reciprocal": lambda _a, _b: (("pow", 1.0, -1.0),),
    "round": _as("round"),
}
"""The library's algorithms, applied one after another, from alpha and beta of an operator.

A clip with crossed bounds gives the upper one; the library refuses such bounds. Its logarithm
near 1 and its softplus below -15 are wrong by more than a rounding, so they are not here.
"""

OWN = frozenset({"celu", "exp", "gelu", "hard_sigmoid", "log", "mish", "power", "softplus"})
"""Functions that the core's expressions compute where they stand alone.

The library lacks them, or is slower (power), or less exact, or loses NaN (exp, hard_sigmoid) and
infinity (gelu).
"""


def eltwise_steps(op: str, alpha: float, beta: float) -> tuple[Step, ...]:
    """Return the algorithms of an operator with the same parameters, if the library has any."""
    return ELTWISE[op](alpha, beta) if op in ELTWISE else ()


@float32_only
def _kernels(context: KernelContext) -> Iterable[KernelOption | Refusal]:
    node = context.node
    x, y = context.value(node.inputs[0]), context.value(node.outputs[0])
    steps = eltwise_steps(node.op, *parameters(node))
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


FAMILY = Family({op: Offer(_kernels) for op in ELTWISE if op not in OWN}, {"eltwise": KernelKind()})
