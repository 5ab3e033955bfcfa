"""Options that move no byte: results that are the operand under other axes, or part of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from stridewise.formats import Format
from stridewise.ops.geometry import row_major, user_format
from stridewise.ops.slice import slice_bounds
from stridewise.targets.kernels import Alias, KernelContext, KernelOption, MemorySpec
from stridewise.targets.walks import Walk, region, same_place, walks

__all__ = ["VIEWS", "reshape_views", "slice_view", "transpose_views", "transposed_memories", "view"]


def view(source: Format, result: Format, offset: int = 0) -> KernelOption:
    """Return the option in which the result lies ``offset`` elements after the operand's start."""
    return KernelOption("view", (source,), (result,), (), (Alias(0, 0, offset, "view"),))


def reshape_views(context: KernelContext) -> Iterator[KernelOption]:
    """Yield the one view of a reshape, in the user's order of axes."""
    node = context.node
    x, y = context.value(node.inputs[0]), context.value(node.outputs[0])
    yield view(user_format(x), user_format(y))


def transposed_memories(context: KernelContext) -> tuple[MemorySpec, MemorySpec]:
    """Return source and result of a transpose over the same loops, both in the user's order."""
    node = context.node
    x, y = context.value(node.inputs[0]), context.value(node.outputs[0])
    strides = row_major(x.shape)
    source = tuple(strides[axis] for axis in node.ints_attr("perm"))
    return MemorySpec(y.shape, strides=source), MemorySpec(y.shape, strides=row_major(y.shape))


def transpose_views(context: KernelContext) -> Iterator[KernelOption]:
    """Yield the views of a transpose; there are none where elements have to move."""
    node = context.node
    x, y = context.value(node.inputs[0]), context.value(node.outputs[0])
    perm = node.ints_attr("perm")
    if x.origin is not None and y.origin == Format(
        x.origin.axes, tuple(x.origin.order[axis] for axis in perm)
    ):
        # The axes keep their names, so the same bytes are seen in another order.
        for fmt in context.formats(x.name).values():
            yield view(fmt, fmt)
    elif same_place(*transposed_memories(context)):
        yield view(user_format(x), user_format(y))


def slice_view(
    bounds: tuple[tuple[int, ...], ...], source: Walk, result: Walk
) -> KernelOption | None:
    """Return the view of a slice, None where it is not contiguous.

    Args:
        bounds: starts, lengths and steps, as :func:`slice_bounds` returns them.
        source: how the operand is stored.
        result: how the result is stored.
    """
    if min(bounds[2], default=1) <= 0:
        return None
    box = region(source.axes, source.shape, *(source.pick(bound) for bound in bounds))
    if box is None or not same_place(box[0], result.whole()[0]):
        return None
    return view(source.fmt, result.fmt, box[1])


def _slice_views(context: KernelContext) -> Iterator[KernelOption]:
    node = context.node
    x, y = context.value(node.inputs[0]), context.value(node.outputs[0])
    bounds = slice_bounds(node, x.shape)
    found = (slice_view(bounds, source, result) for source, result in walks(context, x, y))
    yield from (option for option in found if option is not None)


VIEWS: Mapping[str, Callable[[KernelContext], Iterable[KernelOption]]] = {
    "reshape": reshape_views,
    "slice": _slice_views,
    "transpose": transpose_views,
}
"""By operator, what yields its views."""
