"""Times of the steps of a compiled model, and its memory."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from stridewise.classes import dataclass

__all__ = ["Memory", "Profile", "ProfileRow"]

_NANO = 1e3
_TRACK = {"pid": 1, "tid": 1}


@dataclass(frozen=True, slots=True)
class ProfileRow:
    """The times of one step in ns, predicted and measured.

    Attributes:
        node: the node or tensor of the step.
        kernel: the kernel and its implementation, ``"copy"`` or ``"fill"``.
        predicted_ns: predicted time.
        measured_ns: measured time, the median over the runs.
        formats: storage of inputs and outputs, ``"NCHW -> NHWC"``; "" for fills and copies.
    """

    node: str
    kernel: str
    predicted_ns: float
    measured_ns: float
    formats: str = ""


@dataclass(frozen=True, slots=True)
class Profile:
    """Times of every step, medians over several runs."""

    rows: tuple[ProfileRow, ...]
    runs: int

    @property
    def predicted_ns(self) -> float:
        """Predicted time of all steps."""
        return sum(row.predicted_ns for row in self.rows)

    @property
    def measured_ns(self) -> float:
        """Measured time of all steps."""
        return sum(row.measured_ns for row in self.rows)

    def to_chrome_trace(self) -> str:
        """Return the steps, end to end, as JSON that Perfetto and ``chrome://tracing`` open."""
        return _chrome_trace(self.rows, self.runs)

    def __str__(self) -> str:
        lines = [
            f"{row.measured_ns / 1e3:9.1f} us  predicted {row.predicted_ns / 1e3:9.1f} us  "
            f"{row.kernel:<36} {row.node}"
            for row in self.rows
        ]
        error = self.measured_ns / self.predicted_ns - 1 if self.predicted_ns else 0.0
        lines.append(
            f"{self.measured_ns / 1e3:9.1f} us  predicted {self.predicted_ns / 1e3:9.1f} us  "
            f"in total, {error:+.1%}, medians of {self.runs} runs"
        )
        return "\n".join(lines) + "\n"


@dataclass(frozen=True, slots=True)
class Memory:
    """Memory of a compiled model in bytes.

    Attributes:
        arena: activations and scratchpads of one run, including all parts that run at the same
            time; each stream has its own arena.
        arena_lower_bound: lower bound for any arrangement of the same tensors.
        packed_weights: constants in the formats of kernels, including those of other programs.
        winograd_weights: the part of these that is transformed for Winograd kernels.
        shared_weights: the part of these that programs of several shapes share.
        originals: other weights that the model keeps in memory; weights that are still in their
            file do not count.
        streams: largest number of arenas, one for each simultaneous request.
        mutable: parameters and states that change between runs, in all forms that kernels read.
    """

    arena: int
    arena_lower_bound: int
    packed_weights: int
    winograd_weights: int = 0
    shared_weights: int = 0
    originals: int = 0
    streams: int = 1
    mutable: int = 0

    @property
    def arenas(self) -> int:
        """The arenas of all streams."""
        return self.arena * self.streams

    @property
    def used(self) -> int:
        """What runs use: arenas, packed constants, parameters and states."""
        return self.arenas + self.packed_weights + self.mutable


def _chrome_trace(steps: Iterable[ProfileRow], runs: int) -> str:
    """Return steps as a trace of one track, each beginning where the one before it ends.

    The format is Google's "Trace Event Format": complete events (``"ph": "X"``) with ``ts`` and
    ``dur`` in microseconds, and metadata events (``"ph": "M"``) that name the track.

    Args:
        steps: in order of execution; their times are medians, so the track shows a typical run
            and not one that took place.
        runs: how many runs the medians are of.

    Returns:
        A document in JSON.
    """
    events: list[dict[str, Any]] = [
        {"name": "process_name", "ph": "M", **_TRACK, "args": {"name": "stridewise"}},
        {"name": "thread_name", "ph": "M", **_TRACK, "args": {"name": f"medians of {runs} runs"}},
    ]
    begin = 0.0
    for step in steps:
        events.append(
            {
                "name": step.node,
                "cat": step.kernel.partition(" ")[0],
                "ph": "X",
                "ts": begin / _NANO,
                "dur": step.measured_ns / _NANO,
                **_TRACK,
                "args": {
                    "kernel": step.kernel,
                    "formats": step.formats,
                    "predicted_us": step.predicted_ns / _NANO,
                },
            }
        )
        begin += step.measured_ns
    return json.dumps({"traceEvents": events, "displayTimeUnit": "ms"}, indent=1)
