"""Kernels on tensors that are stored as integers: options of float32 kernels, with other elements.

A value with a grid can be stored as integers and loses nothing. What kernels compute with them are
the real numbers that they stand for: scales and zero points are arguments of the library's kernels,
or become linear post-ops where it has no such arguments. A rounding to the grid of the result, the
last post-op of a node, is what storing the result as integers does.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from stridewise.graph import Node, PostOp, Value
from stridewise.ops.activation import SNAPS
from stridewise.ops.geometry import user_format
from stridewise.targets.kernels import (
    Alias,
    Arg,
    Call,
    Element,
    KernelContext,
    KernelOption,
    MemorySpec,
    Operand,
    input_of,
    output_of,
    scale_args,
    scale_memories,
)
from stridewise.targets.onednn.activation import ELTWISE
from stridewise.targets.onednn.context_view import ContextView
from stridewise.targets.onednn.int8_elementwise import affine, averages, elementwise, tables
from stridewise.targets.onednn.int8_pointwise import expressions
from stridewise.targets.onednn.integers import (
    Chain,
    Typed,
    element_of,
    grid_named,
    stored_as,
    stored_grid,
    with_types,
)
from stridewise.targets.onednn.memory import storage_of
from stridewise.targets.onednn.norm import affine_options
from stridewise.targets.onednn.reorder import reorder_spec
from stridewise.tensor import Grid, Storage

__all__ = ["boundary", "in_int8", "in_offered_int8"]

_PRODUCTS = frozenset({"convolution", "deconvolution", "matmul"})
"""Kinds of kernels that multiply integers, for which the CPU needs instructions."""

_MOVES = frozenset({"concat", "reorder", "shuffle"})
"""Kinds of kernels that copy elements."""

_SIGNED = {"s8": 0, "u8": 128}
"""Zero points of weights that are whole numbers of 8 bits with a sign when it is taken off."""

_WORD = 4

_SNAP = {short: op for op, short in SNAPS.items()}


# --- products -------------------------------------------------------------------------------------


def _weights_grid(context: KernelContext, kind: str) -> Grid | None:
    """Return the grid of weights that are signed integers of 8 bits, with scales for results."""
    node = context.node
    name = node.inputs[1]
    grid = context.value(name).grid
    if grid is None or not context.is_constant(name):
        return None
    if set(grid.zero_points) != {_SIGNED[grid.dtype]}:
        return None
    rank = len(context.value(name).shape)
    results = 0 if kind == "convolution" or node.int_attr("trans_b", 0) else rank - 1
    if kind == "deconvolution":
        return grid if grid.axis is None else None
    return grid if grid.axis in (None, results) else None


def _products(option: KernelOption, context: KernelContext) -> Iterator[KernelOption]:
    """Yield convolutions and matrix products of integers, with integers or real results."""
    for result in dict.fromkeys((stored_grid(context), None)):
        yield from _products_to(result, option, context)


def _products_to(
    result: Grid | None, option: KernelOption, context: KernelContext
) -> Iterator[KernelOption]:
    if len(option.calls) != 1 or option.calls[0].spec.kind not in _PRODUCTS or option.aliases:
        return
    node, spec, args = context.node, option.calls[0].spec, option.calls[0].args
    source, weights = grid_named(context, node.inputs[0]), _weights_grid(context, spec.kind)
    if source is None or weights is None:
        return
    if spec.kind != "matmul" and storage_of(spec.memory("src")) != "channels-last":
        return
    operands = _operands(context, option)
    typed = Typed(context, (source, *operands[1:]), result)
    chain = Chain()
    destination = spec.memory("dst")
    assert destination is not None  # products have one
    typed.posts(chain, destination)
    to = "f32" if result is None else result.dtype
    types = {"src": source.dtype, "weights": "s8", "dst": to}
    scale = Arg("weights_scale", Operand("numbers", 0, weights.scales))
    numbers = (*scale_args("src", source.quantization), scale)
    if result is not None:
        chain.store(result)
    memories = (*with_types(spec.memories, types), *scale_memories(numbers))
    kept = [arg for arg in args if not arg.role.startswith("post")]
    kept = [replace(arg, grid=weights) if arg.role == "weights" else arg for arg in kept]
    value = context.value(node.inputs[1])
    if value.offer is not None and value.bias:
        if spec.memory("bias") is None:
            memories = (*memories, ("bias", MemorySpec((len(value.bias),), "a")))
        corrected = Arg("bias", Operand("numbers", 0, value.bias))
        kept = [*(arg for arg in kept if arg.role != "bias"), corrected]
    made = replace(spec, memories=memories, post_ops=tuple(chain.specs))
    call = Call(made, (*kept, *chain.args, *numbers))
    yield typed.option(option, call, f"{option.algorithm}, {source.dtype} to {to}")


def _operands(context: KernelContext, option: KernelOption) -> tuple[Grid | None, ...]:
    """Return the grids of the operands of post-ops; None where one is a factor around no zero."""
    node = context.node
    found: list[Grid | None] = [None] * len(option.inputs)
    for post in node.post_ops:
        if post.operand is not None:
            grid = grid_named(context, node.inputs[post.operand])
            if grid is not None and (post.op != "mul" or grid.zero_points[0] == 0):
                found[post.operand] = grid
    return tuple(found)


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
    if context.node.op == "pointwise" or context.node.op in ELTWISE:
        yield from tables(context)
    for result in dict.fromkeys((grid_named(context, context.node.outputs[0]), None)):
        yield from expressions(context, result)
    for option in options:
        formats = [fmt for fmt in (*option.inputs, *option.outputs) if fmt is not None]
        if option.is_joint or any(fmt.is_blocked for fmt in formats) or _is_naive(option):
            continue
        for made in (_products, _moves, averages, elementwise, affine):
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
        if node.op == "pointwise" or node.op in ELTWISE:
            yield from tables(rounded)
        yield from expressions(rounded, grid)
    yield from expressions(real, None)
    if node.op == "scale_shift":
        options = affine_options(rounded)
    for option in options:
        formats = [fmt for fmt in (*option.inputs, *option.outputs) if fmt is not None]
        if option.is_joint or any(fmt.is_blocked for fmt in formats) or _is_naive(option):
            continue
        yield from _products_to(None, option, real)
        yield from _moves(option, real)
        if grid is not None:
            yield from _products_to(grid, option, rounded)
            for made in (averages, elementwise, affine):
                yield from made(option, rounded)
