"""Times of kernels that take turns in short windows.

The speed of a processor that other virtual machines share changes every few milliseconds, in both
directions, and the system's count of stolen time hardly tells. On such a machine with two
processors, the times of a convolution in windows of 4 ms had a standard deviation of 21%: 71% of
them were close to the median, 11% were 26% shorter, and 18% were 40% longer, while 0.3% of the time
counted as stolen. Medians of eight windows with other kernels in between have one of 4 to 5%. The
least of two in a row, which would suit other work that only ever adds time, has one of 16 to 17%,
and an expectation that depends on the number of windows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from math import ceil
from typing import TYPE_CHECKING

from stridewise.classes import dataclass
from stridewise.runtime.tuning.timing import median, undisturbed

if TYPE_CHECKING:
    from stridewise import _core

__all__ = ["WINDOWS", "Entrant", "take_turns"]

WINDOWS, _LEAST = 8, 3
"""How many windows count, and how many of them at least where a run takes longer than a window."""
_TURNS = 2 * WINDOWS
"""How often an implementation runs, at most, while other work disturbs that."""
_RIVAL = 2.0
"""Implementations slower than the fastest one of a kernel by this factor do not run again. Equal
ones differ by it if one had a fast window and the other one a slow one."""
_MIN_RUNS, _MAX_RUNS = 1, 25


@dataclass(slots=True, eq=False)
class Entrant:
    """One implementation of a kernel.

    Attributes:
        name: of the implementation.
        measurement: runs it.
        window_ns: how long a window is; a run that takes longer is one.
        is_slow: whether a single run is enough, as for a naive loop.
        times: of windows that nothing disturbed, in nanoseconds.
        disturbed: of the others.
    """

    name: str
    measurement: _core.Measurement
    window_ns: int
    is_slow: bool
    times: list[float] = field(default_factory=list[float])
    disturbed: list[float] = field(default_factory=list[float])

    @property
    def cost_ns(self) -> float:
        """The median of the windows; if all of them were disturbed, the least."""
        return median(self.times) if self.times else min(self.disturbed)

    @property
    def is_done(self) -> bool:
        """Whether it ran often enough: a long run covers slow and fast phases by itself."""
        if not self.times:
            return False
        length = max(1, ceil(self.times[0] / self.window_ns))
        return self.is_slow or len(self.times) >= max(_LEAST, ceil(WINDOWS / length))

    def run(self, is_disturbed: Callable[[float], bool]) -> None:
        """Run it for a window.

        Args:
            is_disturbed: tells whether threads waited for too large a part of the time.
        """
        samples, waited = self.measurement.run(
            min_runs=1 if self.is_slow else _MIN_RUNS,
            max_runs=1 if self.is_slow else _MAX_RUNS,
            budget_ns=self.window_ns,
        )
        (self.disturbed if is_disturbed(waited) else self.times).append(undisturbed(samples))


def take_turns(
    kernels: Sequence[Sequence[Entrant]],
    is_disturbed: Callable[[float], bool],
    is_over: Callable[[], bool],
) -> None:
    """Run the implementations of kernels in turn, each of which ran once, until all are done.

    Args:
        kernels: the implementations of each.
        is_disturbed: as for :meth:`Entrant.run`.
        is_over: tells whether the time is over.
    """
    for _ in range(1, _TURNS):
        waiting = [one for rivals in kernels for one in _unfinished(rivals)]
        if not waiting:
            return
        for entrant in waiting:
            if is_over():
                return
            entrant.run(is_disturbed)


def _unfinished(rivals: Sequence[Entrant]) -> list[Entrant]:
    least = min((one.cost_ns for one in rivals), default=0.0)
    # A disturbed measurement shows nothing for certain, so all implementations compete.
    certain = all(one.times for one in rivals)
    return [
        one for one in rivals if not one.is_done and not (certain and one.cost_ns > _RIVAL * least)
    ]
