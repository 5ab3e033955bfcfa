"""XLA's layouts.

Source: ``docs/tiled_layout.md`` of openxla/xla at 2677f08. ``{1,0:T(8,128)(2,1)}`` lists axes by
number, innermost first, then tiles. A tile applies to the innermost dimensions and replaces them by
its own extents, to which the next tile applies. ``*`` joins a dimension to the next one. A memory
space ``S(1)`` does not change the order. The content of padding is unspecified. XLA has positional
axes only, so they are a, b, c, ...; printing accepts any axes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import dropwhile
from math import prod

from stridewise.errors import FormatError
from stridewise.formats.axes import POSITIONAL
from stridewise.formats.data import Block, Digit, FormatData, Fuse, Pad, Split, nd
from stridewise.formats.dialects.dialect import Dialect, Parameters, first_equal, refuse

__all__ = ["DIALECT"]

_EXTENTS = r"\((?:\d{1,9}|\*)(?:, ?(?:\d{1,9}|\*))*\)"
_LAYOUT = re.compile(
    r"\{(?P<order>(?:\d{1,2}(?:, ?\d{1,2})*)?)"
    rf"(?::(?=[TS])(?:T(?P<tiles>(?:{_EXTENTS})+))?(?:S\(\d+\))?)?\}}"
)
_TILE = re.compile(r"\(([^()]*)\)")
_NAMES = (
    *("{3,2,1,0}", "{1,3,2,0}", "{0,3,2,1}", "{1,0}", "{0,1}"),
    *("{1,0:T(8,128)}", "{0,1:T(8,128)}", "{3,2,1,0:T(8,128)}", "{1,0:T(4,128)}"),
    *("{1,0:T(2,128)}", "{1,0:T(8,128)(2,1)}", "{1,0:T(8,128)(4,1)}", "{1,0:T(32,128)(32,1)}"),
    *("{1,0:T(8,128)(2,1,1,1)}", "{1,0:T(2,2)}", "{1,0:T(2,4)(2,1)}", "{1,0:T(2,4)(2,1,1,1)}"),
    "{4,3,2,1,0:T(*,*,2,*,3)}",
)

_Dimension = tuple[
    str, int, int
]  # axis, extent (0: the outer part of the axis), step in indices of the axis


def _malformed(text: str, why: str) -> FormatError:
    return refuse("XLA", text, why)


def _joined(
    text: str, dims: list[_Dimension], tile: list[str]
) -> tuple[list[_Dimension], list[Fuse]]:
    """Join the dimensions that the first tile marks with ``*``; return them and the fusions."""
    found = dims[: len(dims) - len(tile)]
    fused: list[Fuse] = []
    group: list[str] = []
    for (axis, _, _), extent in zip(dims[len(found) :], tile, strict=True):
        group.append(axis)
        if extent == "*":
            continue
        if len(group) > 1:
            fused.append(Fuse(tuple(group), "".join(group)))
        found.append(("".join(group), 0, 1))
        group = []
    if group:
        raise _malformed(text, "a tile that ends in *")
    return found, fused


def _tiled(text: str, dims: list[_Dimension], tile: Sequence[int]) -> list[_Dimension]:
    outer = dims[: len(dims) - len(tile)]
    inner: list[_Dimension] = []
    for (axis, extent, step), size in zip(dims[len(outer) :], tile, strict=True):
        if size < 1 or extent % size:
            raise _malformed(
                text, f"a tile of {size} in {extent} elements, which does not divide them"
            )
        outer.append((axis, extent // size, step * size))
        inner.append((axis, size, step))
    return outer + inner


def _parse(text: str, parameters: Parameters) -> FormatData | None:
    del parameters
    match = _LAYOUT.fullmatch(text)
    if match is None:
        return None
    order = [int(number) for number in match["order"].split(",")] if match["order"] else []
    if sorted(order) != list(range(len(order))) or len(order) > len(POSITIONAL):
        raise _malformed(text, "axes that are not each of 0, 1, ... once, up to 11")
    dims: list[_Dimension] = [(POSITIONAL[number], 0, 1) for number in reversed(order)]
    fused: list[Fuse] = []
    for position, tile in enumerate(_TILE.findall(match["tiles"] or "")):
        extents = tile.replace(" ", "").split(",")
        if len(extents) > len(dims) or (position and "*" in extents):
            raise _malformed(text, f"a tile ({tile}) of more dimensions than there are to tile")
        if "*" in extents:
            dims, fused = _joined(text, dims, extents)
        dims = _tiled(text, dims, [int(extent) for extent in extents if extent != "*"])
    digits: list[Digit] = []
    for axis, extent, step in dims:
        if not extent:
            digits.append(axis)
        elif extent > 1:
            digits.append(Block(axis, extent, step))
    blocks = [item for item in digits if isinstance(item, Block)]
    pads = tuple(
        Pad(axis, prod(block.size for block in blocks if block.axis == axis), "unspecified")
        for axis in dict.fromkeys(block.axis for block in blocks)
    )
    return FormatData(nd(len(order)).axes, tuple(digits), pads, tuple(fused)).normal()


def _tile(groups: Iterable[list[str]]) -> str:
    """Return the text of a tile without outer extents of 1, which have no effect."""
    extents = [extent for group in dropwhile(["1"].__eq__, groups) for extent in group]
    return f"({','.join(extents)})" if extents else ""


def _spell(fmt: FormatData, parameters: Parameters) -> str | None:
    """Return the layout with up to two tiles: one for padding, one for packing."""
    if fmt.rank > len(POSITIONAL) or any(isinstance(step, Split) for step in fmt.steps):
        return None
    fmt = fmt.renamed(dict(zip(fmt.axes, POSITIONAL, strict=False))).normal()
    parts = {step.into: step.axes for step in fmt.steps if isinstance(step, Fuse)}
    walked = [axis for whole in fmt.order for axis in parts.get(whole, (whole,))]
    order = ",".join(str(POSITIONAL.find(axis)) for axis in reversed(walked))
    packed = {block.axis: block.size for block in fmt.blocks[-1:]}
    first: list[list[str]] = []
    less: list[list[str]] = []
    inner: list[list[str]] = []
    for axis in fmt.order:
        joined, whole = ["*"] * (len(parts.get(axis, "1")) - 1), max(fmt.multiple(axis), 1)
        first.append([*joined, str(whole)])
        less.append([*joined, str(whole // packed.get(axis, 1))])
        inner.append([str(packed.get(axis, 1))])
    tiles = (
        "",
        f":T{_tile(first)}",
        f":T{_tile(first)}{_tile(inner)}",
        f":T{_tile(less)}{_tile([*inner, *[['1']] * len(inner)])}",
    )
    return first_equal(_parse, fmt, parameters, (f"{{{order}{tile}}}" for tile in tiles))


DIALECT = Dialect("xla", "XLA", _parse, lambda: _NAMES, _spell, example="{1,0:T(8,128)}")
