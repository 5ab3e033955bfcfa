"""Kernels on tensors that are stored as integers: options of float32 kernels, with other elements.

A value with a grid can be stored as integers and loses nothing. What kernels compute with them are
the real numbers that they stand for. A rounding to the grid of the result, the last post-op of a
node, is what storing the result as integers does.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from stridewise.graph import Node, PostOp, Value
from stridewise.ops.activation import SNAPS, UNARY
from stridewise.ops.geometry import user_format
from stridewise.targets.kernels import (
    Alias,
    Arg,
    Call,
    Element,
    KernelContext,
    KernelOption,
    input_of,
    output_of,
)
from stridewise.targets.onednn.context_view import ContextView
from stridewise.targets.onednn.int8_depthwise import is_in_rows
from stridewise.targets.onednn.int8_elementwise import averages, elementwise, tables
from stridewise.targets.onednn.int8_norm import held_by_norm, norm_with_convolution
from stridewise.targets.onednn.int8_pointwise import expressions
from stridewise.targets.onednn.int8_products import products, products_to
from stridewise.targets.onednn.integers import (
    element_of,
    grid_named,
    stored_as,
)
from stridewise.targets.onednn.memory import storage_of
from stridewise.targets.onednn.reorder import reorder_spec
from stridewise.tensor import Storage

__all__ = ["boundary", "in_int8", "in_offered_int8"]

_MOVES = frozenset({"concat", "reorder", "shuffle"})
"""Kinds of kernels that copy elements."""

_WORD = 4

_SNAP = {short: op for op, short in SNAPS.items()}


# --- copies ---------------------------------------------------------------------------------------


def _is_move(call: Call) -> bool:
    params = dict(call.spec.params)
    algorithm = params.get("algorithm")
    kind = call.spec.kind
    return kind in _MOVES or (kind, algorithm) in (("pooling", "max"), ("resampling", "nearest"))


def _moves(option: KernelOption, context: KernelContext) -> Iterator[KernelOption]:
    """Yield copies of stored integers, whose meaning does not change."""
    node = context.node
    if node.post_ops or not all(map(_is_move, option.calls)):
        return
    read = [name for name, fmt in zip(node.inputs, option.inputs, strict=True) if fmt is not None]
    constants = any(
        arg.operand.side == "in" and option.inputs[arg.operand.index] is None
        for call in option.calls
        for arg in call.args
    )
    grids = {grid_named(context, name) for name in (*read, *node.outputs)}
    grid = next(iter(grids))
    if grid is None or len(grids) > 1 or constants:
        return
    fill = option.fill
    if fill is not None:
        if fill.value or grid.zero_points[0] or fill.count % _WORD:
            return
        fill = replace(fill, count=fill.count // _WORD)

    def typed(call: Call) -> Call:
        memories = tuple((role, replace(m, dtype=grid.dtype)) for role, m in call.spec.memories)
        return replace(call, spec=replace(call.spec, memories=memories))

    yield replace(
        option,
        algorithm=f"{option.algorithm}, {grid.dtype}",
        calls=tuple(map(typed, option.calls)),
        fill=fill,
        elements=(element_of(grid),) * (len(option.inputs) + len(option.outputs)),
    )


# --- between real numbers and integers ------------------------------------------------------------


def boundary(context: KernelContext) -> Iterator[KernelOption]:
    """Yield the way from stored integers of the model to real numbers, or back: the same bytes."""
    node = context.node
    real = node.outputs[0] if node.op == "dequantize" else node.inputs[0]
    grid = grid_named(context, real)
    if grid is None:
        return
    # Integers of the model are stored in the user's order, whatever the axes mean.
    x, y = (user_format(context.value(name)) for name in (node.inputs[0], node.outputs[0]))
    own, stored = Element(), element_of(grid)
    elements = (own, stored) if node.op == "dequantize" else (stored, own)
    yield KernelOption("view", (x,), (y,), (), (Alias(0, 0, 0, "view"),), elements=elements)


def _roundings(context: KernelContext) -> Iterator[KernelOption]:
    """Yield the rounding to a grid as a reorder, which may change the format as well."""
    node = context.node
    x, y = context.value(node.inputs[0]), context.value(node.outputs[0])
    grid = grid_named(context, y.name)
    if node.post_ops or grid is None or x.origin != y.origin:
        return
    for kind, source in context.formats(x.name).items():
        for result_kind, result in context.formats(y.name).items():
            stored = Storage(result, *stored_as(grid))
            spec = reorder_spec(x, Storage(source), stored)
            args = (Arg("src", input_of(0)), Arg("dst", output_of()))
            call = Call(spec, args)
            name = f"rounding, {kind} to {result_kind} {grid.dtype}"
            elements = (Element(), element_of(grid))
            yield KernelOption(name, (source,), (result,), (call,), elements=elements)


_IMAGE = 4  # axes of an image with channels


def _is_naive(option: KernelOption) -> bool:
    """Return whether the library has only loops over single bytes: for images in plain format."""
    memories = [memory for call in option.calls for _, memory in call.spec.memories]
    return any(
        len(memory.dims) >= _IMAGE
        and memory.tag not in ("", "any")
        and storage_of(memory) == "plain"
        for memory in memories
    )


def _is_taken(option: KernelOption) -> bool:
    """Return whether there may be a kernel on integers in the formats of an option."""
    formats = (fmt for fmt in (*option.inputs, *option.outputs) if fmt is not None)
    is_blocked = any(fmt.is_blocked for fmt in formats) and not is_in_rows(option)
    return not (option.is_joint or is_blocked or _is_naive(option))


def in_int8(options: Iterable[KernelOption], context: KernelContext) -> Iterator[KernelOption]:
    """Yield options of a node on tensors of integers, where the library has the kernels.

    Args:
        options: the same on float32 tensors.
        context: of the node; its values know their grids.
    """
    names = (*context.node.inputs, *context.node.outputs)
    if all(context.value(name).grid is None for name in names if name):
        return
    if context.node.op in SNAPS:
        yield from _roundings(context)
    if context.node.op == "pointwise" or context.node.op in UNARY:
        yield from tables(context)
    for result in dict.fromkeys((grid_named(context, context.node.outputs[0]), None)):
        yield from expressions(context, result)
    yield from norm_with_convolution(context)
    yield from held_by_norm(context)
    for option in filter(_is_taken, options):
        for made in (products, _moves, averages, elementwise):
            yield from made(option, context)


# --- offers ---------------------------------------------------------------------------------------


class _Offered(ContextView):
    """A node as if its values were on the grids that they are offered."""

    def __init__(self, inner: KernelContext, node: Node) -> None:
        super().__init__(inner)
        self._node = node

    @property
    def node(self) -> Node:
        return self._node

    def value(self, name: str) -> Value:
        value = self.inner.value(name)
        return value if value.offer is None else replace(value, grid=value.offer)


def in_offered_int8(
    options: Iterable[KernelOption], context: KernelContext
) -> Iterator[KernelOption]:
    """Yield options of a node that round its values to the grids that they are offered.

    Args:
        options: the same on float32 tensors.
        context: of the node; its values know their offers.
    """
    node = context.node
    names = (*node.inputs, *node.outputs)
    if all(context.value(name).offer is None for name in names if name):
        return
    real = _Offered(context, node)
    grid = context.value(node.outputs[0]).offer
    rounded = real
    if grid is not None:
        snap = PostOp(_SNAP[grid.dtype], grid.scales[0], float(grid.zero_points[0]))
        rounded = _Offered(context, replace(node, post_ops=(*node.post_ops, snap)))
        if node.op == "pointwise" or node.op in UNARY:
            yield from tables(rounded)
        yield from expressions(rounded, grid)
    yield from expressions(real, None)
    for option in filter(_is_taken, options):
        yield from products_to(None, option, real)
        yield from _moves(option, real)
        if grid is not None:
            yield from products_to(grid, option, rounded)
            for made in (averages, elementwise):
                yield from made(option, rounded)
