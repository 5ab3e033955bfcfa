"""The results of ``benchmarks/models.py`` as data and as Markdown tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from math import exp, log
from statistics import median
from typing import Any

import numpy as np

__all__ = ["EXACT", "FAST", "NAMES", "NOISY", "OURS", "PEERS", "Found", "Row", "report", "table"]

FAST, EXACT = "fast", "exact"
OURS = (FAST, EXACT)
PEERS = ("onnxruntime", "openvino", "torch", "inductor")
NAMES = {
    FAST: "ours",
    EXACT: "ours, exact",
    "onnxruntime": "ONNX Runtime",
    "openvino": "OpenVINO",
    "torch": "PyTorch",
    "inductor": "Inductor",
}
NOISY = 0.1
"""Interquartile range relative to the median above which a result is marked as noisy."""


@dataclass(frozen=True, slots=True)
class Found:
    """Results of one runtime for one model.

    Attributes:
        samples_ms: every timed run, in order.
        error: largest difference from ONNX Runtime's results, relative to their largest magnitude.
        load_s: median seconds from the file to a model that can run, by state of the caches.
        peak_nbytes: peak memory of loading and running without the imports; None if it was not
            measured.
        weight_nbytes: the part of it that is packed weights (only Stridewise).
        winograd_nbytes: the part of these that are transformed weights of Winograd kernels.
    """

    samples_ms: tuple[float, ...]
    error: float
    load_s: Mapping[str, float] = field(default_factory=dict)
    peak_nbytes: int | None = None
    weight_nbytes: int | None = None
    winograd_nbytes: int | None = None

    @property
    def median_ms(self) -> float:
        """Median of the samples."""
        return median(self.samples_ms)

    @property
    def spread(self) -> float:
        """Interquartile range relative to the median."""
        low, high = np.percentile(self.samples_ms, (25, 75))
        return float(high - low) / self.median_ms


@dataclass(frozen=True, slots=True)
class Row:
    """One model at one batch size.

    Attributes:
        model: of the zoo.
        batch: images at a time.
        size: pixels a side; None for the default of the model.
        date: of the measurement.
        threads: number of threads of each runtime.
        state: "warm" if every timed run follows a run of the same runtime, else "cold".
        pause_s: pause before each turn in seconds.
        machine: description of the machine.
        versions: versions of all runtimes.
        found: results by runtime.
    """

    model: str
    batch: int
    size: int | None
    date: str
    threads: int
    state: str
    pause_s: float
    machine: str
    versions: Mapping[str, str]
    found: Mapping[str, Found]

    @property
    def key(self) -> str:
        """The key of a row; a later row with the same key replaces it."""
        size = "" if self.size is None else f", {self.size} pixels"
        return f"{self.model}, batch {self.batch}{size}"

    @property
    def best_ms(self) -> float | None:
        """The median of the fastest peer; None if there is none."""
        return min(
            (self.found[name].median_ms for name in PEERS if name in self.found), default=None
        )

    def ratio(self, ours: str) -> float | None:
        """Return the time of the fastest peer relative to that of Stridewise."""
        if self.best_ms is None or ours not in self.found:
            return None
        return self.best_ms / self.found[ours].median_ms

    def as_json(self) -> dict[str, Any]:
        """Return the raw data, with derived values for human readers."""
        document = asdict(self)
        for name, found in self.found.items():
            derived = {"median_ms": found.median_ms, "spread": found.spread}
            document["found"][name] |= derived
        return document | {"best_peer_over": {ours: self.ratio(ours) for ours in OURS}}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Row:
        """Return the row that :meth:`as_json` wrote."""
        own = {key: document[key] for key in cls.__slots__ if key != "found"}
        found = {
            name: Found(**{key: item[key] for key in Found.__slots__})
            for name, item in document["found"].items()
        }
        for name, item in found.items():
            found[name] = Found(**{**asdict(item), "samples_ms": tuple(item.samples_ms)})
        return cls(**own, found=found)


def table(heads: Sequence[str], lines: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines of a Markdown table."""
    lines = list(lines)
    return ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)] + [
        "| " + " | ".join(cells) + " |" for cells in lines
    ]


def _cell(row: Row, name: str, show: Callable[[Found], str | None]) -> str:
    found = row.found.get(name)
    return (show(found) if found else None) or ""


def _time(found: Found) -> str:
    noisy = f" (noisy: {found.spread:.0%})" if found.spread > NOISY else ""
    return f"{found.median_ms:.2f}{noisy}"


def _ratio(value: float | None) -> str:
    return "" if value is None else f"**{value:.2f}**"


def _mean(values: Iterable[float | None]) -> float | None:
    """Return the geometric mean of the known values."""
    known = [value for value in values if value is not None]
    return exp(sum(map(log, known)) / len(known)) if known else None


def _present(rows: Sequence[Row]) -> list[str]:
    return [name for name in NAMES if any(name in row.found for row in rows)]


def _times(rows: Sequence[Row]) -> list[str]:
    present = _present(rows)
    heads = ["model", *(f"{NAMES[name]}, ms" for name in present)]
    heads += ["best peer / ours", "best peer / exact", "error", "error, exact"]
    lines = [
        [
            row.model if row.size is None else f"{row.model} ({row.size} pixels)",
            *(_cell(row, name, _time) for name in present),
            *(_ratio(row.ratio(ours)) for ours in OURS),
            *(_cell(row, ours, lambda found: f"{found.error:.0e}") for ours in OURS),
        ]
        for row in rows
    ]
    means = [_ratio(_mean(row.ratio(ours) for row in rows)) for ours in OURS]
    lines.append(["geometric mean", *[""] * len(present), *means, "", ""])
    return table(heads, lines)


def _loads(rows: Sequence[Row]) -> list[str]:
    columns = [
        (name, how)
        for name in _present(rows)
        for how in dict.fromkeys(
            how for row in rows if name in row.found for how in row.found[name].load_s
        )
        if how != "measuring"
    ]
    heads = ["model", *(f"{NAMES[name]}, {how}" for name, how in columns)]

    def seconds(row: Row, name: str, how: str) -> str:
        found = row.found.get(name)
        return f"{found.load_s[how]:.2f}" if found and how in found.load_s else ""

    return table(heads, ([row.model, *(seconds(row, *c) for c in columns)] for row in rows))


def _mebibytes(nbytes: int | None) -> str:
    return "" if nbytes is None else f"{nbytes / 2**20:.0f}"


def _memory(rows: Sequence[Row]) -> list[str]:
    rows = [row for row in rows if any(f.peak_nbytes is not None for f in row.found.values())]
    present = [
        name
        for name in _present(rows)
        if any(name in row.found and row.found[name].peak_nbytes is not None for row in rows)
    ]
    if not rows:
        return []
    heads = ["model", *(NAMES[name] for name in present)]
    heads += ["packed weights of ours", "of these Winograd's", "packed weights of ours, exact"]
    lines = [
        [
            row.model,
            *(_cell(row, name, lambda found: _mebibytes(found.peak_nbytes)) for name in present),
            _cell(row, FAST, lambda found: _mebibytes(found.weight_nbytes)),
            _cell(row, FAST, lambda found: _mebibytes(found.winograd_nbytes)),
            _cell(row, EXACT, lambda found: _mebibytes(found.weight_nbytes)),
        ]
        for row in rows
    ]
    title = "Peak memory of loading and running, MiB beyond the imports:"
    return ["", title, "", *table(heads, lines)]


def _said(rows: Sequence[Row]) -> list[str]:
    """Return the conditions of the measurements, one line for each distinct set."""
    ways = {
        f"{row.machine}; {row.threads} threads each, {row.state} caches, pauses of "
        f"{1e3 * row.pause_s:.0f} ms, {min(len(f.samples_ms) for f in row.found.values())} runs; "
        f"{', '.join(f'{name} {version}' for name, version in row.versions.items())}."
        for row in rows
    }
    return [f"- {way}" for way in sorted(ways)]


def report(rows: Sequence[Row]) -> str:
    """Return the page: times, ratios, load times and memory, batch by batch."""
    lines = [
        "# Models beside other runtimes",
        "",
        "Made by `benchmarks/models.py`: float32, medians in milliseconds, all in one process and",
        "in turn. Errors are against ONNX Runtime: the greatest difference over its greatest",
        f"magnitude. A figure is noisy where its quartiles are more than {NOISY:.0%} of it apart.",
        "",
        *_said(rows),
    ]
    for batch in sorted({row.batch for row in rows}):
        some = [row for row in rows if row.batch == batch]
        lines += ["", f"## Batch {batch}", "", *_times(some)]
        lines += ["", "Seconds from the file to a model that can run:", "", *_loads(some)]
        lines += _memory(some)
    return "\n".join([*lines, ""])
