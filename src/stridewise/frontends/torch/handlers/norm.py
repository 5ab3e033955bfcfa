"""Batch norm with known statistics, group norm and layer norm."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

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
    scale = np.ones(channels, np.float32) if weight is None else r.row(weight, "a scale")
    shift = np.zeros(channels, np.float32) if bias is None else r.row(bias, "a shift")
    name = r.builder.group_norm(
        r.value(x), groups, scale=scale, shift=shift, epsilon=epsilon, name="group_norm"
    )
    return r.like(x, name), None, None


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
    "aten._native_batch_norm_legit.no_stats": _instance_norm,
    "aten.native_batch_norm.default": _native_batch_norm,
    "aten.native_group_norm.default": _group_norm,
    "aten.native_layer_norm.default": _layer_norm,
}
