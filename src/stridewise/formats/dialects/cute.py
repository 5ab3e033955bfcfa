"""CuTe's layouts, ``shape:stride``.

Source: ``media/docs/cpp/cute/01_layout.md`` of NVIDIA/cutlass at 7107b05. A mode may be a tuple,
whose first part is the innermost. Extents are fixed. The axes of two modes are M and N, those of
any other number of modes a, b, c, ... Strides may leave gaps but must not overlap.
"""

from __future__ import annotations

import re

from stridewise.errors import FormatError
from stridewise.formats.data import Block, Digit, FormatData, Pitch, nd
from stridewise.formats.dialects.dialect import Dialect, Parameters, refuse

__all__ = ["DIALECT"]

_LAYOUT = re.compile(r"(?P<shape>[\d_(), ]+):(?P<strides>[\d_(), ]+)")
_TOKEN = re.compile(r"\d{1,18}|[(),]")
_SWIZZLE = "Swizzle<B,M,S> o layout"
_NAMES = (
    *("(2,4):(4,1)", "(2,4):(1,2)", "(2,(2,2)):(4,(2,1))", "(2,(2,2)):(1,(2,4))"),
    _SWIZZLE,
)

_Tree = int | list["_Tree"]


def _tree(text: str) -> _Tree | None:
    """Parse a nested tuple of numbers; None if the text is not one."""
    stack: list[list[_Tree]] = [[]]
    for token in _TOKEN.findall(text.replace("_", "")):
        if token == "(":
            stack.append([])
        elif token == ")":
            if len(stack) < 2:
                return None
            inner = stack.pop()
            stack[-1].append(inner)
        elif token != ",":
            stack[-1].append(int(token))
    return stack[0][0] if len(stack) == 1 and len(stack[0]) == 1 else None


def _leaves(shape: _Tree, strides: _Tree) -> list[tuple[int, int]] | None:
    """Return (extent, stride) of the parts of a mode; None if the tuples have different nesting."""
    if isinstance(shape, int):
        return [(shape, strides)] if isinstance(strides, int) else None
    if isinstance(strides, int) or len(shape) != len(strides):
        return None
    found: list[tuple[int, int]] = []
    for part, stride in zip(shape, strides, strict=True):
        inner = _leaves(part, stride)
        if inner is None:
            return None
        found += inner
    return found


def _blocks(text: str, axes: tuple[str, ...], modes: list[list[tuple[int, int]]]) -> FormatData:
    parts: list[tuple[int, Block]] = []
    for axis, mode in zip(axes, modes, strict=True):
        step = 1
        for extent, stride in mode:
            if extent > 1:
                parts.append((stride, Block(axis, extent, step)))
            step *= extent
        if step < 2:
            raise refuse("CuTe", text, "a mode of fewer than 2 elements")
    digits: list[Digit] = []
    size = 1
    for stride, block in sorted(parts, key=lambda part: part[0]):
        if stride < size:
            raise refuse("CuTe", text, "strides that overlap")
        if stride > size:
            digits.append(Pitch(stride))
        digits.append(block)
        size = stride * block.size
    return FormatData(axes, tuple(reversed(digits))).normal()


def _parse(text: str, parameters: Parameters) -> FormatData | None:
    del parameters
    if re.fullmatch(r"Swizzle<[\w, ]*> ?(o|\u2218).*", text):
        raise refuse("CuTe", text, "exclusive or of address bits, which no digits express")
    match = _LAYOUT.fullmatch(text)
    if match is None:
        return None
    shape, strides = _tree(match["shape"]), _tree(match["strides"])
    if shape is None or strides is None:
        return None
    modes = [shape] if isinstance(shape, int) else shape
    steps = [strides] if isinstance(strides, int) else strides
    if len(modes) != len(steps) or isinstance(shape, int) != isinstance(strides, int):
        raise refuse("CuTe", text, "a shape and strides of different nesting")
    leaves = [_leaves(mode, step) for mode, step in zip(modes, steps, strict=True)]
    known = [mode for mode in leaves if mode is not None]
    if len(known) != len(leaves):
        raise refuse("CuTe", text, "a shape and strides of different nesting")
    return _blocks(text, ("M", "N") if len(known) == 2 else nd(len(known)).axes, known)


def _written(mode: list[tuple[int, int, int]], field: int) -> str:
    parts = [str(part[field]) for part in sorted(mode)]
    return parts[0] if len(parts) == 1 else f"({','.join(parts)})"


def _spell(fmt: FormatData, parameters: Parameters) -> str | None:
    """Return the layout of a format whose extents are all fixed."""
    fmt = fmt.normal()
    if fmt.order or fmt.steps or fmt.pads or not fmt.axes:
        return None
    modes: dict[str, list[tuple[int, int, int]]] = {axis: [] for axis in fmt.axes}
    size = 1
    blocks = iter(reversed(fmt.blocks))
    for item in reversed(fmt.digits):
        if isinstance(item, Pitch):
            size = -(-size // item.multiple) * item.multiple
            continue
        block = next(blocks)
        modes[block.axis].append((block.step or 1, block.size, size))
        size *= block.size
    shape, strides = (
        ",".join(_written(mode, field) for mode in modes.values()) for field in (1, 2)
    )
    name = f"({shape}):({strides})" if fmt.rank > 1 else f"{shape}:{strides}"
    try:
        return name if _parse(name, parameters) == fmt else None
    except FormatError:
        return None


DIALECT = Dialect("cute", "CuTe", _parse, lambda: _NAMES, _spell, example="(2,4):(4,1)")
