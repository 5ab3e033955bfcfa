"""Elementwise operators of one operand."""

from __future__ import annotations

from math import log

from stridewise.frontends.torch.handlers.elementwise import clamped, plain
from stridewise.frontends.torch.reader import Handler, Operand, Reader, Traced

__all__ = ["HANDLERS"]

_LINEAR_FROM = 15.0
"""From here on softplus and the identity are the same in float32."""


def _gelu(r: Reader, x: Operand, approximate: str = "none") -> Traced:
    return r.emit("gelu_tanh" if approximate == "tanh" else "gelu", [x])


def _softplus(r: Reader, x: Operand, beta: float = 1, threshold: float = 20) -> Traced:
    if threshold < _LINEAR_FROM:
        raise r.refuse(f"softplus that is linear from {threshold} on")
    if beta == 1:
        return r.emit("softplus", [x])
    found = r.emit("softplus", [r.emit("mul", [x, float(beta)])])
    return r.emit("div", [found, float(beta)])


def _elu(
    r: Reader, x: Operand, alpha: float = 1, scale: float = 1, input_scale: float = 1
) -> Traced:
    if input_scale != 1:
        raise r.refuse(f"elu with input_scale {input_scale}")
    if scale == 1:
        return r.emit("elu", [x], alpha=float(alpha))
    return r.emit("selu", [x], alpha=float(alpha), beta=float(scale))


def _celu(r: Reader, x: Operand, alpha: float = 1) -> Traced:
    return r.emit("celu", [x], alpha=float(alpha))


def _leaky_relu(r: Reader, x: Operand, slope: float = 0.01) -> Traced:
    return r.emit("leaky_relu", [x], alpha=float(slope))


def _hardtanh(r: Reader, x: Operand, low: float = -1, high: float = 1) -> Traced:
    return clamped(r, x, low, high)


def _power(r: Reader, x: Operand, exponent: float) -> Traced:
    if exponent == 2:
        return r.emit("mul", [x, x])
    if exponent == 0.5:
        return r.emit("sqrt", [x])
    return r.emit("power", [x], alpha=float(exponent))


def _log(base: float) -> Handler:
    def handler(r: Reader, x: Operand) -> Traced:
        return r.emit("mul", [r.emit("log", [x]), 1 / log(base)])

    return handler


def _rsqrt(r: Reader, x: Operand) -> Traced:
    return r.emit("reciprocal", [r.emit("sqrt", [x])])


def _prelu(r: Reader, x: Operand, slopes: Operand) -> Traced:
    return r.emit("prelu", [x, slopes])


def _log_sigmoid(r: Reader, x: Operand) -> tuple[Traced | None, ...]:
    negated = r.emit("softplus", [r.emit("neg", [x])])
    return r.emit("neg", [negated]), None


def _hardshrink(r: Reader, x: Operand, limit: float = 0.5) -> Traced:
    return r.emit("shrink", [x], alpha=float(limit), beta=0.0)


def _softshrink(r: Reader, x: Operand, limit: float = 0.5) -> Traced:
    return r.emit("shrink", [x], alpha=float(limit), beta=float(limit))


def _threshold(r: Reader, x: Operand, threshold: float, value: float) -> Traced:
    if value:
        return r.chosen(r.truth("greater", x, float(threshold)), x, float(value))
    return r.emit("thresholded_relu", [x], alpha=float(threshold))


HANDLERS: dict[str, Handler] = {
    "aten.ceil.default": plain("ceil"),
    "aten.celu.default": _celu,
    "aten.cos.default": plain("cos"),
    "aten.elu.default": _elu,
    "aten.erf.default": plain("erf"),
    "aten.exp.default": plain("exp"),
    "aten.floor.default": plain("floor"),
    "aten.gelu.default": _gelu,
    "aten.hardshrink.default": _hardshrink,
    "aten.hardsigmoid.default": plain("hard_sigmoid", alpha=1 / 6, beta=0.5),
    "aten.hardswish.default": plain("hard_swish"),
    "aten.hardtanh.default": _hardtanh,
    "aten.leaky_relu.default": _leaky_relu,
    "aten.log.default": plain("log"),
    "aten.log10.default": _log(10),
    "aten.log2.default": _log(2),
    "aten.log_sigmoid_forward.default": _log_sigmoid,
    "aten.mish.default": plain("mish"),
    "aten.pow.Tensor_Scalar": _power,
    "aten._prelu_kernel.default": _prelu,
    "aten.reciprocal.default": plain("reciprocal"),
    "aten.relu.default": plain("relu"),
    "aten.relu6.default": plain("clip", alpha=0.0, beta=6.0),
    "aten.round.default": plain("round"),
    "aten.rsqrt.default": _rsqrt,
    "aten.sigmoid.default": plain("sigmoid"),
    "aten.silu.default": plain("swish"),
    "aten.sin.default": plain("sin"),
    "aten.softplus.default": _softplus,
    "aten.softshrink.default": _softshrink,
    "aten.sqrt.default": plain("sqrt"),
    "aten.tanh.default": plain("tanh"),
    "aten.threshold.default": _threshold,
}
