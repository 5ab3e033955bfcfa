"""A profile in the Trace Event Format, which Perfetto and ``chrome://tracing`` open.

The format is Google's "Trace Event Format": complete events (``"ph": "X"``) with ``ts`` and ``dur``
in microseconds, and metadata events (``"ph": "M"``) that name the track.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Protocol

__all__ = ["TracedStep", "chrome_trace"]

_NANO = 1e3
_TRACK = {"pid": 1, "tid": 1}


class TracedStep(Protocol):
    """What a trace needs to know of a step; rows of a profile do."""

    @property
    def node(self) -> str:
        """The node or tensor that it is for."""
        ...

    @property
    def kernel(self) -> str:
        """The primitive and its implementation."""
        ...

    @property
    def formats(self) -> str:
        """Storage of inputs and outputs."""
        ...

    @property
    def predicted_ns(self) -> float:
        """Predicted time."""
        ...

    @property
    def measured_ns(self) -> float:
        """Measured time."""
        ...


def chrome_trace(steps: Iterable[TracedStep], runs: int) -> str:
    """Return steps as a trace of one track, each beginning where the one before it ends.

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
