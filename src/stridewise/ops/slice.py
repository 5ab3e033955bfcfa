"""Slices with positive steps. Contiguous ones are views; the others are one strided copy."""

from __future__ import annotations

from collections.abc import Iterable

from stridewise.graph import Node, Refusal, TensorType
from stridewise.ops.geometry import copy_call, region, same_place, walks
from stridewise.ops.kernels import Alias, KernelContext, KernelOption, input_of, output_of
from stridewise.ops.registry import Array, Operands, OpSpec, array, needs, register, tensor

__all__ = ["SLICE"]

Types = tuple[TensorType | None, ...]


def _bounds(node: Node, shape: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    """Return starts, lengths and steps, one for each axis."""
    starts, stops, steps = (node.ints_attr(key) for key in ("starts", "stops", "steps"))
    rank = len(shape)
    fits = len(starts) == len(stops) == len(steps) == rank
    needs(node, fits, f"starts, stops and steps for {rank} axes", node.attrs)
    for start, stop, step, extent in zip(starts, stops, steps, shape, strict=True):
        valid = 0 <= start <= stop <= extent and step >= 1
        needs(node, valid, f"0 <= start <= stop <= {extent}, step >= 1", (start, stop, step))
    lengths = tuple(
        -(-(stop - start) // step) for start, stop, step in zip(starts, stops, steps, strict=True)
    )
    return starts, lengths, steps


def _infer(node: Node, types: Types) -> tuple[TensorType, ...]:
    x = tensor(node, types, 0)
    return (TensorType(x.dtype, _bounds(node, x.shape)[1]),)


def _evaluate(node: Node, operands: Operands) -> tuple[Array, ...]:
    x = array(operands, 0)
    keys = zip(*(node.ints_attr(key) for key in ("starts", "stops", "steps")), strict=True)
    return (x[tuple(slice(*key) for key in keys)],)


def _kernels(context: KernelContext) -> Iterable[KernelOption | Refusal]:
    node = context.node
    x, y = context.value(node.inputs[0]), context.value(node.outputs[0])
    bounds = _bounds(node, x.shape)
    for source, result in walks(context, x, y):
        box = region(source.axes, source.shape, *(source.pick(bound) for bound in bounds))
        if box is None:
            yield Refusal("onednn-cpu", node.name, f"the slice cuts a block of {source.fmt}")
            continue
        whole = result.whole()
        if same_place(box[0], whole[0]):
            alias = Alias(0, 0, box[1], "view")
            yield KernelOption("view", (source.fmt,), (result.fmt,), (), (alias,))
            continue
        call = copy_call(box, whole, input_of(0), output_of())
        yield KernelOption("copy", (source.fmt,), (result.fmt,), (call,))


SLICE = register(OpSpec("slice", (1, 1), _infer, _evaluate, "same", _kernels))
