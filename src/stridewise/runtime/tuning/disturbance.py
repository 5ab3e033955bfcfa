"""How much other work on the machine disturbs measurements.

The scheduler counts for each thread how long it was ready to run and did not, because its processor
ran other work. On a quiet machine that is next to nothing. Measurements that were disturbed are
made again, and are not kept for later processes.
"""

from __future__ import annotations

import time
from pathlib import Path

from stridewise.runtime.machine.cpus import available_cpus

__all__ = ["Stopwatch"]

_TASKS = Path("/proc/self/task")
_DISTURBED = 0.05
"""Part of the time for which threads may wait for a processor in an undisturbed measurement. It is
what a tick of the kernel and its own threads take."""


def _waited_ns() -> int:
    """Return how long the threads of this process waited for a processor; 0 if nothing tells."""
    try:
        return sum(int((task / "schedstat").read_text().split()[1]) for task in _TASKS.iterdir())
    except (OSError, ValueError, IndexError):
        return 0


class Stopwatch:
    """Tells how long something took, and whether other work disturbed it."""

    def __init__(self, threads: int) -> None:
        """Begin.

        Args:
            threads: number of threads that work. If there are fewer processors, threads wait for
                each other, and nothing tells how long for other work.
        """
        self._can_tell = threads <= available_cpus()
        self._begin, self._waited = time.perf_counter_ns(), _waited_ns()

    @property
    def is_disturbed(self) -> bool:
        """Whether threads waited for a processor for a relevant part of the time since then."""
        passed = time.perf_counter_ns() - self._begin
        return self._can_tell and _waited_ns() - self._waited > _DISTURBED * passed
