"""Engines of a reorder: the native core with cached or streaming stores, and oneDNN."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from stridewise.errors import FormatError
from stridewise.formats import Format
from stridewise.formats.dialects.onednn import abstract_tag
from stridewise.runtime.binding.library import load_core
from stridewise.runtime.binding.reorder_kernels import core_reorder
from stridewise.runtime.binding.reorders import best_isa
from stridewise.runtime.execution.layout import Layout
from stridewise.tensor.desc import TensorDesc
from stridewise.tensor.moves import moves, zeros
from stridewise.tensor.quantization import Scales

__all__ = ["WORTH_MEASURING", "Engine", "Run", "engines"]

Array = NDArray[Any]
Engine = Literal["auto", "cached", "streaming", "onednn", "portable"]
"""The engine of a reorder: ``"cached"`` and ``"streaming"`` are the native core with cached and
non-temporal stores, ``"portable"`` is the native core without vector instructions, ``"onednn"`` is
oneDNN, and ``"auto"`` selects the fastest."""

Run = Callable[[Array, Array, bool], bool]
"""Reorders one checked array into another. Returns False without writing if their memory may
overlap. The third argument states that it does not overlap."""

WORTH_MEASURING = 1 << 20
"""Below this number of bytes the engine is always ``"cached"``, without a measurement."""


def _native(
    source: Layout, destination: Layout, scales: Scales | None, isa: str
) -> Callable[[int, bool], Run]:
    """Return a function of the number of threads and of streaming that makes the native reorder."""
    plan = moves(source.side(), destination.side(), scales.axis if scales else None)
    sides = [(layout.desc.dtype, layout.nbytes) for layout in (source, destination)]
    fill = plan.fill and destination.is_dense
    move = core_reorder(plan, *sides, scales=scales, fill=fill, isa=isa)
    if not plan.fill or destination.is_dense:
        return lambda threads, stream: (
            lambda array, out, apart: move.run(array, out, threads, stream, apart)
        )
    # The gaps of a view belong to the enclosing array and must not be zeroed.
    nothing = zeros(destination.side())
    clear = core_reorder(nothing, *sides, scales=scales, fill=False, isa=isa)
    return lambda threads, stream: (
        lambda array, out, apart: (
            clear.run(array, out, threads, False, apart)
            and move.run(array, out, threads, stream, apart)
        )
    )


def _onednn(src: TensorDesc, dst: TensorDesc, threads: int) -> Run | None:
    """Return oneDNN's reorder, or None if it has none that is guaranteed to give the same bytes.

    Only float32 is supported, because oneDNN may convert other types through float32.
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
    """Return the available engines by name; a single one if no measurement is needed.

    Args:
        source: memory layout of source arrays.
        destination: memory layout of destination arrays.
        scales: scales of a quantization, if any.
        threads: number of threads.
        wanted: one engine, or ``"auto"`` for all that support the reorder.

    Raises:
        FormatError: the wanted engine does not support the reorder.
    """
    if wanted not in get_args(Engine):
        raise FormatError.at(
            "reorder", expected=f"one of the engines {', '.join(get_args(Engine))}", found=wanted
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
            raise FormatError.at(
                "reorder",
                expected="dense float32 tensors in formats that oneDNN has",
                found=f"{source.desc.summary} to {destination.desc.summary}",
                fix="use engine='auto'",
            )
    return found
