"""Where plans and models find what draws them as a page.

The report reads plans, programs and profiles, so it stands above the planner and the runtime, and
neither may import it. What draws is therefore handed in from above, once, by ``api``, which
puts the stages together. ``Plan.to_html`` and ``CompiledModel.report_html`` call what is there.
"""

from __future__ import annotations

from collections.abc import Callable
from html import escape
from typing import Generic, ParamSpec

__all__ = ["Page", "framed"]

P = ParamSpec("P")

_FRAME_HEIGHT = 820


class Page(Generic[P]):
    """A function that returns a page in HTML, to be handed in by a higher layer.

    >>> page: Page[[int]] = Page()
    >>> page.draw_with(lambda number: f"<p>{number}</p>")
    >>> page(3)
    '<p>3</p>'
    """

    def __init__(self) -> None:
        self._draw: Callable[P, str] | None = None

    def draw_with(self, draw: Callable[P, str]) -> None:
        """Use a function from now on."""
        self._draw = draw

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> str:
        """Return the page of these arguments."""
        if self._draw is None:
            raise AssertionError("nothing was handed in; an error in our own code")
        return self._draw(*args, **kwargs)


def framed(page: str) -> str:
    """Return a page as a frame of its own inside another page, where it can reach nothing.

    Notebooks show this: styles stay apart, and the sandbox lets scripts touch the frame alone.
    """
    source = escape(page, quote=True)
    return (
        f'<iframe title="Stridewise report" sandbox="allow-scripts" srcdoc="{source}" '
        f'width="100%" height="{_FRAME_HEIGHT}" style="border: 0"></iframe>'
    )
