"""Pictures of formats as SVG: a small tensor, and its elements in memory order.

The color of a cell shows its channel, or its index along the axis that is nearest to one. The upper
part shows the logical tensor, one plane per channel. The lower part shows memory, line by line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from html import escape
from itertools import product
from math import prod

from stridewise.errors import FormatError
from stridewise.formats import algebra
from stridewise.formats.data import Block, Pitch
from stridewise.formats.format import Format

__all__ = ["LARGEST", "svg"]

LARGEST = 4096
"""Largest number of stored elements in a picture."""

# Paul Tol's "light" scheme: suited for dark text and distinguishable for color-blind readers.
# https://personal.sron.nl/~pault/
_COLORS = (
    *("#77aadd", "#ee8866", "#eedd88", "#ffaabb"),
    *("#99ddff", "#44bb99", "#bbcc33", "#aaaa00"),
)
_WIDTH = 900
_EDGE = 22
_GUTTER = 132
_ROOM = _WIDTH - 2 * _EDGE - _GUTTER
_CELL = 40
_READABLE = 26
_LINES = 24
_LONGEST_LINE = 72
_PLANE_CELL = 24
_GAPS = (3, 4, 5, 6)
_TALLEST = 1200

_INK, _FAINT, _PAPER, _FRAME = "#1f2328", "#656d76", "#f7f7f4", "#d5d5cf"
_SANS = "ui-sans-serif, system-ui, 'Segoe UI', Helvetica, Arial, sans-serif"
_UNPRINTABLE = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


# --- elements of SVG ------------------------------------------------------------------------------


def _clean(text: str) -> str:
    """Return text without the characters that XML does not allow."""
    return escape(_UNPRINTABLE.sub("\ufffd", text))


def _number(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")


def _rect(x: float, y: float, width: float, height: float, look: str) -> str:
    at = f'x="{_number(x)}" y="{_number(y)}"'
    return f'<rect {at} width="{_number(width)}" height="{_number(height)}" {look}/>'


def _text(
    x: float, y: float, text: str, size: float = 12, *, look: str = "", end: str = "start"
) -> str:
    anchor = "" if end == "start" else f' text-anchor="{end}"'
    size_, look = _number(size), f" {look}" if look else ""
    return (
        f'<text x="{_number(x)}" y="{_number(y)}" font-size="{size_}"{anchor}{look}>'
        f"{_clean(text)}</text>"
    )


def _cut(text: str, width: float, size: float) -> str:
    """Cut a text to a width in pixels, estimated from the width of an average letter."""
    count = int(width / (0.56 * size))
    return text if len(text) <= count else text[: max(count - 1, 0)] + "\u2026"


_FAINTLY = f'fill="{_FAINT}"'
_PADDING = f'fill="url(#padding)" stroke="{_FRAME}" stroke-width="0.5"'


# --- what is drawn --------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Subject:
    """A format with a shape, and the labels of its axes."""

    fmt: Format
    shape: tuple[int, ...]
    letters: Mapping[str, str]

    @cached_property
    def extents(self) -> dict[str, int]:
        return dict(zip(self.fmt.axes, self.shape, strict=True))

    @cached_property
    def size(self) -> int:
        return algebra.element_count(self.fmt, self.shape)

    @cached_property
    def loops(self) -> tuple[algebra.Loop, ...]:
        return algebra.loops(self.fmt, self.shape)

    @property
    def channels(self) -> str | None:
        """The axis that determines the colors of cells."""
        axes = self.fmt.axes
        usual = (axis for axis in ("C", "I", "b") if axis in axes)
        return next(usual, axes[-1] if axes else None)

    @property
    def plane(self) -> tuple[str, ...]:
        """The one or two axes of the planes that show the tensor."""
        axes = self.fmt.axes
        if axes and self.channels == axes[-1]:
            return axes[-2:]
        return tuple(axis for axis in axes[1:] if axis != self.channels)[-2:]

    def letter(self, axis: str) -> str:
        return self.letters.get(axis, axis.lower())

    def look(self, index: Mapping[str, int]) -> str:
        """Return the SVG attributes of the cell of an element."""
        channel = index[self.channels] if self.channels is not None else 0
        again = ' fill-opacity="0.5"' if channel // len(_COLORS) % 2 else ""
        return f'fill="{_COLORS[channel % len(_COLORS)]}"{again}'

    def said(self, index: Mapping[str, int]) -> str:
        return " ".join(f"{self.letter(axis)}={at}" for axis, at in index.items())

    @property
    def others(self) -> tuple[str, ...]:
        """The axes in the second line of a label: all that vary, except channels."""
        return tuple(a for a in self.fmt.axes if a != self.channels and self.extents[a] > 1)

    def walk(self) -> list[str]:
        """Return a label per loop: ``c`` for the outer part of an axis, ``16c`` for a block."""
        return [
            f"{item.size}{self.letter(item.axis)}" if isinstance(item, Block) else self.letter(item)
            for item in self.fmt.digits
            if not isinstance(item, Pitch)
        ]


# --- the logical tensor ---------------------------------------------------------------------------


def _planes(subject: _Subject, top: float) -> tuple[list[str], float]:
    """Draw one plane per channel, and one row of planes per index of the remaining axes."""
    extents, plane, channels = subject.extents, subject.plane, subject.channels
    rows, columns = ([1, 1, *(extents[axis] for axis in plane)])[-2:]
    along = extents[channels] if channels is not None and channels not in plane else 1
    outer = [axis for axis in subject.fmt.axes if axis not in (*plane, channels)]
    fitting = min((_ROOM / along - 10) / columns, 560 / rows / prod(extents[a] for a in outer))
    cell = min(_PLANE_CELL, max(fitting, 5.0))
    in_a_row = max(int(_ROOM / (columns * cell + 10)), 1)
    lines = -(-along // in_a_row) * prod(extents[axis] for axis in outer)
    if columns * cell > _ROOM or lines * (rows * cell + 8) > _TALLEST:
        note = f"planes of {rows} x {columns} elements, too many or too wide to draw"
        return [_text(_EDGE, top + 14, note, look=_FAINTLY)], top + 26
    parts: list[str] = []
    for around in product(*(range(extents[axis]) for axis in outer)):
        fixed = dict(zip(outer, around, strict=True))
        parts.append(_text(_EDGE, top + cell, subject.said(fixed), 11, look=_FAINTLY))
        for channel in range(along):
            left = _EDGE + _GUTTER + channel % in_a_row * (columns * cell + 10)
            y = top + channel // in_a_row * (rows * cell + 8)
            here = {**fixed, **({channels: channel} if channels and along > 1 else {})}
            parts += _plane(subject, here, (rows, columns), (left, y, cell))
        top += -(-along // in_a_row) * (rows * cell + 8)
    return parts, top


def _plane(
    subject: _Subject,
    fixed: Mapping[str, int],
    size: tuple[int, int],
    at: tuple[float, float, float],
) -> Iterator[str]:
    left, top, cell = at
    for row, column in product(range(size[0]), range(size[1])):
        inside = dict(zip(reversed(subject.plane), (column, row), strict=False))
        index = {subject.channels or "": 0, **fixed, **inside}
        x, y = left + column * cell, top + row * cell
        yield _rect(x, y, cell - 1, cell - 1, subject.look(index))
        label = ",".join(str(inside[axis]) for axis in subject.plane)
        if cell == _PLANE_CELL and len(label) < 5:
            yield _text(x + cell / 2 - 0.5, y + cell / 2 + 3, label, 9, end="middle")


# --- memory ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Layout:
    """Positions of memory cells: lines of ``line`` cells, with gaps between digits."""

    line: int
    cell: float
    breaks: tuple[int, ...]
    """Distances between gaps in elements, smallest first."""

    def x(self, position: int) -> float:
        gaps = zip(self.breaks, _GAPS, strict=False)
        return position * self.cell + sum(position // every * gap for every, gap in gaps)

    @property
    def pitch(self) -> float:
        return self.cell + (6 if self.cell >= _READABLE else 4)


def _ends(subject: _Subject) -> list[int]:
    """Return the numbers of elements after which digits end, smallest first."""
    return sorted({subject.size, *(loop.stride for loop in subject.loops)} - {1})


def _layout(subject: _Subject) -> _Layout:
    """Break memory between digits, into labeled cells if there are few lines, else into long lines.

    Innermost digits that are longer than a line are broken at the line width.
    """
    size, ends = subject.size, _ends(subject)
    fitting = [end for end in ends if end * (_READABLE + 2) <= _ROOM]
    long = [end for end in ends if end <= _LONGEST_LINE]
    line = fitting[-1] if fitting and size // fitting[-1] <= _LINES else (long or [1])[-1]
    if size // line > LARGEST // 64:
        line = min(size, 64)
    breaks = tuple(end for end in ends if end < line and line % end == 0)[: len(_GAPS)]
    gaps = _Layout(line, 0, breaks).x(line - 1)
    return _Layout(line, min(_CELL, (_ROOM - gaps) / line), breaks)


def _lines(subject: _Subject, line: int) -> list[tuple[int, int]]:
    """Return the start and end of each line of memory; every outer digit starts a line."""
    found = [(0, subject.size)]
    for end in sorted({line, *(end for end in _ends(subject) if end > line)}, reverse=True):
        found = [(a, min(a + end, stop)) for start, stop in found for a in range(start, stop, end)]
    return found


def _line_start(subject: _Subject, start: int, line: int) -> str:
    """Return the indices that are fixed along a line of memory: ``n1 c4..7``."""
    found: dict[str, tuple[int, int]] = {}
    rest = start
    for axis, extent, step, stride in subject.loops:
        if stride < line:
            break
        digit, rest = divmod(rest, stride)
        if digit >= extent:
            return "a gap"
        value, least = found.get(axis, (0, step))
        if extent > 1:
            found[axis] = (value + digit * step, min(step, least))
    return " ".join(
        f"{subject.letter(axis)}{value}" + (f"..{value + step - 1}" if step > 1 else "")
        for axis, (value, step) in found.items()
    )


def _cell(subject: _Subject, offset: int, at: tuple[float, float, float]) -> Iterator[str]:
    x, y, cell = at
    side = cell - (1.5 if cell > 8 else 0.5)
    rounded = ' rx="3"' if cell >= _READABLE else ""
    found = algebra.index(subject.fmt, offset, subject.shape)
    if found is None:
        yield _rect(x, y, side, side, _PADDING + rounded)
        return
    index = dict(zip(subject.fmt.axes, found, strict=True))
    yield _rect(x, y, side, side, subject.look(index) + rounded)
    if cell < _READABLE or subject.channels is None:
        return
    upper = f"{subject.letter(subject.channels)}{index[subject.channels]}"
    lower = ",".join(str(index[axis]) for axis in subject.others)
    middle = x + side / 2
    small = min(9.5, (side - 4) / (0.6 * max(len(lower), 1)))
    if small < 6:
        lower = ""
    size = min(12, (side - 4) / (0.6 * len(upper)))
    yield _text(middle, y + side * (0.46 if lower else 0.62), upper, size, end="middle")
    if lower:
        yield _text(middle, y + side * 0.8, lower, small, look='opacity="0.75"', end="middle")


def _memory(subject: _Subject, top: float) -> tuple[list[str], float]:
    layout = _layout(subject)
    parts: list[str] = []
    size = 11 if layout.pitch >= 14 else 9
    for start, stop in _lines(subject, layout.line):
        base = top + layout.cell / 2 + 3
        where = _cut(_line_start(subject, start, layout.line), _GUTTER - 46, size)
        parts.append(_text(_EDGE, base, where, size, look=_FAINTLY))
        parts.append(_text(_EDGE + _GUTTER - 12, base, str(start), size, end="end"))
        for offset in range(start, stop):
            x = _EDGE + _GUTTER + layout.x(offset - start)
            parts += _cell(subject, offset, (x, top, layout.cell))
        top += layout.pitch
    return parts, top


# --- texts ----------------------------------------------------------------------------------------


def _heading(subject: _Subject, title: str) -> list[str]:
    stored, elements = subject.size, prod(subject.shape)
    padding = f"{100 * (stored - elements) / stored:.1f} % padding" if stored > elements else ""
    count = "1 element" if elements == 1 else f"{elements} elements"
    facts = [subject.said(subject.extents), count]
    facts += [f"{stored} stored", padding] if padding else ["no padding"]
    room = _WIDTH - 2 * _EDGE
    return [
        _text(_EDGE, 36, _cut(title, room, 18), 18, look='font-weight="600"'),
        _text(_EDGE, 56, _cut(", ".join(filter(None, facts)), room, 12), look=_FAINTLY),
    ]


def _caption(subject: _Subject, top: float) -> list[str]:
    """Describe the order of the memory walk, and the part of it that a line shows."""
    line = _layout(subject).line
    words = list(zip(subject.walk(), subject.loops, strict=True))
    inner = " ".join(word for word, loop in words if loop.stride < line)
    outer = " ".join(word for word, loop in words if loop.stride >= line)
    text = f"outermost to innermost: {outer or '-'} down the lines, then {inner or '-'} along them"
    if line not in _ends(subject):
        text = f"outermost to innermost: {outer} {inner}, lines of {line}"
    if line >= subject.size:
        text = f"outermost to innermost: {inner or '-'}"
    return [
        _text(_EDGE, top, "in memory", 13, look='font-weight="600"'),
        _text(_EDGE + _GUTTER, top, _cut(text, _ROOM, 12), look=_FAINTLY),
    ]


def _legend(subject: _Subject, top: float) -> list[str]:
    parts: list[str] = []
    channels = subject.channels
    x = float(_EDGE)
    count = subject.extents[channels] if channels is not None else 0
    shown = [(f"{subject.letter(channels or '')}={at}", at) for at in range(min(count, 8))]
    for label, at in shown:
        parts.append(_rect(x, top, 13, 13, subject.look({channels or "": at}) + ' rx="2"'))
        parts.append(_text(x + 18, top + 11, label, 11))
        x += 30 + 6.5 * len(label)
    if count > len(shown):
        parts.append(_text(x, top + 11, "\u2026", 11))
        x += 24
    if subject.size > prod(subject.shape):
        parts.append(_rect(x, top, 13, 13, _PADDING + ' rx="2"'))
        parts.append(_text(x + 18, top + 11, "padding", 11))
        x += 78
    if subject.others and channels is not None and _layout(subject).cell >= _READABLE:
        under = ",".join(map(subject.letter, subject.others))
        text = f"in a cell: {subject.letter(channels)}, under it {under}; at the left: the offset"
        parts.append(_text(x + 6, top + 11, _cut(text, _WIDTH - _EDGE - x, 11), 11, look=_FAINTLY))
    return parts


def _description(subject: _Subject) -> str:
    return (
        f"Memory format {subject.fmt.text}. {subject.said(subject.extents)}: "
        f"{prod(subject.shape)} elements, {subject.size} stored. Cells of one color share "
        f"{subject.letter(subject.channels or '-')}; hatched cells are padding."
    )


_PATTERN = (
    '<defs><pattern id="padding" width="6" height="6" patternUnits="userSpaceOnUse" '
    'patternTransform="rotate(45)"><rect width="6" height="6" fill="#e9e9e5"/>'
    '<rect width="2" height="6" fill="#c9c9c3"/></pattern></defs>'
)


def _checked(fmt: Format, shape: Sequence[int]) -> None:
    stored = algebra.element_count(fmt, shape)
    if not 0 < stored <= LARGEST:
        raise FormatError.at(
            f"picture of {fmt}",
            expected=f"a shape of 1 to {LARGEST} stored elements",
            found=f"{tuple(shape)}, which stores {stored}",
            fix="draw a small tensor: the order does not depend on the extents",
        )


def svg(
    fmt: Format,
    shape: Sequence[int],
    *,
    title: str | None = None,
    letters: Mapping[str, str] | None = None,
) -> str:
    """Return a picture of a tensor and of its memory as a complete SVG document.

    Args:
        fmt: the format.
        shape: the canonical shape.
        title: the heading; by default the name of the format.
        letters: labels of axes; by default the axis in lower case.

    Raises:
        FormatError: the format cannot store the shape, or the tensor has no elements or more than
            :data:`LARGEST`.

    >>> from stridewise.formats import parse
    >>> svg(parse("NHWC"), (1, 3, 2, 2)).startswith("<svg xmlns=")
    True
    """
    _checked(fmt, shape)
    subject = _Subject(fmt, tuple(shape), letters or {})
    title = title or fmt.name
    parts = _heading(subject, title)
    parts.append(_text(_EDGE, 88, "the tensor", 13, look='font-weight="600"'))
    plane = ", ".join(map(subject.letter, subject.plane)) or "one element"
    parts.append(_text(_EDGE + _GUTTER, 88, f"in a cell: {plane}", look=_FAINTLY))
    drawn, bottom = _planes(subject, 100)
    parts += [*drawn, *_caption(subject, bottom + 26)]
    drawn, bottom = _memory(subject, bottom + 40)
    parts += [*drawn, *_legend(subject, bottom + 14)]
    height = _number(bottom + 14 + 13 + _EDGE)
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" width="{_WIDTH}" height="{height}" '
        f'viewBox="0 0 {_WIDTH} {height}" font-family="{_SANS}" fill="{_INK}">\n'
        f"<title>{_clean(title)}</title>\n<desc>{_clean(_description(subject))}</desc>\n"
        f'{_PATTERN}\n<rect width="{_WIDTH}" height="{height}" rx="8" fill="{_PAPER}" '
        f'stroke="{_FRAME}"/>\n{body}\n</svg>\n'
    )
