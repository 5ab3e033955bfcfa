"""Who moves the bytes of a reorder: the native core, through caches or past them, and oneDNN."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from stridewise.errors import FormatError, describe
from stridewise.formats import Format
from stridewise.formats.dialects.onednn import abstract_tag
from stridewise.runtime.binding.library import load_core
from stridewise.runtime.binding.reorders import best_isa, core_reorder
from stridewise.runtime.execution.layout import Layout
from stridewise.tensor.desc import TensorDesc
from stridewise.tensor.moves import moves, zeros
from stridewise.tensor.quantization import Scales

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


def _native(
    source: Layout, destination: Layout, scales: Scales | None, isa: str
) -> Callable[[int, bool], Run]:
    """Return the reorder of the native core, for a number of threads, streaming or not."""
    plan = moves(source.side(), destination.side(), scales.axis if scales else None)
    sides = [(layout.desc.dtype, layout.nbytes) for layout in (source, destination)]
    fill = plan.fill and destination.is_dense
    move = core_reorder(plan, *sides, scales=scales, fill=fill, isa=isa)
    if not plan.fill or destination.is_dense:
        return lambda threads, stream: (
            lambda array, out, apart: move.run(array, out, threads, stream, apart)
        )
    # What lies between the elements of a view is not ours to zero.
    nothing = zeros(destination.side())
    clear = core_reorder(nothing, *sides, scales=scales, fill=False, isa=isa)
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
        isa = "portable" if wanted == "portable" else best_isa()
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
