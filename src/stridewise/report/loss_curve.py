"""Curves as pictures: the losses of a training, and time against memory."""

from __future__ import annotations

from collections.abc import Sequence
from xml.sax.saxutils import escape

__all__ = ["curve", "loss_curve"]

_WIDTH, _HEIGHT, _MARGIN = 640, 320, 40

Dot = tuple[float, float]


def loss_curve(losses: Sequence[float]) -> str:
    """Return an SVG picture: the loss of each step, from 0 to the largest one.

    Args:
        losses: one for each step, at least one.

    >>> loss_curve([2.0, 1.0]).count("<polyline")
    1
    """
    top = max(*losses, 1e-30)
    dots = [(float(step), loss) for step, loss in enumerate(losses)]
    return curve(dots, f"loss, up to {top:.4g}", f"{len(losses)} steps", low=0.0)


def curve(
    points: Sequence[Dot],
    title: str,
    axis: str,
    *,
    low: float | None = None,
    mark: Dot | None = None,
    dots: bool = False,
) -> str:
    """Return an SVG picture of points that a line joins.

    Args:
        points: across and up, at least one.
        title: text above.
        axis: text below.
        low: the value at the bottom; by default the least one.
        mark: a point with a circle.
        dots: whether each point has a dot.
    """
    left, right = min(x for x, _ in points), max(x for x, _ in points)
    bottom = min(y for _, y in points) if low is None else low
    across = (_WIDTH - 2 * _MARGIN) / ((right - left) or 1.0)
    up = (_HEIGHT - 2 * _MARGIN) / ((max(y for _, y in points) - bottom) or 1e-30)

    def place(point: Dot) -> Dot:
        x, y = point
        return _MARGIN + (x - left) * across, _HEIGHT - _MARGIN - (y - bottom) * up

    placed = list(map(place, points))
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in placed)
    circles = [(x, y, 2.5, "steelblue") for x, y in placed] if dots else []
    circles += [(*place(mark), 6.0, "none")] if mark is not None else []
    drawn = "\n".join(
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{r}" fill="{fill}" stroke="steelblue"/>'
        for x, y, r, fill in circles
    )
    axes = f"M{_MARGIN} {_MARGIN}V{_HEIGHT - _MARGIN}H{_WIDTH - _MARGIN}"
    below = _HEIGHT - _MARGIN + 16
    return f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}">
<path d="{axes}" fill="none" stroke="gray"/>
<polyline points="{line}" fill="none" stroke="steelblue" stroke-width="1.5"/>
{drawn}
<g font-family="sans-serif" font-size="12" fill="currentColor">
<text x="{_MARGIN}" y="{_MARGIN - 8}">{escape(title)}</text>
<text x="{_WIDTH - _MARGIN}" y="{below}" text-anchor="end">{escape(axis)}</text>
</g>
</svg>
"""
