"""The choice between the whole batch and its parts: both are compiled and run, the faster is used.

Activations of a whole batch may not fit into the caches although those of a few images do; and
threads that take images of their own do not wait for each other between two layers. If a model
computes every item of its batch by itself, both are measured. The cost cache keeps the outcome.
"""

from __future__ import annotations

import dataclasses
import hashlib
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from stridewise.compiler import compile_model, import_model, simplified_graph
from stridewise.errors import InputError, ModelError
from stridewise.graph import Graph
from stridewise.job import Job
from stridewise.ops.batch import batch_outputs
from stridewise.ops.capability import graph_capability
from stridewise.planner.split import WHOLE, Split
from stridewise.planning import Plan
from stridewise.program import KernelStep, Step
from stridewise.runtime.binding.weights import WeightStore
from stridewise.runtime.execution.executor import CompiledModel
from stridewise.runtime.execution.loading import load, lower_plan
from stridewise.runtime.machine.machine import cache_nbytes
from stridewise.runtime.tuning.plan_race import run_in_turn
from stridewise.strategy import Choose, Planner
from stridewise.targets.kernels import HOST
from stridewise.targets.machine import Machine

__all__ = ["Batch"]

_MARGIN = 0.97
"""A split must take less than this part of the time of the whole batch."""
_WITHIN_REACH = 1.2
"""Tuning takes many runs of the whole batch and saves a few percent of the time: a whole batch that
takes this many times as long as its parts is not tuned."""

_LEAST_RUNS = 3
"""Runs of each split that a race takes at least."""


def _digest(graph: Graph, job: Job) -> str:
    """Return the key of a model and its options in the cost cache, without weights."""
    digest, options = hashlib.sha256(), job.options
    for node in graph.nodes:
        types = [str(graph.values[name].type) for name in (*node.inputs, *node.outputs) if name]
        posts = [(post.op, post.alpha, post.beta, post.operand) for post in node.post_ops]
        digest.update(repr((node.op, node.inputs, node.attrs, types, posts)).encode())
    origins = sorted((name, str(origin)) for name, origin in (options.origins or {}).items())
    dtype = (
        ()
        if options.dtype == "model"
        else (options.dtype, options.max_error, options.calibration is None)
    )
    digest.update(repr((options.accuracy, options.weight_memory_limit, *origins, *dtype)).encode())
    return digest.hexdigest()


def _first(shapes: Iterable[tuple[int, ...]]) -> int:
    """Return the extent that all shapes begin with; 1 if they differ."""
    found = {shape[:1] for shape in shapes}
    return found.pop()[0] if len(found) == 1 and () not in found else 1


def _divisors(batch: int) -> list[int]:
    return [n for n in range(1, batch + 1) if batch % n == 0]


def candidates(batch: int, arena_nbytes: int, last_nbytes: int, machine: Machine) -> list[Split]:
    """Return the splits to measure beside the whole batch.

    One has the largest parts whose activations fill at most half of the last-level cache. In the
    other one every thread takes items of its own.

    Args:
        batch: number of items.
        arena_nbytes: size of the arena for the whole batch.
        last_nbytes: size of the last-level cache.
        machine: its threads.

    >>> from stridewise.runtime.machine.machine import this_machine
    >>> candidates(16, 96 << 20, 32 << 20, this_machine(2))
    [Split(parts=8, lanes=1), Split(parts=16, lanes=2)]
    """
    found: list[Split] = []
    fitting = [n for n in _divisors(batch) if arena_nbytes // n <= last_nbytes // 2]
    parts = min(fitting, default=batch)
    if parts > 1:
        found.append(Split(parts))
    if 1 < machine.threads <= batch:
        found.append(Split(batch, machine.threads))
    return found


@dataclass(frozen=True)
class Batch:
    """A model for one batch, whole or in parts.

    Attributes:
        job: a model file, and shapes of all inputs.
        shapes: these shapes.
    """

    job: Job
    shapes: Mapping[str, tuple[int, ...]]

    def compiled(self) -> CompiledModel:
        """Return the model of the fastest split; unknown times are measured.

        Raises:
            StridewiseError: see :func:`compile_model`.
        """
        split = self._known() or self._raced()
        if isinstance(split, Split):
            return compile_model(*self._way(split, Planner.tuned))
        return load(lower_plan(split)) if isinstance(split, Plan) else split

    def planned(self) -> Plan:
        """Return the plan of :meth:`compiled` if it has run before; nothing runs here.

        Otherwise it is the cheapest plan of the whole batch.
        """
        return compile_model(*self._way(self._known() or WHOLE, Planner.remembered), until="plan")

    def _way(
        self, split: Split, choose: Choose, weights: WeightStore | None = None
    ) -> tuple[Job, Choose]:
        """Return the job of a split, and what chooses its plan; a part is tuned as if alone.

        The flow imports the graph, unless that was done to find out whether the batch has parts.
        """
        job = dataclasses.replace(self.job, weights=weights)
        if split == WHOLE:
            return dataclasses.replace(job, imported=vars(self).get("_graph")), choose
        part = job.part(split, self.shapes)
        return part, lambda planner: dataclasses.replace(choose(planner), split=split)

    @cached_property
    def _graph(self) -> Graph:
        return import_model(self.job.source, self.job.options)

    @cached_property
    def _items(self) -> int:
        """The number of items of the batch, if each can be computed by itself; else 1."""
        if self.job.costs is None or self.job.options.has_formats:
            return 1  # blocks of a format may hold items of several parts
        items = _first(self.shapes.values())
        if items < 2:
            return 1
        graph = self._graph
        if not graph_capability(graph).is_native or graph.tail is not None:
            return 1
        if _first([graph.values[name].shape for name in (*graph.inputs, *graph.outputs)]) != items:
            return 1
        try:
            job = self.job.part(Split(items), self.shapes)
            one = import_model(job.source, job.options)
        except (InputError, ModelError):  # it takes no other batch
            return 1
        outputs = batch_outputs(one, frozenset(one.inputs), graph)
        return items if outputs == frozenset(graph.outputs) else 1

    @cached_property
    def _key(self) -> str:
        return f"batch {_digest(simplified_graph(self._graph, self.job.options).graph, self.job)}"

    def _known(self) -> Split | None:
        """Return the split that was the fastest when all ran; None if that is unknown."""
        batch, costs = self._items, self.job.costs
        if batch == 1 or costs is None:
            return WHOLE
        known = costs.find((self._key,)).get(self._key)
        threads = self.job.options.machine.threads
        splits = [*map(Split, _divisors(batch)), Split(batch, min(batch, threads))]
        labels = {str(split): split for split in splits}
        if known is None or not {label for label, _ in known} <= labels.keys():
            return None
        return labels[_fastest(dict(known))]

    def _raced(self) -> Split | Plan | CompiledModel:
        """Compile and run the whole batch and its splits; return the fastest plan.

        The whole batch is returned without its plan if no split can be faster and it is not tuned
        yet, and as it is if there is no time to run the splits.
        """
        # Constants that several splits pack alike are packed once.
        store = WeightStore(memory=self.job.memory)
        is_tuned = self.job.options.tune == "auto"
        first = Planner.tuned if is_tuned else Planner.cheapest
        whole = compile_model(*self._way(WHOLE, first, store))
        arena, machine = whole.memory.arena, self.job.options.machine
        splits = candidates(self._items, arena, cache_nbytes(3), machine)
        if not splits or any(map(_is_fallback, whole.program.steps)):
            return whole if is_tuned else WHOLE
        needed = _LEAST_RUNS * (1 + len(splits)) * whole.plan.cost_ns * 1e-9
        if time.monotonic() + needed > self.job.until:
            return whole
        models = {str(WHOLE): whole}
        for split in splits:
            models[str(split)] = compile_model(*self._way(split, Planner.tuned, store))
        outcome = run_in_turn(models, self.job.until)
        times = outcome.times
        if not is_tuned and times[str(WHOLE)] <= _WITHIN_REACH * min(times.values()):
            models[str(WHOLE)] = compile_model(*self._way(WHOLE, Planner.tuned, store))
            outcome = run_in_turn(models, self.job.until)
            times = outcome.times
        assert self.job.costs is not None  # else nothing is measured
        entries = {self._key: tuple(times.items())}
        self.job.costs.store(entries, is_provisional=outcome.is_disturbed)
        # Packed weights of the other splits are freed before the fastest plan is loaded.
        return models[_fastest(times)].plan


def _is_fallback(step: Step) -> bool:
    return isinstance(step, KernelStep) and step.spec.kind == HOST


def _fastest(times: Mapping[str, float]) -> str:
    """Return the label of the fastest split; the whole batch if others are hardly faster."""
    label = min(times, key=lambda name: times[name])
    whole = str(WHOLE)
    return whole if whole in times and times[label] > _MARGIN * times[whole] else label
