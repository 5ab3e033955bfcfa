"""Elementwise operators of one operand.

Their attributes are ``alpha`` and ``beta``; the table says which of them a function has, and what
they mean. Operators of two
operands are in ``elementwise.py``, functions without attributes in ``functions.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf

import numpy as np

from stridewise.classes import dataclass
from stridewise.graph import Node, TensorType
from stridewise.ops.attributes import each
from stridewise.ops.backward import Gradient, Term, elementwise_rule, of_steps
from stridewise.ops.element_types import FLOATS, NUMBERS, SIGNED, Family, computed, needs_type
from stridewise.ops.functions import exact_erf
from stridewise.ops.registry import Array, Operands, Types, array, needs, register
from stridewise.tensor.quantization import RANGES

__all__ = [
    "SNAPS",
    "UNARY",
    "UNBOUNDED",
    "Bounds",
    "Unary",
    "bounds",
    "default_parameters",
    "parameter_attrs",
    "parameters",
]


@dataclass(frozen=True, slots=True)
class Unary:
    """One elementwise function.

    Attributes:
        function: the NumPy definition, of x, alpha and beta.
        defaults: of alpha and beta, as far as the function has them.
        family: the element types that it takes.
    """

    function: Callable[[Array, float, float], Array]
    defaults: tuple[float, ...] = ()
    family: Family = FLOATS


def _sigmoid(x: Array) -> Array:
    # exp of a non-positive number only, so that nothing overflows
    e = np.exp(-np.abs(x))
    return np.where(x >= 0, 1 / (1 + e), e / (1 + e))


def _hard_sigmoid(x: Array, alpha: float, beta: float) -> Array:
    return np.clip(alpha * x + beta, 0, 1)


def _elu(x: Array, alpha: float) -> Array:
    return np.where(x >= 0, x, alpha * np.expm1(np.minimum(x, 0)))


def _celu(x: Array, alpha: float) -> Array:
    """Source: ONNX, Celu; alpha may be negative."""
    return np.maximum(x, 0) + alpha * np.expm1(np.minimum(x, 0) / alpha)


def _gelu_tanh(x: Array) -> Array:
    """Source: ONNX, Gelu with approximate="tanh"."""
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


_PARAMETERS = ("alpha", "beta")

_SELU = (1.67326319217681884765625, 1.05070102214813232421875)
"""Alpha and gamma (source: ONNX, Selu)."""

SNAPS = {"snap_s8": "s8", "snap_u8": "u8"}
"""The functions that round to what a quantized tensor holds, and the type of its integers."""


def _snap(dtype: str) -> Unary:
    """Return the nearest number ``(q - zero_point) * scale``, with an integer q of a type.

    Alpha is the scale, beta the zero point (source: ONNX, QuantizeLinear and DequantizeLinear; in
    float32, rounded half to even and saturated).
    """
    least, greatest = RANGES[dtype]

    def snap(x: Array, scale: float, zero: float) -> Array:
        step = np.float32(scale)
        whole = np.rint(x.astype(np.float32) / step)
        return np.clip(np.nan_to_num(whole), least - zero, greatest - zero) * step

    return Unary(snap, (1.0, 0.0))


_DIVIDES = frozenset({*SNAPS, "celu"})
"""The functions that divide by alpha."""

UNARY: dict[str, Unary] = {
    **{op: _snap(dtype) for op, dtype in SNAPS.items()},
    "relu": Unary(lambda x, _a, _b: np.maximum(x, 0), family=SIGNED),
    "leaky_relu": Unary(lambda x, a, _b: np.where(x >= 0, x, a * x), (0.01,)),
    "clip": Unary(np.clip, (float("-inf"), float("inf"))),
    "sigmoid": Unary(lambda x, _a, _b: _sigmoid(x)),
    "tanh": Unary(lambda x, _a, _b: np.tanh(x)),
    "hard_sigmoid": Unary(_hard_sigmoid, (0.2, 0.5)),
    "hard_swish": Unary(lambda x, a, b: x * _hard_sigmoid(x, a, b), (1 / 6, 0.5)),
    "thresholded_relu": Unary(lambda x, a, _b: np.where(x > a, x, 0), (1.0,)),
    "shrink": Unary(lambda x, a, b: np.where(x < -a, x + b, np.where(x > a, x - b, 0)), (0.5, 0.0)),
    "mish": Unary(lambda x, _a, _b: x * np.tanh(np.logaddexp(x, 0))),
    "gelu_tanh": Unary(lambda x, _a, _b: _gelu_tanh(x)),
    "selu": Unary(lambda x, a, b: b * _elu(x, a), _SELU),
    "celu": Unary(lambda x, a, _b: _celu(x, a), (1.0,)),
    "swish": Unary(lambda x, a, _b: x * _sigmoid(a * x), (1.0,)),
    "elu": Unary(lambda x, a, _b: _elu(x, a), (1.0,)),
    "gelu": Unary(lambda x, _a, _b: 0.5 * x * (1 + exact_erf(x / np.sqrt(2.0)))),
    "softplus": Unary(lambda x, _a, _b: np.logaddexp(x, 0)),
    "exp": Unary(lambda x, _a, _b: np.exp(x)),
    "log": Unary(lambda x, _a, _b: np.log(x)),
    "sqrt": Unary(lambda x, _a, _b: np.sqrt(x)),
    "abs": Unary(lambda x, _a, _b: np.abs(x), family=NUMBERS),
    "neg": Unary(lambda x, _a, _b: -x, family=SIGNED),
    "linear": Unary(lambda x, a, b: a * x + b, (1.0, 0.0)),
    "power": Unary(lambda x, a, _b: np.power(x, x.dtype.type(a)), (1.0,)),
    "reciprocal": Unary(lambda x, _a, _b: 1 / x),
    "round": Unary(lambda x, _a, _b: np.rint(x)),
}


Bounds = tuple[float, float]
"""The least and the greatest number that a tensor may have."""

UNBOUNDED: Bounds = (-inf, inf)

_BOUNDS: dict[str, Bounds] = {
    "relu": (0.0, inf),
    "sigmoid": (0.0, 1.0),
    "hard_sigmoid": (0.0, 1.0),
    "tanh": (-1.0, 1.0),
}


def bounds(op: str, alpha: float = 0.0, beta: float = 0.0) -> Bounds:
    """Return the least and the greatest result that an operator can have, as far as it is known.

    >>> bounds("clip", 0.0, 6.0), bounds("conv")
    ((0.0, 6.0), (-inf, inf))
    """
    return (min(alpha, beta), beta) if op == "clip" else _BOUNDS.get(op, UNBOUNDED)


def parameters(node: Node) -> tuple[float, float]:
    """Return alpha and beta of a node, 0 for those that its function does not have."""
    defaults = zip(_PARAMETERS, UNARY[node.op].defaults, strict=False)
    given = tuple(node.float_attr(key, default) for key, default in defaults)
    a, b = (*given, 0.0, 0.0)[:2]
    return a, b


def default_parameters(op: str) -> tuple[float, float]:
    """Return what alpha and beta of a function are by default."""
    a, b = (*UNARY[op].defaults, 0.0, 0.0)[:2]
    return a, b


def parameter_attrs(op: str, alpha: float, beta: float) -> tuple[tuple[str, float], ...]:
    """Return the attributes that give a function its parameters, as far as it has them."""
    names = _PARAMETERS[: len(UNARY[op].defaults)] if op in UNARY else ()
    return tuple(zip(names, (alpha, beta), strict=False))


def _below(x: Term) -> Term:
    """Return the part of x below 0, whose exponential does not overflow."""
    return x.of("minimum", 0.0)


def _hard_swish(dy: Term, x: Term, a: float, b: float) -> Term:
    line = x * a + b
    inside = line.of("less", 1.0).of("where", dy * (x * (2 * a) + b), dy)
    return inside.kept(line.of("greater", 0.0))


def _mish_slope(x: Term) -> Term:
    t = x.of("softplus").of("tanh")
    return t + x * (1.0 - t * t) * x.of("sigmoid")


def _gelu_tanh_slope(x: Term) -> Term:
    factor, cubic = float(np.sqrt(2 / np.pi)), 0.044715
    t = ((x + x * x * x * cubic) * factor).of("tanh")
    inner = (x * x * (3 * cubic) + 1.0) * factor
    return (t + 1.0) * 0.5 + x * 0.5 * (1.0 - t * t) * inner


def _gelu_slope(x: Term) -> Term:
    density = (x * x * -0.5).of("exp") * float(1 / np.sqrt(2 * np.pi))
    return ((x * float(np.sqrt(0.5))).of("erf") + 1.0) * 0.5 + x * density


def _swish_slope(x: Term, a: float) -> Term:
    s = (x * a).of("sigmoid")
    return s + x * a * s * (1.0 - s)


def _branches(x: Term, above: Term, below: Term) -> Term:
    """Return one value above 0, and another one at 0 and below, as PyTorch does."""
    return x.of("greater", 0.0).of("where", above, below)


def _shrink(dy: Term, x: Term, limit: float) -> Term:
    return x.of("less", -limit).of("where", dy, dy.kept(x.of("greater", limit)))


def _power(dy: Term, x: Term, exponent: float) -> Term:
    slope = x.power(exponent - 1.0) * exponent
    return dy * slope if exponent else x.like(0.0).expand(x.shape)


GRADIENTS: dict[str, Gradient] = {
    "snap_s8": of_steps,
    "snap_u8": of_steps,
    "relu": lambda dy, _x, y, _a, _b: dy.kept(y.of("greater", 0.0)),
    "leaky_relu": lambda dy, x, _y, a, _b: _branches(x, dy, dy * a),
    "clip": lambda dy, x, _y, a, b: dy.kept(x.of("greater_equal", a)).kept(x.of("less_equal", b)),
    "sigmoid": lambda dy, _x, y, _a, _b: dy * (y * (1.0 - y)),
    "tanh": lambda dy, _x, y, _a, _b: dy * (1.0 - y * y),
    "hard_sigmoid": lambda dy, _x, y, a, _b: (
        (dy * a).kept(y.of("greater", 0.0)).kept(y.of("less", 1.0))
    ),
    "hard_swish": lambda dy, x, _y, a, b: _hard_swish(dy, x, a, b),
    "thresholded_relu": lambda dy, x, _y, a, _b: dy.kept(x.of("greater", a)),
    "shrink": lambda dy, x, _y, a, _b: _shrink(dy, x, a),
    "mish": lambda dy, x, _y, _a, _b: dy * _mish_slope(x),
    "gelu_tanh": lambda dy, x, _y, _a, _b: dy * _gelu_tanh_slope(x),
    "selu": lambda dy, x, _y, a, b: _branches(x, dy * b, dy * (_below(x).of("exp") * (a * b))),
    "celu": lambda dy, x, _y, a, _b: _branches(x, dy, dy * (_below(x) / a).of("exp")),
    "swish": lambda dy, x, _y, a, _b: dy * _swish_slope(x, a),
    "elu": lambda dy, x, _y, a, _b: _branches(x, dy, dy * (_below(x).of("exp") * a)),
    "gelu": lambda dy, x, _y, _a, _b: dy * _gelu_slope(x),
    "softplus": lambda dy, x, _y, _a, _b: dy * x.of("sigmoid"),
    "exp": lambda dy, _x, y, _a, _b: dy * y,
    "log": lambda dy, x, _y, _a, _b: dy / x,
    "sqrt": lambda dy, _x, y, _a, _b: dy * 0.5 / y,
    "abs": lambda dy, x, _y, _a, _b: dy * x.of("sign"),
    "neg": lambda dy, _x, _y, _a, _b: -dy,
    "linear": lambda dy, _x, _y, a, _b: dy * a,
    "power": lambda dy, x, _y, a, _b: _power(dy, x, a),
    "reciprocal": lambda dy, _x, y, _a, _b: -(dy * y * y),
    "round": of_steps,
}
"""The gradient of each function; at a kink, that of one of its sides, as in PyTorch."""


def _infer(node: Node, types: Types) -> tuple[TensorType, ...]:
    if node.op in _DIVIDES:
        alpha, _ = parameters(node)
        needs(node, alpha != 0, "an alpha other than 0", alpha)
    return (needs_type(node, types, 0, UNARY[node.op].family),)


def _evaluate(node: Node, operands: Operands) -> tuple[Array, ...]:
    function, given = UNARY[node.op].function, parameters(node)

    def of(x: Array) -> Array:
        return function(x, *given)

    return computed(of, array(operands, 0))


for _name in UNARY:
    register(
        _name,
        (1, 1),
        _infer,
        _evaluate,
        "elementwise",
        post_op="eltwise",
        attributes=each("number", *_PARAMETERS[: len(UNARY[_name].defaults)]),
        vjp=elementwise_rule(GRADIENTS[_name], parameters),
    )
