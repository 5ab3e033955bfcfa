"""Constant padding that no window operator could take over."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from stridewise.formats import algebra
from stridewise.graph import Node, Refusal, TensorType
from stridewise.ops.data_format import inverse
from stridewise.ops.geometry import copy_call, region, walks
from stridewise.ops.kernels import Fill, KernelContext, KernelOption, input_of, output_of
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

__all__ = ["PAD", "pad_amounts"]


def pad_amounts(node: Node, rank: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return how much is added before and after each axis."""
    pads = node.ints_attr("pads")
    needs(node, len(pads) == 2 * rank and min(pads, default=0) >= 0, f"{2 * rank} pads", pads)
    needs(node, node.str_attr("mode", "constant") == "constant", "mode 'constant'", node.attrs)
    return pads[:rank], pads[rank:]


def _infer(node: Node, types: Types) -> tuple[TensorType, ...]:
    x = tensor(node, types, 0)
    begins, ends = pad_amounts(node, len(x.shape))
    shape = tuple(b + n + e for b, n, e in zip(begins, x.shape, ends, strict=True))
    return (TensorType(x.dtype, shape),)


def _evaluate(node: Node, operands: Operands) -> tuple[Array, ...]:
    x = array(operands, 0)
    amounts = tuple(zip(*pad_amounts(node, x.ndim), strict=True))
    return (np.pad(x, amounts, constant_values=node.float_attr("value", 0.0)),)


def _kernels(context: KernelContext) -> Iterable[KernelOption | Refusal]:
    node = context.node
    x, y = context.value(node.inputs[0]), context.value(node.outputs[0])
    begins, _ = pad_amounts(node, len(x.shape))
    value = node.float_attr("value", 0.0)
    for source, result in walks(context, x, y):
        if value and result.fmt.is_blocked:
            reason = f"the spare lanes of {result.fmt} must stay zero"
            yield Refusal("onednn-cpu", node.name, reason)
            continue
        box = region(result.axes, result.shape, result.pick(begins), source.shape)
        if box is None:
            yield Refusal("onednn-cpu", node.name, f"the pad cuts a block of {result.fmt}")
            continue
        yield KernelOption(
            "fill and copy",
            (source.fmt,),
            (result.fmt,),
            (copy_call(source.whole(), box, input_of(0), output_of()),),
            (),
            Fill(algebra.element_count(result.axes, result.shape), value),
        )


def _permuted(node: Node, shape: tuple[int, ...], perm: tuple[int, ...]) -> Permuted | str:
    begins, ends = pad_amounts(node, len(shape))
    order = inverse(perm)
    pads = (*(begins[axis] for axis in order), *(ends[axis] for axis in order))
    return Permuted({**dict(node.attrs), "pads": pads}, perm)


PAD = register(OpSpec("pad", (1, 1), _infer, _evaluate, "same", _kernels, permuted=_permuted))
