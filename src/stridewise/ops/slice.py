"""Slices with positive steps. Contiguous ones are views; the others are one strided copy."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from stridewise.formats import Format
from stridewise.graph import Node, Refusal, TensorType, Value
from stridewise.ops.kernels import (
    Alias,
    KernelContext,
    KernelOption,
    canonical_shape,
    copy_call,
    input_of,
    output_of,
    region,
    same_place,
    user_format,
)
from stridewise.ops.registry import Array, Operands, OpSpec, array, needs, register, tensor

__all__ = ["SLICE", "same_axes_formats"]

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


def same_axes_formats(
    context: KernelContext, x: Value, y: Value
) -> Iterator[tuple[Format, Format, tuple[int, ...]]]:
    """Yield formats of two values of the same axes, and the user's position of each axis.

    Where the axes mean different things only the user's own order is offered.
    """
    if x.origin is not None and x.origin == y.origin:
        results = context.formats(y.name)
        for kind, fmt in context.formats(x.name).items():
            if kind in results:
                yield fmt, results[kind], tuple(x.origin.order.index(axis) for axis in fmt.axes)
    else:
        x_user, y_user = user_format(x), user_format(y)
        yield x_user, y_user, tuple(range(len(x.shape)))


def positional(fmt: Format, shape: tuple[int, ...]) -> Format:
    """Return the row-major format over the positions of ``shape``, for user-order storage."""
    axes = tuple(f"{index}" for index in range(len(shape)))
    return fmt if len(fmt.axes) != len(shape) else Format(axes, axes)


def _kernels(context: KernelContext) -> Iterable[KernelOption | Refusal]:
    node = context.node
    x, y = context.value(node.inputs[0]), context.value(node.outputs[0])
    starts, lengths, steps = _bounds(node, x.shape)
    named = x.origin is not None and x.origin == y.origin
    for source, result, order in same_axes_formats(context, x, y):
        x_walk = source if named else positional(source, x.shape)
        y_walk = result if named else positional(result, y.shape)
        x_shape = canonical_shape(x, source) if named else x.shape
        y_shape = canonical_shape(y, result) if named else y.shape
        box = region(
            x_walk,
            x_shape,
            tuple(starts[i] for i in order),
            tuple(lengths[i] for i in order),
            tuple(steps[i] for i in order),
        )
        whole = region(y_walk, y_shape, (0,) * len(y_shape), y_shape)
        if box is None or whole is None:
            yield Refusal("onednn-cpu", node.name, f"the slice cuts a block of {source}")
            continue
        if same_place(box[0], whole[0]):
            alias = Alias(0, 0, box[1], "view")
            yield KernelOption("view", (source,), (result,), (), (alias,))
            continue
        call = copy_call(box, whole, input_of(0), output_of())
        yield KernelOption("copy", (source,), (result,), (call,))


SLICE = register(OpSpec("slice", (1, 1), _infer, _evaluate, "same", _kernels))
