"""The input of the flow: a model, and how it is to be compiled."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping
from typing import Any

from numpy.typing import ArrayLike

from stridewise.classes import dataclass
from stridewise.frontends.source import ModelReader
from stridewise.graph import Graph, Shapes
from stridewise.options import Options
from stridewise.planner.split import Split
from stridewise.runtime.binding.provision import Provision
from stridewise.runtime.binding.weights import ArrayStore, WeightStore
from stridewise.runtime.tuning.cost_cache import CostCache

__all__ = ["Job"]


@dataclass(frozen=True, slots=True)
class Job:
    """The input of the flow: a model, and how it is to be compiled.

    Attributes:
        source: the model, opened by its front end.
        options: the options of the call.
        costs: cache of measured costs; None if nothing is measured.
        until: time of ``time.monotonic`` at which measuring stops.
        arrays: constants of other programs of the model, shared if they are equal.
        weights: packed constants of other programs of the model.
        memory: what the constants of the first program may be packed into.
        imported: the graph of the source for the shapes and values of the options; None if it is
            not imported yet.
    """

    source: ModelReader
    options: Options
    costs: CostCache | None = None
    until: float = 0.0
    arrays: ArrayStore | None = None
    weights: WeightStore | None = None
    memory: Provision | None = None
    imported: Graph | None = None

    @classmethod
    def of(cls, source: ModelReader, options: Options) -> Job:
        """Return the job of a call."""
        costs = CostCache(options.machine, options.cache_folder) if options.measures else None
        return cls(source, options, costs, _limit(options))

    def sized(self, shapes: Shapes, values: Mapping[str, ArrayLike] | None = None) -> Job:
        """Return the job for other shapes, with a time limit of its own, and for more values."""
        known = {**(self.options.values or {}), **(values or {})}
        options = dataclasses.replace(self.options, shapes=shapes, values=known)
        return dataclasses.replace(self, options=options, until=_limit(options), imported=None)

    def renewed(self, **options: Any) -> Job:
        """Return the job with some other options, and its whole time to measure."""
        changed = dataclasses.replace(self.options, **options)
        return dataclasses.replace(self, options=changed, until=_limit(changed))

    def part(self, split: Split, shapes: Mapping[str, tuple[int, ...]]) -> Job:
        """Return the job of one part of a batch whose inputs have some shapes as a whole."""
        threads = self.options.machine.threads * self.options.streams // split.lanes
        options = dataclasses.replace(self.options, shapes=split.shapes(shapes), threads=threads)
        part = Job.of(self.source, options)
        return dataclasses.replace(part, weights=self.weights, until=self.until)


def _limit(options: Options) -> float:
    return time.monotonic() + options.measuring_seconds
