"""Reorders of the native core: from planned moves to native objects, and as steps of programs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from stridewise.dtypes import DType, dtype_of
from stridewise.formats import parse
from stridewise.program import KernelStep, Program
from stridewise.runtime.binding.library import load_core
from stridewise.runtime.binding.reorders import (
    OWN_REORDERS,
    PlannedReorder,
    native_reorder,
    permuted_strides,
    scaling_of,
)
from stridewise.targets.kernels import KernelSpec, MemorySpec
from stridewise.tensor.moves import Move, Moves, Nest, Side, moves
from stridewise.tensor.quantization import Scales
from stridewise.tensor.tiles import Group, Tile, groups

if TYPE_CHECKING:
    from stridewise import _core

__all__ = ["core_reorder", "planned_reorder", "planned_reorders", "rearrange_kernel"]


def _loop(loop: Move) -> tuple[int, int, int, int]:
    return (loop.extent, loop.src, loop.dst, loop.scale)


def _tile(tile: Tile) -> dict[str, Any]:
    scales = [scale for _, scale in tile.columns]
    return {
        "is_zero": tile.src is None,
        "is_runs": tile.is_runs,
        "src": tile.src or 0,
        "dst": tile.dst,
        "scale": tile.scale,
        "loops": [_loop(loop) for loop in tile.loops],
        "width": tile.width,
        "zeros": tile.zeros,
        "width_scale": tile.step,
        "rows": [at for at, _ in tile.rows],
        "row_scales": [scale for _, scale in tile.rows],
        "columns": [at for at, _ in tile.columns],
        "column_scales": [] if tile.is_runs or not any(scales) else scales,
    }


def _group(group: Group) -> tuple[list[tuple[int, int, int, int]], list[dict[str, Any]]]:
    return [_loop(loop) for loop in group.loops], [_tile(tile) for tile in group.tiles]


def core_reorder(
    plan: Moves,
    source: tuple[DType, int],
    destination: tuple[DType, int],
    *,
    scales: Scales | None,
    fill: bool,
    isa: str,
) -> _core.Reorder:
    """Return the native reorder of planned moves.

    Args:
        plan: the moves, in elements.
        source: element type, and bytes from the first element to just past the last.
        destination: the same of where elements go.
        scales: of a quantization, if any.
        fill: whether the whole destination is zeroed first.
        isa: one of ``reorder_isas()``.
    """
    planned = _planned(plan, source, destination, scales=scales, fill=fill)
    made: _core.Reorder = load_core().Reorder(**planned, isa=isa)
    return made


def _planned(
    plan: Moves,
    source: tuple[DType, int],
    destination: tuple[DType, int],
    *,
    scales: Scales | None = None,
    fill: bool,
) -> PlannedReorder:
    (src, src_nbytes), (dst, dst_nbytes) = source, destination
    numbers = (
        [scales.src_zero, scales.src_scale, scales.dst_scale, scales.dst_zero] if scales else []
    )
    return {
        "groups": [_group(group) for group in groups(plan, src.itemsize, dst.itemsize)],
        "src_itemsize": src.itemsize,
        "dst_itemsize": dst.itemsize,
        "conversion": (src.short, dst.short) if src != dst or scales else None,
        "scales": numbers,
        "src_nbytes": src_nbytes,
        "dst_nbytes": dst_nbytes,
        "fill_nbytes": dst_nbytes if fill else 0,
    }


def _steps(memory: MemorySpec) -> tuple[int, ...]:
    return memory.strides or permuted_strides(memory.dims, memory.tag)


def _span(memory: MemorySpec) -> int:
    """Return the number of elements from the first one to the last one."""
    steps = zip(memory.dims, _steps(memory), strict=True)
    return 1 + sum((extent - 1) * stride for extent, stride in steps)


def _side(memory: MemorySpec) -> tuple[Side, tuple[DType, int]]:
    fmt, dtype = parse(memory.tag, "onednn"), dtype_of(memory.dtype)
    return Side.of(fmt, memory.dims), (dtype, fmt.nbytes(memory.dims, dtype))


def _typed(memory: MemorySpec, count: int) -> tuple[DType, int]:
    dtype = dtype_of(memory.dtype)
    return dtype, count * dtype.itemsize


def _nest(
    dims: Sequence[int], given: Sequence[int], wanted: Sequence[int], src: int = 0, dst: int = 0
) -> Nest:
    """Return the loops of a copy between strided memories."""
    loops = (Move(*loop) for loop in zip(dims, given, wanted, strict=True) if loop[0] > 1)
    return Nest(src, dst, 0, tuple(loops))


def rearrange_kernel(
    numbers: Sequence[int],
    src: _core.MemoryDesc,
    dst: _core.MemoryDesc,
    memory: MemorySpec,
    threads: int,
) -> _core.ReorderKernel:
    """Return the kernel of several strided copies from one memory to another one.

    Args:
        numbers: for each copy, one after the other: the rank, the first element in the source and
            in the destination, then extent, stride in the source and in the destination by axis.
        src: the source in native terms.
        dst: the destination in native terms.
        memory: the source; the destination has its element type.
        threads: how many run it.
    """
    nests: list[Nest] = []
    left = list(numbers)
    while left:
        rank, first, place = left[:3]
        loops, left = left[3 : 3 + 3 * rank], left[3 + 3 * rank :]
        nests.append(_nest(loops[::3], loops[1::3], loops[2::3], first, place))
    dtype, plan = dtype_of(memory.dtype), Moves(tuple(nests), fill=False)
    planned = _planned(plan, (dtype, src.nbytes), (dtype, dst.nbytes), fill=False)
    return native_reorder(planned, src, dst, threads)


def planned_reorder(spec: KernelSpec) -> PlannedReorder:
    """Return how the core computes a reorder that :func:`is_own`."""
    (_, given), (_, wanted) = spec.memories
    if not given.dims:
        plan = Moves((_nest((), (), ()),), fill=False)
        have, want = _typed(given, 1), _typed(wanted, 1)
    elif given.strides is None and wanted.strides is None:
        (source, have), (destination, want) = _side(given), _side(wanted)
        plan = moves(source, destination)
    else:
        plan = Moves((_nest(given.dims, _steps(given), _steps(wanted)),), fill=False)
        have, want = _typed(given, _span(given)), _typed(wanted, _span(wanted))
    return _planned(plan, have, want, scales=scaling_of(spec), fill=plan.fill)


def planned_reorders(program: Program) -> Iterator[tuple[KernelSpec, PlannedReorder]]:
    """Yield the reorders of a program that the core computes."""
    steps = [step for step in program.steps if isinstance(step, KernelStep)]
    own = [step.spec for step in steps if step.implementation.startswith(OWN_REORDERS)]
    for spec in dict.fromkeys(own):
        if spec.kind == "reorder":
            yield spec, planned_reorder(spec)
