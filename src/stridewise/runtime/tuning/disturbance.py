"""How much other work on the machine disturbs measurements.

For kernels that are timed alone, the core compares the processor time of each thread with the time
that passed (``native/executor/waits.cpp``), so that time stolen by a hypervisor counts, too. Around
runs of plans, whose threads also sleep, :class:`Stopwatch` reads how long the scheduler let threads
wait that were ready to run. On a quiet machine both are next to nothing. Measurements that were
disturbed are made again, and are not kept for later processes.
"""

from __future__ import annotations

import time
from pathlib import Path

from stridewise.runtime.machine.cpus import usable_cpus

__all__ = ["Stopwatch", "Waits"]

_TASKS = Path("/proc/self/task")
_DISTURBED = 0.05
"""Part of the time for which threads may wait for a processor in an undisturbed measurement. It is
what a tick of the kernel and its own threads take."""


class Waits:
    """Collects how long threads waited for a processor in runs of kernels.

    Only the runs count: while a kernel is prepared, threads of the last one still wait actively for
    work, and the processors are overcommitted without any other process.
    """

    def __init__(self, threads: int) -> None:
        """Begin.

        Args:
            threads: number of threads that work. If there are fewer processors, threads wait for
                each other, and nothing tells how long for other work.
        """
        self._can_tell = threads <= usable_cpus()
        self._most = 0.0

    def add(self, waited: float) -> None:
        """Take note of the waiting time of some runs, relative to the time that they took."""
        self._most = max(self._most, waited)

    @property
    def is_disturbed(self) -> bool:
        """Whether threads waited for a relevant part of the time of any runs."""
        return self._can_tell and self._most > _DISTURBED


class Stopwatch:
    """Tells whether other work disturbed something that takes all processors from its begin on."""

    def __init__(self, threads: int) -> None:
        """Begin; ``threads`` as for :class:`Waits`."""
        self._waits = Waits(threads)
        self._begin, self._waited = time.perf_counter_ns(), self._waited_ns()

    @staticmethod
    def _waited_ns() -> int:
        """Return how long threads waited for a processor; 0 if nothing tells."""
        try:
            return sum(
                int((task / "schedstat").read_text().split()[1]) for task in _TASKS.iterdir()
            )
        except (OSError, ValueError, IndexError):
            return 0

    @property
    def is_disturbed(self) -> bool:
        """Whether threads waited for a processor for a relevant part of the time since then."""
        passed = max(time.perf_counter_ns() - self._begin, 1)
        self._waits.add((self._waited_ns() - self._waited) / passed)
        return self._waits.is_disturbed
