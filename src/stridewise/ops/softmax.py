"""Softmax and its logarithm over one axis."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

import numpy as np

from stridewise.graph import Node, Refusal, TensorType
from stridewise.ops.element_types import FLOATS, needs_type, other_than_float32
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
from stridewise.ops.registry import (
    Array,
    Operands,
    OpSpec,
    Permuted,
    Types,
    array,
    needs,
    register,
)

__all__ = ["LOG_SOFTMAX", "SOFTMAX"]


def _infer(node: Node, types: Types) -> tuple[TensorType, ...]:
    x = needs_type(node, types, 0, FLOATS)
    axis = node.int_attr("axis")
    needs(node, 0 <= axis < len(x.shape), f"an axis below {len(x.shape)}", axis)
    return (x,)


def _evaluate(node: Node, operands: Operands) -> tuple[Array, ...]:
    x = array(operands, 0)
    axis = node.int_attr("axis")
    if x.size == 0:
        return (x,)
    with np.errstate(invalid="ignore", divide="ignore"):
        precise = x.astype(np.float64)
        shifted = precise - precise.max(axis=axis, keepdims=True)
        total = np.exp(shifted).sum(axis=axis, keepdims=True)
        result = shifted - np.log(total) if node.op == "log_softmax" else np.exp(shifted) / total
        return (result.astype(x.dtype),)


def _kernels(context: KernelContext) -> Iterable[KernelOption | Refusal]:
    node = context.node
    refusal = other_than_float32(context)
    if refusal is not None:
        yield refusal
        return
    x, y = context.value(node.inputs[0]), context.value(node.outputs[0])
    axis = node.int_attr("axis")
    for fmt, result, memory in elementwise_formats(context, x, y):
        position = axis
        if x.origin is not None and x.origin == y.origin:
            position = fmt.axes.index(x.origin.order[axis])
        spec = KernelSpec(
            "softmax",
            (("src", memory), ("dst", memory)),
            (("axis", position), ("log", int(node.op == "log_softmax"))),
            flops=4.0 * prod(x.shape),
        )
        args = (Arg("src", input_of(0)), Arg("dst", output_of()))
        yield KernelOption(
            "softmax", (fmt,), (result,), (Call(spec, args),), (Alias(0, 0, 0, "in place"),)
        )


def _permuted(node: Node, _shape: tuple[int, ...], perm: tuple[int, ...]) -> Permuted | str:
    return Permuted({"axis": perm[node.int_attr("axis")]}, perm)


SOFTMAX = register(
    OpSpec("softmax", (1, 1), _infer, _evaluate, "same", _kernels, permuted=_permuted)
)
LOG_SOFTMAX = register(
    OpSpec("log_softmax", (1, 1), _infer, _evaluate, "same", _kernels, permuted=_permuted)
)
