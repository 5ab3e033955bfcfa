"""The losses of a training as a picture."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["loss_curve"]

_WIDTH, _HEIGHT, _MARGIN = 640, 320, 40


def loss_curve(losses: Sequence[float]) -> str:
    """Return an SVG picture: the loss of each step, from 0 to the largest one.

    Args:
        losses: one for each step, at least one.

    >>> loss_curve([2.0, 1.0]).count("<polyline")
    1
    """
    top = max(*losses, 1e-30)
    across = (_WIDTH - 2 * _MARGIN) / max(len(losses) - 1, 1)
    down = (_HEIGHT - 2 * _MARGIN) / top
    bottom = _HEIGHT - _MARGIN
    points = " ".join(
        f"{_MARGIN + step * across:.1f},{bottom - loss * down:.1f}"
        for step, loss in enumerate(losses)
    )
    axes = f"M{_MARGIN} {_MARGIN}V{bottom}H{_WIDTH - _MARGIN}"
    return f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}">
<path d="{axes}" fill="none" stroke="gray"/>
<polyline points="{points}" fill="none" stroke="steelblue" stroke-width="1.5"/>
<g font-family="sans-serif" font-size="12">
<text x="{_MARGIN}" y="{_MARGIN - 8}">loss, up to {top:.4g}</text>
<text x="{_WIDTH - _MARGIN}" y="{bottom + 16}" text-anchor="end">{len(losses)} steps</text>
</g>
</svg>
"""
