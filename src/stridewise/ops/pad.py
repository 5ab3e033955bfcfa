"""Padding that no window operator could take over: a constant border, or one made of the tensor."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import prod
from typing import cast

import numpy as np

from stridewise.formats import algebra
from stridewise.graph import Node, Refusal, TensorType
from stridewise.ops.data_format import inverse
from stridewise.ops.geometry import Walk, copy_call, region, walks
from stridewise.ops.kernels import (
    Call,
    Fill,
    KernelContext,
    KernelOption,
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

__all__ = ["PAD", "PAD_MODES", "pad_amounts", "pad_mode"]

PAD_MODES = ("constant", "reflect", "edge", "wrap")
"""What the border consists of, by ONNX's names, which are NumPy's too."""

_MOST_COPIES = 64
"""Copies that a border may be made of; from there on, one pass over all of it is faster."""


def pad_mode(node: Node) -> str:
    """Return what the border consists of, one of :data:`PAD_MODES`."""
    return node.str_attr("mode", "constant")


def pad_amounts(node: Node, rank: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return how much is added before and after each axis."""
    pads = node.ints_attr("pads")
    needs(node, len(pads) == 2 * rank and min(pads, default=0) >= 0, f"{2 * rank} pads", pads)
    needs(node, pad_mode(node) in PAD_MODES, f"mode {', '.join(PAD_MODES)}", pad_mode(node))
    return pads[:rank], pads[rank:]


def _bordered(x: Array, amounts: tuple[tuple[int, int], ...], mode: str) -> Array:
    # NumPy types its modes as literals.
    return cast("Array", np.pad(x, amounts, mode))  # pyright: ignore


def _infer(node: Node, types: Types) -> tuple[TensorType, ...]:
    x = tensor(node, types, 0)
    begins, ends = pad_amounts(node, len(x.shape))
    if len(types) > 1:
        value = tensor(node, types, 1)
        fits = value.dtype == x.dtype and prod(value.shape) == 1
        needs(node, fits and pad_mode(node) == "constant", f"a value of {x.dtype}", value)
    shape = tuple(b + n + e for b, n, e in zip(begins, x.shape, ends, strict=True))
    drawn = pad_mode(node) == "constant" or all(
        extent > 0 or not whole for extent, whole in zip(x.shape, shape, strict=True)
    )
    needs(node, drawn, f"elements to make a border of by mode {pad_mode(node)}", x)
    return (TensorType(x.dtype, shape),)


def _evaluate(node: Node, operands: Operands) -> tuple[Array, ...]:
    x = array(operands, 0)
    amounts = tuple(zip(*pad_amounts(node, x.ndim), strict=True))
    mode = pad_mode(node)
    if mode != "constant":
        return (_bordered(x, amounts, mode),)
    value = array(operands, 1).reshape(()) if len(operands) > 1 else node.get("value") or 0
    result = np.full(
        [b + n + e for (b, e), n in zip(amounts, x.shape, strict=True)], value, x.dtype
    )
    result[tuple(slice(b, b + n) for (b, _), n in zip(amounts, x.shape, strict=True))] = x
    return (result,)


# --- kernels --------------------------------------------------------------------------------------


def _constant(context: KernelContext, source: Walk, result: Walk) -> KernelOption | Refusal:
    node = context.node
    begins, _ = pad_amounts(node, len(source.shape))
    value = node.float_attr("value", 0.0)
    if value and result.fmt.is_blocked:
        reason = f"the spare lanes of {result.fmt} must stay zero"
        return Refusal("onednn-cpu", node.name, reason)
    box = region(result.axes, result.shape, result.pick(begins), source.shape)
    if box is None:
        return Refusal("onednn-cpu", node.name, f"the pad cuts a block of {result.fmt}")
    return KernelOption(
        "fill and copy",
        (source.fmt,),
        (result.fmt,),
        (copy_call(source.whole(), box, input_of(0), output_of()),),
        (),
        Fill(algebra.element_count(result.axes, result.shape), value),
    )


def _runs(extent: int, begin: int, end: int, mode: str) -> Iterator[tuple[int, int, int]]:
    """Yield the border of an axis as (place, element that it repeats, length) over ascending runs.

    Both are indices of the result, in which the elements themselves begin at ``begin``.

    >>> list(_runs(4, 2, 3, "wrap")), list(_runs(4, 2, 0, "reflect"))
    ([(0, 4, 2), (6, 2, 3)], [(0, 4, 1), (1, 3, 1)])
    """
    read = _bordered(np.arange(extent), ((begin, end),), mode) + begin
    place = 0
    while place < begin + extent + end:
        if place == begin:
            place += extent
            continue
        limit = begin if place < begin else begin + extent + end
        length = 1
        while place + length < limit and read[place + length] == read[place] + length:
            length += 1
        yield place, int(read[place]), length
        place += length


def _drawn(node: Node, source: Walk, result: Walk) -> list[Call] | str:
    """Return copies that put the tensor into the result and make the border, axis by axis, of it.

    What an axis adds is copied with the borders of the axes before it, so corners come by
    themselves.
    """
    begins, ends = (result.pick(amounts) for amounts in pad_amounts(node, len(source.shape)))
    starts, lengths = list(begins), list(source.shape)
    cut = f"the pad cuts a block of {result.fmt}"
    box = region(result.axes, result.shape, begins, source.shape)
    if box is None:
        return cut
    calls = [copy_call(source.whole(), box, input_of(0), output_of())]
    for axis, extent in enumerate(source.shape):
        for place, read, length in _runs(extent, begins[axis], ends[axis], pad_mode(node)):
            lengths[axis] = length
            boxes = [
                region(
                    result.axes,
                    result.shape,
                    (*starts[:axis], start, *starts[axis + 1 :]),
                    tuple(lengths),
                )
                for start in (read, place)
            ]
            old, new = boxes
            if old is None or new is None:
                return cut
            calls.append(copy_call(old, new, output_of(), output_of()))
            if len(calls) > _MOST_COPIES:
                return f"it would take more than {_MOST_COPIES} copies"
        starts[axis], lengths[axis] = 0, result.shape[axis]
    return calls


def _kernels(context: KernelContext) -> Iterable[KernelOption | Refusal]:
    node = context.node
    x, y = context.value(node.inputs[0]), context.value(node.outputs[0])
    if len(node.inputs) > 1:
        yield Refusal("onednn-cpu", node.name, "the value of its border is not known before a run")
        return
    if not prod(x.shape):
        yield Refusal("onednn-cpu", node.name, "the operand has no elements")
        return
    for source, result in walks(context, x, y):
        if pad_mode(node) == "constant":
            yield _constant(context, source, result)
            continue
        calls = _drawn(node, source, result)
        if isinstance(calls, str):
            yield Refusal("onednn-cpu", node.name, calls)
            continue
        algorithm = f"{pad_mode(node)} copies"
        yield KernelOption(algorithm, (source.fmt,), (result.fmt,), tuple(calls))


def _permuted(node: Node, shape: tuple[int, ...], perm: tuple[int, ...]) -> Permuted | str:
    if len(node.inputs) > 1:
        return "the value of its border is not known before a run"
    begins, ends = pad_amounts(node, len(shape))
    order = inverse(perm)
    pads = (*(begins[axis] for axis in order), *(ends[axis] for axis in order))
    return Permuted({**dict(node.attrs), "pads": pads}, perm)


PAD = register(OpSpec("pad", (1, 2), _infer, _evaluate, "same", _kernels, permuted=_permuted))
