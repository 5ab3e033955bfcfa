"""The results of ``benchmarks/streams.py`` as data and as Markdown tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from math import exp, log
from statistics import median
from typing import Any

import numpy as np
from model_tables import NAMES, NOISY, table

__all__ = ["OURS", "Found", "Row", "contestant", "report"]

OURS = "stridewise"
_NAMES = {**NAMES, OURS: "ours"}


def contestant(runtime: str, streams: int) -> str:
    """Return the name of a runtime with a number of concurrent requests."""
    return f"{runtime} x{streams}"


@dataclass(frozen=True, slots=True)
class Found:
    """Results of one runtime for one model.

    Attributes:
        runtime: Stridewise or the name of a peer.
        streams: number of concurrent requests.
        samples_ms: time of each timed run divided by its number of requests.
        error: largest difference from ONNX Runtime's results, relative to their largest magnitude.
    """

    runtime: str
    streams: int
    samples_ms: tuple[float, ...]
    error: float

    @property
    def per_second(self) -> float:
        """Requests per second, by the median of the samples."""
        return 1e3 / median(self.samples_ms)

    @property
    def spread(self) -> float:
        """Interquartile range relative to the median."""
        low, high = np.percentile(self.samples_ms, (25, 75))
        return float(high - low) / median(self.samples_ms)


@dataclass(frozen=True, slots=True)
class Row:
    """One model.

    Attributes:
        model: of the zoo.
        date: of the measurement.
        threads: number of threads of each runtime, for all concurrent requests.
        requests: number of requests of one timed run.
        pause_s: pause before each turn in seconds.
        machine: description of the machine.
        versions: versions of all runtimes.
        found: results by runtime and number of streams.
    """

    model: str
    date: str
    threads: int
    requests: int
    pause_s: float
    machine: str
    versions: Mapping[str, str]
    found: Mapping[str, Found]

    def best(self, *, ours: bool, several: bool) -> float | None:
        """Return the most requests per second of Stridewise or of the peers.

        Args:
            ours: Stridewise, or else the peers.
            several: several concurrent requests, or else one at a time.
        """
        return max(
            (
                found.per_second
                for found in self.found.values()
                if (found.runtime == OURS) is ours and (found.streams > 1) is several
            ),
            default=None,
        )

    def ratio(self, *, several: bool) -> float | None:
        """Return the requests per second of Stridewise relative to the best peer."""
        own = self.best(ours=True, several=several)
        peer = self.best(ours=False, several=several)
        return None if own is None or peer is None else own / peer

    @property
    def gain(self) -> float | None:
        """Requests per second of Stridewise with several streams relative to one stream."""
        one, several = (self.best(ours=True, several=several) for several in (False, True))
        return None if one is None or several is None else several / one

    def as_json(self) -> dict[str, Any]:
        """Return the raw data, with derived values for human readers."""
        document = asdict(self)
        for name, found in self.found.items():
            document["found"][name] |= {"per_second": found.per_second, "spread": found.spread}
        ratios = {"one": self.ratio(several=False), "several": self.ratio(several=True)}
        return document | {"ours_over_best_peer": ratios, "gain": self.gain}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Row:
        """Return the row that :meth:`as_json` wrote."""
        own = {key: document[key] for key in cls.__slots__ if key != "found"}
        found = {
            name: Found(item["runtime"], item["streams"], tuple(item["samples_ms"]), item["error"])
            for name, item in document["found"].items()
        }
        return cls(**own, found=found)


def _rate(found: Found | None) -> str:
    if found is None:
        return ""
    noisy = f" (noisy: {found.spread:.0%})" if found.spread > NOISY else ""
    return f"{found.per_second:.1f}{noisy}"


def _ratio(value: float | None) -> str:
    return "" if value is None else f"**{value:.2f}**"


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return exp(sum(map(log, known)) / len(known)) if known else None


def _heads(rows: Sequence[Row]) -> dict[str, str]:
    """Return the titles of all columns, in order of first occurrence."""
    return {
        name: f"{_NAMES[found.runtime]}, {found.streams} at once"
        for row in rows
        for name, found in row.found.items()
    }


def _said(row: Row) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in row.versions.items())
    runs = min(len(found.samples_ms) for found in row.found.values())
    return (
        f"- {row.machine}; {row.threads} threads each, {runs} runs of {row.requests} requests, "
        f"pauses of {1e3 * row.pause_s:.0f} ms; {versions}."
    )


def report(rows: Sequence[Row]) -> str:
    """Return the page: requests a second, and ratios."""
    heads = _heads(rows)
    lines = [
        [
            row.model,
            *(_rate(row.found.get(name)) for name in heads),
            _ratio(row.ratio(several=False)),
            _ratio(row.ratio(several=True)),
            _ratio(row.gain),
        ]
        for row in rows
    ]
    means = (
        [row.ratio(several=False) for row in rows],
        [row.ratio(several=True) for row in rows],
        [row.gain for row in rows],
    )
    lines.append(
        ["geometric mean", *[""] * len(heads), *(_ratio(_mean(values)) for values in means)]
    )
    titles = ["ours / best peer, one at a time", "several at once", "ours, several / one"]
    return "\n".join(
        [
            "# Several requests at once",
            "",
            "Made by `benchmarks/streams.py`: requests a second, batch 1, float32, medians, all in",
            "one process and in turn. Every contestant has the same threads: a request by itself",
            "uses all of them, of several at once each has its share. A figure is noisy where its",
            f"quartiles are more than {NOISY:.0%} of it apart.",
            "",
            *sorted({_said(row) for row in rows}),
            "",
            *table(["model", *heads.values(), *titles], lines),
            "",
        ]
    )
