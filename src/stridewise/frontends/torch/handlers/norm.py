"""Batch norm by known statistics or by those of the batch, group norm and layer norm."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import NamedTuple

import numpy as np

from stridewise.frontends.torch.library import torch
from stridewise.frontends.torch.reader import Handler, Operand, Reader, Results, Traced
from stridewise.ops.layers import Statistics

__all__ = ["HANDLERS"]


def _batch_norm(
    r: Reader,
    x: Operand,
    weight: Operand | None,
    bias: Operand | None,
    mean: Operand,
    variance: Operand,
    _momentum: float,
    epsilon: float,
) -> Results:
    if any(isinstance(item, Traced) for item in (weight, bias, mean, variance)):
        return _scaled(r, x, weight, bias, mean, variance, epsilon), None, None
    known: Statistics = {
        "mean": r.row(mean, "statistics"),
        "variance": r.row(variance, "statistics"),
    }
    if weight is not None:
        known["scale"] = r.row(weight, "a scale")
    if bias is not None:
        known["shift"] = r.row(bias, "a shift")
    name = r.builder.batch_norm(r.value(x), epsilon=epsilon, name="batch_norm", **known)
    return r.like(x, name), None, None


def _scaled(
    r: Reader,
    x: Operand,
    weight: Operand | None,
    bias: Operand | None,
    mean: Operand,
    variance: Operand,
    epsilon: float,
) -> Traced:
    """Return a batch norm by known statistics whose parameters are no constants."""
    inverse = r.emit("power", [r.emit("add", [variance, epsilon])], alpha=-0.5)
    scale = inverse if weight is None else r.emit("mul", [inverse, weight])
    offset = r.emit("mul", [scale, mean])
    shift = r.emit("neg", [offset]) if bias is None else r.emit("sub", [bias, offset])
    return r.emit("scale_shift", [x, scale, shift])


class _Statistics(NamedTuple):
    """A batch norm by the statistics of the batch; these have one number a channel."""

    result: Traced
    mean: Traced
    variance: Traced

    def inverse(self, r: Reader, epsilon: float) -> Traced:
        """Return one over the deviation."""
        return r.emit("power", [r.emit("add", [self.variance, epsilon])], alpha=-0.5)


def _of_batch(
    r: Reader, x: Operand, weight: Operand | None, bias: Operand | None, epsilon: float
) -> _Statistics:
    channels = r.shape(x)[1]
    scale = r.builder.constant(np.ones(channels, np.float32)) if weight is None else r.value(weight)
    shift = r.builder.constant(np.zeros(channels, np.float32)) if bias is None else r.value(bias)
    names = r.builder.node("batch_norm", [r.value(x), scale, shift], {"epsilon": epsilon})
    result, mean, variance = names
    return _Statistics(r.like(x, result), r.traced(mean), r.traced(variance))


def _moved(r: Reader, old: Operand, new: Operand, momentum: float) -> Traced:
    return r.emit("add", [r.emit("mul", [old, 1 - momentum]), r.emit("mul", [new, momentum])])


def _trained_batch_norm(
    r: Reader,
    x: Operand,
    weight: Operand | None,
    bias: Operand | None,
    mean: Operand,
    variance: Operand,
    training: bool,
    momentum: float,
    epsilon: float,
) -> Results:
    """Source: PyTorch, ``_native_batch_norm_legit``: the running variance is the unbiased one."""
    if not training:
        raise r.refuse("a functional batch norm by known statistics")
    found = _of_batch(r, x, weight, bias, epsilon)
    return (
        found.result,
        found.mean,
        found.inverse(r, epsilon),
        _moved(r, mean, found.mean, momentum),
        _moved(r, variance, _unbiased(r, x, found.variance), momentum),
    )


def _whole_batch_norm(
    r: Reader, x: Operand, weight: Operand | None, bias: Operand | None, epsilon: float
) -> Results:
    found = _of_batch(r, x, weight, bias, epsilon)
    return *found, _unbiased(r, x, found.variance)


def _unbiased(r: Reader, x: Operand, variance: Traced) -> Traced:
    shape = r.shape(x)
    count = prod(shape) // shape[1]
    return r.emit("mul", [variance, count / max(count - 1, 1)])


def _batch_norm_without_states(
    r: Reader,
    x: Operand,
    weight: Operand | None,
    bias: Operand | None,
    training: bool,
    _momentum: float,
    epsilon: float,
) -> Results:
    if len(r.shape(x)) and r.shape(x)[0] == 1:
        return _instance_norm(r, x, weight, bias, training, _momentum, epsilon)
    if not training:
        raise r.refuse("a batch norm without statistics")
    found = _of_batch(r, x, weight, bias, epsilon)
    return found.result, found.mean, found.inverse(r, epsilon)


def _native_batch_norm(
    r: Reader,
    x: Operand,
    weight: Operand | None,
    bias: Operand | None,
    mean: Operand | None,
    variance: Operand | None,
    training: bool,
    momentum: float,
    epsilon: float,
) -> Results:
    if training and mean is None:
        return _instance_norm(r, x, weight, bias, training, momentum, epsilon)
    if training:
        raise r.refuse("a batch norm that computes statistics of the batch")
    return _batch_norm(r, x, weight, bias, mean, variance, momentum, epsilon)


def _instance_norm(
    r: Reader,
    x: Operand,
    weight: Operand | None,
    bias: Operand | None,
    _training: bool,
    _momentum: float,
    epsilon: float,
) -> Results:
    """Take what instance norm is in PyTorch: a batch norm of one image, by its own statistics."""
    batch, channels = r.shape(x)[:2]
    if batch != 1:
        raise r.refuse("a batch norm that computes statistics of the batch")
    return _group_norm(r, x, weight, bias, batch, channels, 0, channels, epsilon)


def _group_norm(
    r: Reader,
    x: Operand,
    weight: Operand | None,
    bias: Operand | None,
    _batch: int,
    channels: int,
    _extent: int,
    groups: int,
    epsilon: float,
) -> Results:
    operands = [x]
    if weight is not None or bias is not None:
        operands.append(torch.ones(channels) if weight is None else weight)
    if bias is not None:
        operands.append(bias)
    found = r.emit("group_norm", operands, groups=groups, epsilon=epsilon)
    return found, None, None


def _layer_norm(
    r: Reader,
    x: Operand,
    normalized: Sequence[int],
    weight: Operand | None,
    bias: Operand | None,
    epsilon: float,
) -> Results:
    shape = r.shape(x)
    first = len(shape) - len(normalized)
    operands = [x]
    if weight is not None or bias is not None:
        operands.append(torch.ones(tuple(normalized)) if weight is None else weight)
    if bias is not None:
        operands.append(bias)
    flat = _flattened(r, operands, shape, first)
    rank = len(r.shape(flat[0]))
    found = r.emit("layer_norm", flat, axes=tuple(range(first, rank)), epsilon=epsilon)
    return _shaped(r, found, shape), None, None


def _flattened(
    r: Reader, operands: list[Operand], shape: tuple[int, ...], first: int
) -> list[Operand]:
    """Return operands whose normalized axes are one, as kernels have one."""
    if first == len(shape) - 1 or any(isinstance(item, Traced) for item in operands[1:]):
        return operands
    size = prod(shape[first:])
    return [
        r.reshape(operands[0], (*shape[:first], size)),
        *(item.reshape(size) for item in operands[1:]),
    ]


def _shaped(r: Reader, x: Traced, shape: tuple[int, ...]) -> Traced:
    return x if x.shape == shape else r.reshape(x, shape)


HANDLERS: dict[str, Handler] = {
    "aten._native_batch_norm_legit_no_training.default": _batch_norm,
    "aten._native_batch_norm_legit.no_stats": _batch_norm_without_states,
    "aten._native_batch_norm_legit_functional.default": _trained_batch_norm,
    "aten.native_batch_norm.default": _native_batch_norm,
    "aten.native_group_norm.default": _group_norm,
    "aten.native_layer_norm.default": _layer_norm,
    "stridewise.batch_norm.default": _whole_batch_norm,
}
