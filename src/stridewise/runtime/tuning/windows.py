"""Times of kernels that take turns in short windows.

The speed of a processor that other virtual machines share changes every few milliseconds, in both
directions, and the system's count of stolen time hardly tells. On such a machine with two
processors, the times of a convolution in windows of 4 ms had a standard deviation of 21%: 71% of
them were close to the median, 11% were 26% shorter, and 18% were 40% longer, while 0.3% of the time
counted as stolen. Medians of eight windows with other kernels in between have one of 4 to 5%. The
least of two in a row, which would suit other work that only ever adds time, has one of 16 to 17%,
and an expectation that depends on the number of windows.

Implementations of a kernel run one after the other, so most phases are the same for all of them in
a turn. The ratio of their times is therefore the median of the ratios in each turn. On Emerald
Rapids two kernels with AMX took 1.3 ms each in some phases and 4 ms in others, which lasted for a
second or so; the ratio of two medians told which one had met more of the slow phases.
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

__all__ = ["WINDOWS", "Entrant", "paired_costs", "take_turns"]

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
        windows: how many count.
        is_slow: whether a single run is enough, as for a naive loop.
        times: of windows that nothing disturbed, in nanoseconds.
        turns: in which turn each of these was.
        disturbed: of the others.
    """

    name: str
    measurement: _core.Measurement
    window_ns: int
    windows: int
    is_slow: bool
    times: list[float] = field(default_factory=list[float])
    turns: list[int] = field(default_factory=list[int])
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
        return self.is_slow or len(self.times) >= max(_LEAST, ceil(self.windows / length))

    def run(self, is_disturbed: Callable[[float], bool], turn: int = 0) -> None:
        """Run it for a window.

        Args:
            is_disturbed: tells whether threads waited for too large a part of the time.
            turn: the number of the turn.
        """
        samples, waited = self.measurement.run(
            min_runs=1 if self.is_slow else _MIN_RUNS,
            max_runs=1 if self.is_slow else _MAX_RUNS,
            budget_ns=self.window_ns,
        )
        if is_disturbed(waited):
            self.disturbed.append(undisturbed(samples))
        else:
            self.times.append(undisturbed(samples))
            self.turns.append(turn)


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
    for turn in range(1, _TURNS):
        waiting = [one for rivals in kernels for one in _unfinished(rivals)]
        if not waiting:
            return
        for entrant in waiting:
            if is_over():
                return
            entrant.run(is_disturbed, turn)


def _unfinished(rivals: Sequence[Entrant]) -> list[Entrant]:
    least = min((one.cost_ns for one in rivals), default=0.0)
    # A disturbed measurement shows nothing for certain, so all implementations compete.
    certain = all(one.times for one in rivals)
    return [
        one for one in rivals if not one.is_done and not (certain and one.cost_ns > _RIVAL * least)
    ]


def paired_costs(rivals: Sequence[Entrant]) -> list[float]:
    """Return the cost of each implementation of a kernel in nanoseconds.

    That of the fastest one is the median of its windows. Others have that times the median of the
    ratios in the turns of both, if there are at least three such turns.
    """
    if not rivals:
        return []
    fastest = min(rivals, key=lambda one: one.cost_ns)
    known = dict(zip(fastest.turns, fastest.times, strict=True))
    found: list[float] = []
    for one in rivals:
        pairs = zip(one.turns, one.times, strict=True)
        ratios = [taken / known[turn] for turn, taken in pairs if turn in known]
        paired = len(ratios) >= _LEAST
        found.append(fastest.cost_ns * median(ratios) if paired else one.cost_ns)
    return found
