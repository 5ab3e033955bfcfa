"""Charts as SVG: points, lines and rulers in adjacent panels, for light and dark pages.

Series differ in shape and in color. Colors are those of Okabe and Ito
(https://jfly.uni-koeln.de/color/), darker or lighter if the contrast to the background requires it.
A chart has its own background and follows the reader's preference for light or dark.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from math import atan2, degrees, log

__all__ = ["DARK", "LIGHT", "Axis", "Panel", "Ruler", "Series", "Theme", "chart"]

_WIDTH, _HEIGHT = 400, 330
_LEFT, _RIGHT, _TOP, _BOTTOM = 62, 14, 34, 50
_LEGEND_LINE, _LEGEND_CELL = 20, 196
_SANS = "ui-sans-serif, system-ui, 'Segoe UI', Helvetica, Arial, sans-serif"


@dataclass(frozen=True, slots=True)
class Theme:
    """Colors of background, text, rules and series."""

    paper: str
    ink: str
    faint: str
    rule: str
    series: tuple[str, ...]


LIGHT = Theme(
    "#ffffff", "#1f2328", "#59636e", "#dcdcd6",
    ("#0072b2", "#d55e00", "#008060", "#b0558f", "#a67200", "#2a7da8", "#5f5f5f", "#4b3f9e"),
)  # fmt: skip
DARK = Theme(
    "#161a1f", "#e8eaed", "#a2abb5", "#353b43",
    ("#56b4e9", "#ff8a3d", "#2fc39a", "#e39ac6", "#f0c342", "#8fd3ff", "#b8b8b8", "#a89cf5"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Axis:
    """An axis of a panel.

    Attributes:
        label: what it shows, with the unit.
        low: the value at its start.
        high: the value at its end.
        ticks: values with labels.
        logarithmic: whether the scale is logarithmic.
    """

    label: str
    low: float
    high: float
    ticks: tuple[float, ...]
    logarithmic: bool = True

    def at(self, value: float) -> float:
        """Return the position of a value from 0 (start) to 1 (end), clipped to this range."""
        low, high = self.low, self.high
        if self.logarithmic:
            value, low, high = log(max(value, 1e-300)), log(low), log(high)
        return min(max((value - low) / (high - low), 0.0), 1.0)


@dataclass(frozen=True, slots=True)
class Series:
    """Points that belong together.

    Attributes:
        name: for the legend.
        points: x, y and area in square pixels.
        look: index of its color and shape.
        joined: whether a line runs through the points.
    """

    name: str
    points: tuple[tuple[float, float, float], ...]
    look: int
    joined: bool = False


@dataclass(frozen=True, slots=True)
class Ruler:
    """A bound: a line through points, with a name beside the first one."""

    name: str
    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel of a chart."""

    title: str
    x: Axis
    y: Axis
    series: tuple[Series, ...]
    rulers: tuple[Ruler, ...] = ()


def _number(value: float) -> str:
    return f"{value:.1f}".rstrip("0").rstrip(".")


def _text(x: float, y: float, text: str, look: str = "", end: str = "start") -> str:
    anchor = "" if end == "start" else f' text-anchor="{end}"'
    look = f' class="{look}"' if look else ""
    return f'<text x="{_number(x)}" y="{_number(y)}"{anchor}{look}>{escape(text)}</text>'


def _line(points: Iterable[tuple[float, float]], look: str) -> str:
    path = " ".join(f"{_number(x)},{_number(y)}" for x, y in points)
    return f'<polyline points="{path}" class="{look}"/>'


def _along(start: tuple[float, float], end: tuple[float, float], text: str) -> str:
    """Return a small text above a line, with its slope."""
    angle = degrees(atan2(end[1] - start[1], end[0] - start[0]))
    turned = f'transform="rotate({_number(angle)} {_number(start[0])} {_number(start[1])})"'
    label = _text(start[0] + 6, start[1] - 3, text, "n")
    return label.replace("<text ", f"<text {turned} ", 1)


_SHAPES: tuple[tuple[tuple[float, float], ...], ...] = (
    (),
    ((-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)),
    ((0, -1.2), (1.1, 0.8), (-1.1, 0.8)),
    ((0, -1.25), (1.25, 0), (0, 1.25), (-1.25, 0)),
    ((0, 1.2), (1.1, -0.8), (-1.1, -0.8)),
    ((-0.6, -1.1), (0.6, -1.1), (1.2, 0), (0.6, 1.1), (-0.6, 1.1), (-1.2, 0)),
    ((-1.2, -0.45), (1.2, -0.45), (1.2, 0.45), (-1.2, 0.45)),
    ((-0.45, -1.2), (0.45, -1.2), (0.45, 1.2), (-0.45, 1.2)),
)
"""Outlines of the marks of each series, in radii; the first one is a circle."""


def _mark(x: float, y: float, area: float, look: int) -> str:
    radius = (area / 3.1416) ** 0.5
    shape = _SHAPES[look % len(_SHAPES)]
    if not shape:
        at = f'cx="{_number(x)}" cy="{_number(y)}" r="{_number(radius)}"'
        return f'<circle {at} class="m s{look}"/>'
    corners = " ".join(f"{_number(x + radius * a)},{_number(y + radius * b)}" for a, b in shape)
    return f'<polygon points="{corners}" class="m s{look}"/>'


def _tick(value: float) -> str:
    return f"{value:g}"


def _frame(panel: Panel, left: float) -> Iterator[str]:
    """Yield title, rules and numbers of a panel that starts at ``left``."""
    right, bottom = left + _WIDTH - _RIGHT, _HEIGHT - _BOTTOM
    start = left + _LEFT
    yield _text(start, _TOP - 13, panel.title, "h")
    for value in panel.x.ticks:
        x = start + panel.x.at(value) * (right - start)
        yield _line(((x, _TOP), (x, bottom)), "g")
        yield _text(x, bottom + 15, _tick(value), "f", "middle")
    for value in panel.y.ticks:
        y = bottom - panel.y.at(value) * (bottom - _TOP)
        yield _line(((start, y), (right, y)), "g")
        yield _text(start - 6, y + 4, _tick(value), "f", "end")
    yield _text((start + right) / 2, bottom + 34, panel.x.label, "f", "middle")
    x, y = left + 16, (_TOP + bottom) / 2
    turned = f'transform="rotate(-90 {_number(x)} {_number(y)})"'
    label = _text(x, y, panel.y.label, "f", "middle")
    yield label.replace("<text ", f"<text {turned} ", 1)


def _draw(panel: Panel, left: float) -> Iterator[str]:
    """Yield the elements of a panel."""
    yield from _frame(panel, left)
    start, bottom = left + _LEFT, _HEIGHT - _BOTTOM
    width, height = _WIDTH - _LEFT - _RIGHT, bottom - _TOP

    def place(x: float, y: float) -> tuple[float, float]:
        return start + panel.x.at(x) * width, bottom - panel.y.at(y) * height

    for ruler in panel.rulers:
        points = [place(x, y) for x, y in ruler.points]
        yield _line(points, "r")
        yield _along(points[0], points[1], ruler.name)
    for series in panel.series:
        if series.joined:
            yield _line((place(x, y) for x, y, _ in series.points), f"l t{series.look}")
        # Large marks first, so that they do not hide smaller ones.
        for x, y, area in sorted(series.points, key=lambda point: -point[2]):
            yield _mark(*place(x, y), area, series.look)


def _legend(panels: Sequence[Panel], width: float, top: float) -> tuple[list[str], float]:
    """Return the legend of all series by name, and its lower end."""
    names = {series.name: series.look for panel in panels for series in panel.series}
    columns = max(int((width - _LEFT) // _LEGEND_CELL), 1)
    found: list[str] = []
    for index, (name, look) in enumerate(names.items()):
        x = _LEFT + index % columns * _LEGEND_CELL
        y = top + index // columns * _LEGEND_LINE
        found += [_mark(x + 6, y - 4, 60.0, look), _text(x + 18, y, name)]
    rows = -(-len(names) // columns)
    return found, top + rows * _LEGEND_LINE


def _colors(theme: Theme) -> str:
    """Return the style rules that depend on the theme."""
    rules = [
        f".p{{fill:{theme.paper}}}text{{fill:{theme.ink}}}.f,.n{{fill:{theme.faint}}}",
        f".g{{stroke:{theme.rule}}}.r{{stroke:{theme.ink}}}.m{{stroke:{theme.paper}}}",
        *(f".s{i}{{fill:{color}}}.t{i}{{stroke:{color}}}" for i, color in enumerate(theme.series)),
    ]
    return "".join(rules)


def chart(panels: Sequence[Panel], description: str) -> str:
    """Return a chart of one panel or several.

    Args:
        panels: from left to right.
        description: text for readers who cannot see the chart.
    """
    width = len(panels) * _WIDTH
    legend, bottom = _legend(panels, width, _HEIGHT + 10)
    style = (
        f"text{{font:12px {_SANS}}}.h{{font-size:14px;font-weight:600}}.n{{font-size:10.5px}}"
        "polyline{fill:none}.r{stroke-width:1.5;stroke-dasharray:5 3}.l{stroke-width:2}"
        f".m{{stroke-width:.8;fill-opacity:.85}}{_colors(LIGHT)}"
        f"@media (prefers-color-scheme:dark){{{_colors(DARK)}}}"
    )
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {_number(bottom)}" '
        f'width="{width}" height="{_number(bottom)}" role="img">',
        f"<title>{escape(description)}</title><style>{style}</style>",
        f'<rect width="{width}" height="{_number(bottom)}" class="p"/>',
        *(part for index, panel in enumerate(panels) for part in _draw(panel, index * _WIDTH)),
        *legend,
        "</svg>",
    ]
    return "\n".join(parts) + "\n"
