"""Normalization at inference: per-channel scale and shift, and local response normalization.

A batch norm with known statistics is one multiplication and one addition per channel, so the
graph has only ``scale_shift``; the frontends compute its parameters.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

import numpy as np

from stridewise.formats import nd
from stridewise.graph import Node, Refusal, TensorType
from stridewise.ops.geometry import canonical_shape
from stridewise.ops.kernels import (
    Alias,
    Arg,
    Call,
    KernelContext,
    KernelOption,
    KernelSpec,
    MemorySpec,
    Operand,
    input_of,
    output_of,
)
from stridewise.ops.registry import Array, Operands, OpSpec, Types, array, needs, register, tensor

__all__ = ["LRN", "SCALE_SHIFT"]


def _infer_scale_shift(node: Node, types: Types) -> tuple[TensorType, ...]:
    x = tensor(node, types, 0)
    needs(node, len(x.shape) >= 2, "an input with a channel axis", x)
    for index in (1, 2):
        parameter = tensor(node, types, index)
        expected = TensorType(x.dtype, x.shape[1:2])
        needs(node, parameter == expected, f"input {index} to be {expected}", parameter)
    return (x,)


def _evaluate_scale_shift(_node: Node, operands: Operands) -> tuple[Array, ...]:
    x, scale, shift = (array(operands, index) for index in range(3))
    per_channel = (-1, *(1,) * (x.ndim - 2))
    return (x * scale.reshape(per_channel) + shift.reshape(per_channel),)


def _kernels_scale_shift(context: KernelContext) -> Iterable[KernelOption | Refusal]:
    node = context.node
    x, y = context.value(node.inputs[0]), context.value(node.outputs[0])
    rows = [None if context.is_constant(name) else nd(1) for name in node.inputs[1:3]]
    channels = MemorySpec((x.shape[1],), "a")
    results = context.formats(y.name)
    for kind, fmt in context.formats(x.name).items():
        if kind not in results:
            continue
        memory = MemorySpec.of(fmt, canonical_shape(x, fmt))
        # With zero statistics and an epsilon of 1 a batch norm is a scale and a shift, and nothing
        # is divided by zero in the spare lanes of blocked formats.
        spec = KernelSpec(
            "scale_shift",
            (
                ("src", memory),
                ("mean", channels),
                ("variance", channels),
                ("scale", channels),
                ("shift", channels),
                ("dst", memory),
            ),
            (("relu", int(bool(node.post_ops))),),
            flops=2.0 * prod(x.shape),
        )
        args = (
            Arg("src", input_of(0)),
            Arg("mean", Operand("fill", 0)),
            Arg("variance", Operand("fill", 0)),
            Arg("scale", input_of(1)),
            Arg("shift", input_of(2)),
            Arg("dst", output_of()),
        )
        yield KernelOption(
            f"batch norm, {kind}",
            (fmt, *rows),
            (results[kind],),
            (Call(spec, args),),
            (Alias(0, 0, 0, "in place"),),
        )


def _infer_lrn(node: Node, types: Types) -> tuple[TensorType, ...]:
    x = tensor(node, types, 0)
    needs(node, 3 <= len(x.shape) <= 5, "an input of rank 3 to 5", x)
    needs(node, node.int_attr("size") > 0, "a positive size", node.int_attr("size"))
    return (x,)


def _evaluate_lrn(node: Node, operands: Operands) -> tuple[Array, ...]:
    x = array(operands, 0)
    size = node.int_attr("size")
    before, after = (size - 1) // 2, size - 1 - (size - 1) // 2
    squares = np.square(x.astype(np.float64))
    total = squares.copy()
    for step in range(1, min(max(before, after) + 1, x.shape[1])):
        if step <= before:
            total[:, step:] += squares[:, :-step]
        if step <= after:
            total[:, :-step] += squares[:, step:]
    scale = node.float_attr("bias", 1.0) + node.float_attr("alpha", 1e-4) / size * total
    return ((x / scale ** node.float_attr("beta", 0.75)).astype(x.dtype),)


def _kernels_lrn(context: KernelContext) -> Iterable[KernelOption | Refusal]:
    node = context.node
    x, y = context.value(node.inputs[0]), context.value(node.outputs[0])
    if node.int_attr("size") % 2 == 0:
        yield Refusal("onednn-cpu", node.name, "the window is not centered for an even size")
        return
    results = context.formats(y.name)
    for kind, fmt in context.formats(x.name).items():
        if kind not in results:
            continue
        memory = MemorySpec.of(fmt, canonical_shape(x, fmt))
        spec = KernelSpec(
            "lrn",
            (("src", memory), ("dst", memory)),
            (
                ("alpha", node.float_attr("alpha", 1e-4)),
                ("beta", node.float_attr("beta", 0.75)),
                ("k", node.float_attr("bias", 1.0)),
                ("size", node.int_attr("size")),
            ),
            flops=float(node.int_attr("size") * prod(x.shape)),
        )
        args = (Arg("src", input_of(0)), Arg("dst", output_of()))
        yield KernelOption(f"lrn, {kind}", (fmt,), (results[kind],), (Call(spec, args),))


SCALE_SHIFT = register(
    OpSpec(
        "scale_shift",
        (3, 3),
        _infer_scale_shift,
        _evaluate_scale_shift,
        "anchor",
        _kernels_scale_shift,
        hosts=frozenset({"relu"}),
    )
)
LRN = register(OpSpec("lrn", (1, 1), _infer_lrn, _evaluate_lrn, "anchor", _kernels_lrn))
