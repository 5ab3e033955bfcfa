"""Who moves the bytes of a reorder: the native core, through caches or past them, and oneDNN."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from stridewise.errors import FormatError, describe
from stridewise.formats import Format
from stridewise.formats.dialects.onednn import abstract_tag
from stridewise.runtime.binding.library import load_core
from stridewise.runtime.execution.layout import Layout
from stridewise.tensor.desc import TensorDesc
from stridewise.tensor.moves import Move, Moves, moves, zeros
from stridewise.tensor.quantization import Scales
from stridewise.tensor.tiles import Group, Tile, groups

if TYPE_CHECKING:
    from stridewise import _core

__all__ = ["WORTH_MEASURING", "Engine", "Run", "engines"]

Array = NDArray[Any]
Engine = Literal["auto", "cached", "streaming", "onednn", "portable"]
"""Who moves the bytes: the native core through the caches, the same past the caches, oneDNN, the
native core without vector instructions; or whichever is fastest."""

Run = Callable[[Array, Array, bool], bool]
"""Moves one checked array to another, and returns whether it did: not where their memory may
overlap, unless the third argument says that it does not."""

WORTH_MEASURING = 1 << 20
"""Fewer bytes than this are moved through the caches without asking which engine is best."""


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


def _core_reorder(
    plan: Moves, source: Layout, destination: Layout, scales: Scales | None, isa: str
) -> _core.Reorder:
    src, dst = source.desc.dtype, destination.desc.dtype
    numbers = (
        [scales.src_zero, scales.src_scale, scales.dst_scale, scales.dst_zero] if scales else []
    )
    fill = plan.fill and destination.is_dense
    made: _core.Reorder = load_core().Reorder(
        [_group(group) for group in groups(plan, src.itemsize, dst.itemsize)],
        src_itemsize=src.itemsize,
        dst_itemsize=dst.itemsize,
        conversion=(src.short, dst.short) if src != dst or scales else None,
        scales=numbers,
        src_nbytes=source.nbytes,
        dst_nbytes=destination.nbytes,
        fill_nbytes=destination.nbytes if fill else 0,
        isa=isa,
    )
    return made


def _native(
    source: Layout, destination: Layout, scales: Scales | None, isa: str
) -> Callable[[int, bool], Run]:
    """Return the reorder of the native core, for a number of threads, streaming or not."""
    plan = moves(source.side(), destination.side(), scales.axis if scales else None)
    move = _core_reorder(plan, source, destination, scales, isa)
    if not plan.fill or destination.is_dense:
        return lambda threads, stream: (
            lambda array, out, apart: move.run(array, out, threads, stream, apart)
        )
    # What lies between the elements of a view is not ours to zero.
    clear = _core_reorder(zeros(destination.side()), source, destination, scales, isa)
    return lambda threads, stream: (
        lambda array, out, apart: (
            clear.run(array, out, threads, False, apart)
            and move.run(array, out, threads, stream, apart)
        )
    )


def _onednn(src: TensorDesc, dst: TensorDesc, threads: int) -> Run | None:
    """Return oneDNN's reorder, or None where it has none that must give the same bytes.

    Only float32 is offered: other types may pass through float32 on their way.
    """
    axes = dst.storage.format.axes
    extents = dict(zip(axes, dst.canonical_shape, strict=True))
    sides = (src, dst)
    if any(d.dtype.short != "f32" or not d.storage.format.is_simple for d in sides):
        return None
    tags = [abstract_tag(Format(axes, side.storage.format.digits)) for side in sides]
    core = load_core()
    try:
        descs = [core.MemoryDesc(list(extents.values()), "f32", tag) for tag in tags]
        primitive = core.reorder(*descs, threads=threads).create()
    except (core.NativeError, ValueError):
        return None
    if any(have.nbytes != side.nbytes for have, side in zip(descs, sides, strict=True)):
        return None
    scratch = primitive.scratchpad_nbytes
    program = core.Program(scratch, [], [src.nbytes], [dst.nbytes], threads)
    args = [(core.ARG_SRC, descs[0], 2, 0, 0), (core.ARG_DST, descs[1], 3, 0, 0)]
    if scratch:
        args.append((core.ARG_SCRATCHPAD, primitive.arg_desc(core.ARG_SCRATCHPAD), 0, 0, 0))
    program.add_primitive(primitive, args)
    program.freeze()

    def run(array: Array, out: Array, apart: bool) -> bool:
        if not apart and np.may_share_memory(array, out):
            return False
        program.run([array], [out])
        return True

    return run


def _best_isa() -> str:
    """Return the instruction set of the native core: the library's, which users may lower."""
    core = load_core()
    isa: str = core.effective_isa()
    wide = isa.startswith(("AVX2", "AVX512", "AVX10"))
    return "avx2" if wide and "avx2" in core.reorder_isas() else "portable"


def engines(
    source: Layout, destination: Layout, scales: Scales | None, threads: int, wanted: Engine
) -> dict[str, Run]:
    """Return the engines to choose from, one alone where there is nothing to choose.

    Args:
        source: how the arrays of the source lie.
        destination: how those of the destination lie.
        scales: of a quantization, if any.
        threads: how many run it.
        wanted: one engine, or ``"auto"`` for all that can do it.

    Raises:
        FormatError: the wanted engine cannot do it.
    """
    if wanted not in get_args(Engine):
        raise FormatError(
            describe(
                "reorder", expected=f"an engine out of {', '.join(get_args(Engine))}", found=wanted
            )
        )
    nbytes = source.nbytes + destination.nbytes
    small = nbytes < WORTH_MEASURING
    found: dict[str, Run] = {}
    if wanted != "onednn":
        isa = "portable" if wanted == "portable" else _best_isa()
        move = _native(source, destination, scales, isa)
        if wanted != "streaming":
            found["cached" if wanted == "auto" else wanted] = move(threads, False)
        if wanted == "streaming" or (wanted == "auto" and not small and isa != "portable"):
            found["streaming"] = move(threads, True)
    if wanted == "onednn" or (wanted == "auto" and not small):
        dense = source.is_dense and destination.is_dense and 0 not in source.shape
        run = _onednn(source.desc, destination.desc, threads) if dense and not scales else None
        if run is not None:
            found["onednn"] = run
        elif wanted == "onednn":
            raise FormatError(
                describe(
                    "reorder",
                    expected="dense float32 tensors in formats that oneDNN has",
                    found=f"{source.desc.summary} to {destination.desc.summary}",
                    fix="use engine='auto'",
                )
            )
    return found
