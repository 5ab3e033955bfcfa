"""Operators that change the shape or the order of axes, or only pass elements on.

Reshapes and transposes are views wherever the bytes agree. The index operators at the end have a
reference only: they serve shape arithmetic, which is folded away before planning.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

import numpy as np

from stridewise.formats import Format
from stridewise.graph import Node, Refusal, TensorType
from stridewise.ops.geometry import (
    copy_call,
    elementwise_formats,
    row_major,
    same_place,
    user_format,
)
from stridewise.ops.kernels import (
    Alias,
    KernelContext,
    KernelOption,
    MemorySpec,
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
    tensor,
)

__all__ = ["IDENTITY", "RESHAPE", "TRANSPOSE"]


# --- reshape ------------------------------------------------------------------------------------


def _infer_reshape(node: Node, types: Types) -> tuple[TensorType, ...]:
    x, shape = tensor(node, types, 0), node.ints_attr("shape")
    needs(node, prod(shape) == prod(x.shape), f"{prod(x.shape)} elements", shape)
    return (TensorType(x.dtype, shape),)


def _evaluate_reshape(node: Node, operands: Operands) -> tuple[Array, ...]:
    return (array(operands, 0).reshape(node.ints_attr("shape")),)


def _kernels_reshape(context: KernelContext) -> Iterable[KernelOption | Refusal]:
    node = context.node
    x, y = context.value(node.inputs[0]), context.value(node.outputs[0])
    alias = (Alias(0, 0, 0, "view"),)
    yield KernelOption("view", (user_format(x),), (user_format(y),), (), alias)


def _permuted_reshape(node: Node, shape: tuple[int, ...], perm: tuple[int, ...]) -> Permuted | str:
    moved = [axis for axis in perm if shape[axis] != 1]
    if moved != sorted(moved):
        return "it takes the elements as they come"
    return Permuted(dict(node.attrs), tuple(range(len(node.ints_attr("shape")))))


# --- transpose ----------------------------------------------------------------------------------


def _infer_transpose(node: Node, types: Types) -> tuple[TensorType, ...]:
    x, perm = tensor(node, types, 0), node.ints_attr("perm")
    fits = sorted(perm) == list(range(len(x.shape)))
    needs(node, fits, f"a permutation of {len(x.shape)} axes", perm)
    return (TensorType(x.dtype, tuple(x.shape[axis] for axis in perm)),)


def _evaluate_transpose(node: Node, operands: Operands) -> tuple[Array, ...]:
    return (np.transpose(array(operands, 0), node.ints_attr("perm")),)


def _kernels_transpose(context: KernelContext) -> Iterable[KernelOption | Refusal]:
    node = context.node
    x, y = context.value(node.inputs[0]), context.value(node.outputs[0])
    perm = node.ints_attr("perm")
    alias = (Alias(0, 0, 0, "view"),)
    if x.origin is not None and y.origin == Format(
        x.origin.axes, tuple(x.origin.order[axis] for axis in perm)
    ):
        # The axes keep their names, so the same bytes are seen in another order.
        for fmt in context.formats(x.name).values():
            yield KernelOption("view", (fmt,), (fmt,), (), alias)
        return
    strides = row_major(x.shape)
    source = MemorySpec(y.shape, strides=tuple(strides[axis] for axis in perm))
    result = MemorySpec(y.shape, strides=row_major(y.shape))
    formats = ((user_format(x),), (user_format(y),))
    if same_place(source, result):
        yield KernelOption("view", *formats, (), alias)
    else:
        call = copy_call((source, 0), (result, 0), input_of(0), output_of())
        yield KernelOption("copy", *formats, (call,))


# --- identity -----------------------------------------------------------------------------------


def _infer_same(node: Node, types: Types) -> tuple[TensorType, ...]:
    return (tensor(node, types, 0),)


def _evaluate_identity(_node: Node, operands: Operands) -> tuple[Array, ...]:
    return (array(operands, 0),)


def _kernels_identity(context: KernelContext) -> Iterable[KernelOption | Refusal]:
    node = context.node
    x, y = context.value(node.inputs[0]), context.value(node.outputs[0])
    for source, result, _ in elementwise_formats(context, x, y):
        yield KernelOption("view", (source,), (result,), (), (Alias(0, 0, 0, "view"),))


# --- index operators, for constants only ---------------------------------------------------------


RESHAPE = register(
    OpSpec(
        "reshape",
        (1, 1),
        _infer_reshape,
        _evaluate_reshape,
        "interrupt",
        _kernels_reshape,
        permuted=_permuted_reshape,
    )
)
TRANSPOSE = register(
    OpSpec(
        "transpose", (1, 1), _infer_transpose, _evaluate_transpose, "permute", _kernels_transpose
    )
)
IDENTITY = register(
    OpSpec("identity", (1, 1), _infer_same, _evaluate_identity, "elementwise", _kernels_identity)
)
