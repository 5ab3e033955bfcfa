"""The core's expressions on tensors of integers.

Kernels turn integers into real numbers when they load them, compute in float32, and round to the
grid of the result when they store it. That is ONNX's definition, to the bit.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import prod

from stridewise.formats import Format
from stridewise.ops.activation import SNAPS
from stridewise.ops.data_format import is_turned
from stridewise.ops.geometry import canonical_shape
from stridewise.ops.pointwise import MOST_STEPS, Step
from stridewise.targets.kernels import (
    SCALING,
    Alias,
    Arg,
    Call,
    KernelContext,
    KernelOption,
    KernelSpec,
    input_of,
    output_of,
)
from stridewise.targets.onednn.integers import element_of, grid_named
from stridewise.targets.onednn.memory import memory_of
from stridewise.targets.onednn.pointwise import (
    Bound,
    bind,
    expanded,
    flops_of,
    result_formats,
    steps_with_posts,
)
from stridewise.tensor import Grid

__all__ = ["expressions"]

_MOST_SOURCES = 8

_CONVERSION_FLOPS = 3.0
"""What it takes to load or store an integer; an estimate."""


def _bound(context: KernelContext, index: int, kind: str, fmt: Format) -> Bound | None:
    """Return an input of a node beside a result in a format; None where it cannot be."""
    role = f"src{index}"
    if context.node.op != "scale_shift" or index not in (1, 2):
        return bind(context, role, index, kind, fmt)
    result = context.value(context.node.outputs[0])
    row = (1, result.shape[1], *(1,) * (len(result.shape) - 2))
    return memory_of(fmt, row), Arg(role, input_of(index), reshape=row), None


def _numbers(grid: Grid | None) -> tuple[float, float]:
    return (1.0, 0.0) if grid is None else (grid.scales[0], float(grid.zero_points[0]))


def _is_computed(context: KernelContext) -> bool:
    """Return whether an expression can compute a node, if it has steps."""
    node = context.node
    if node.op == "scale_shift":
        is_row = all(map(context.is_constant, node.inputs[1:3])) and not is_turned(node)
        return is_row and len(context.value(node.outputs[0]).shape) > 1
    types = {context.value(name).dtype.name for name in node.inputs if name}
    return types == {"float32"}


def expressions(context: KernelContext, result: Grid | None) -> Iterator[KernelOption]:
    """Yield expressions of operands on grids, each stored as integers or as real numbers.

    Args:
        context: of the node; its values know their grids.
        result: the grid of the integers that the result is stored as; None for real numbers.
    """
    node = context.node
    found = steps_with_posts(node)
    if not found or not all(node.inputs) or not _is_computed(context):
        return
    last = max((at for at, step in enumerate(found) if step.op in SNAPS), default=None)
    if result is not None and last is None:
        return
    made = expanded(found, None if result is None else last)
    grids = [
        None if context.is_constant(name) else grid_named(context, name) for name in node.inputs
    ]
    literals = {item for step in made for item in step.operands if not isinstance(item, str)}
    if not made or len(made) > MOST_STEPS or max(len(literals), len(grids)) > _MOST_SOURCES:
        return
    if len(grids) == 1 and grids[0] is not None and result is not None:
        return  # it has a table of its results
    if any(grids):
        yield from _options(context, made, grids, result)
    if result is not None:
        yield from _options(context, made, [None] * len(grids), result)


def _options(
    context: KernelContext,
    steps: tuple[Step, ...],
    grids: list[Grid | None],
    result: Grid | None,
) -> Iterator[KernelOption]:
    """Yield an expression in each format, with operands stored as integers of their grids."""
    node, value = context.node, context.value(context.node.outputs[0])
    flops = (flops_of(steps) + _CONVERSION_FLOPS * sum(map(bool, (*grids, result)))) * prod(
        value.shape
    )
    numbers = tuple(number for grid in (*grids, result) for number in _numbers(grid))
    params = (("expression", tuple(map(str, steps))), (SCALING, numbers))
    for kind, fmt in result_formats(context):
        bound = [_bound(context, index, kind, fmt) for index in range(len(node.inputs))]
        operands = [item for item in bound if item is not None]
        if len(operands) < len(bound):
            continue
        memories = [
            (arg.role, replace(memory, dtype=grid.dtype if grid else "f32"))
            for (memory, arg, _), grid in zip(operands, grids, strict=True)
        ]
        dst = memory_of(fmt, canonical_shape(value, fmt))
        dst = replace(dst, dtype=result.dtype if result else "f32")
        spec = KernelSpec("pointwise", (*memories, ("dst", dst)), params, flops=flops)
        args = (*(arg for _, arg, _ in operands), Arg("dst", output_of()))
        stored = tuple(stored for _, _, stored in operands)
        sources = {"f32" if grid is None else grid.dtype for grid in grids}
        yield KernelOption(
            f"pointwise, {kind}, {'/'.join(sorted(sources))} to {dst.dtype}",
            stored,
            (fmt,),
            (Call(spec, args),),
            tuple(
                Alias(index, 0, 0, "in place")
                for index, (_, memory) in enumerate(memories)
                if stored[index] == fmt and memory == dst
            ),
            elements=(*map(element_of, grids), element_of(result)),
        )
