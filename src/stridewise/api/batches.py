"""Batches as a whole or in parts: the ways are compiled, run against each other, and the best kept.

Activations of a whole batch may not fit into the caches when those of a few images do; and threads
that take images of their own need not wait for each other between two layers. Where a model
computes every item of its batch by itself, both are tried on the clock, and the outcome is kept in
the cost cache.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Mapping, Sequence

from stridewise.api.request import Request, Work
from stridewise.errors import ModelError
from stridewise.graph import Graph
from stridewise.ops.batch import batch_outputs
from stridewise.ops.capability import graph_capability
from stridewise.passes import passes_for, simplify
from stridewise.planner.split import WHOLE, Split
from stridewise.planning import Plan
from stridewise.program import KernelStep, Step
from stridewise.runtime.binding.weights import WeightStore
from stridewise.runtime.execution.executor import CompiledModel
from stridewise.runtime.machine.machine import cache_nbytes
from stridewise.runtime.tuning.cost_cache import CostCache
from stridewise.runtime.tuning.plan_race import run_in_turn
from stridewise.targets.kernels import HOST
from stridewise.targets.machine import Machine
from stridewise.targets.onednn.target import ABILITY

__all__ = ["Batches"]

Shapes = Mapping[str, tuple[int, ...]]

_MARGIN = 0.97
"""Parts that save less than the rest of the time are not worth their words in a report."""
_WITHIN_REACH = 1.2
"""Tuning takes many runs of the whole batch, and has not saved more than a few percent of the time:
a whole that takes this many times as long as its parts is not tuned."""


def _batch(graph: Graph) -> int:
    """Return the extent that all inputs and outputs begin with; 1 where they differ."""
    found = {graph.values[name].shape[:1] for name in (*graph.inputs, *graph.outputs)}
    return found.pop()[0] if len(found) == 1 and () not in found else 1


def _digest(graph: Graph, request: Request) -> str:
    """Return what identifies a model here and how it is wanted, without its weights."""
    digest = hashlib.sha256()
    for node in graph.nodes:
        types = [str(graph.values[name].type) for name in (*node.inputs, *node.outputs) if name]
        posts = [(post.op, post.alpha, post.beta, post.operand) for post in node.post_ops]
        digest.update(repr((node.op, node.inputs, node.attrs, types, posts)).encode())
    origins = sorted((name, str(origin)) for name, origin in (request.origins or {}).items())
    stored = () if request.dtype == "float32" else (request.dtype,)
    wanted = (request.accuracy, request.weight_memory_limit, *origins, *stored)
    digest.update(repr(wanted).encode())
    return digest.hexdigest()


def _divisors(batch: int) -> list[int]:
    return [n for n in range(1, batch + 1) if batch % n == 0]


def candidates(batch: int, arena_nbytes: int, last_nbytes: int, machine: Machine) -> list[Split]:
    """Return the ways beside the whole that are worth a try.

    One has the largest parts whose activations fill no more than half of the last cache. In the
    other every thread takes items of its own.

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


class Batches:
    """One model for one batch, and the ways to run it."""

    def __init__(
        self, request: Request, shapes: Shapes, imported: Callable[[Shapes], Graph]
    ) -> None:
        """Import the model.

        Args:
            request: how it is wanted.
            shapes: of all inputs.
            imported: returns the model for some shapes, as the user wrote it.
        """
        self._request, self._shapes, self._imported = request, shapes, imported
        self._graph = imported(shapes)
        self.work = request.work(simplify(self._graph, passes_for(ABILITY)))

    def compiled(self) -> CompiledModel:
        """Return the model that is ready to run, in the way that is fastest."""
        cache = self.work.cache
        if cache is None or not self._may_split():
            return self.work.compiled()
        split = self._known(cache)
        if split is None:
            return self._raced(self._key(), cache)
        if split == WHOLE:
            return self.work.compiled()
        return _of_part(self._part(split).planned(), split)

    def planned(self) -> Plan:
        """Return the plan that :meth:`compiled` settled on where it has run the model.

        Elsewhere it is the cheapest plan of the whole batch. Nothing is run for it.
        """
        cache = self.work.cache
        if cache is None or not self._may_split():
            return self.work.planned()
        known = self._known(cache)
        if known is None or known == WHOLE:
            return self.work.planned()
        return dataclasses.replace(self._part(known).planned(), split=known)

    def _key(self) -> str:
        return f"batch {_digest(self.work.simplified.graph, self._request)}"

    def _known(self, cache: CostCache) -> Split | None:
        """Return the way that was fastest when all ways ran; None where they have not."""
        known = cache.find((self._key(),)).get(self._key())
        splits = {str(split): split for split in self._splits()}
        if known is None or not {label for label, _ in known} <= splits.keys():
            return None
        return splits[_fastest(dict(known))]

    def _raced(self, key: str, cache: CostCache) -> CompiledModel:
        """Compile all ways, run them in turn and return the fastest."""
        store = WeightStore()  # what several ways want packed alike is packed once
        whole = self.work.untuned(store)
        arena, machine = whole.memory.arena, self.work.machine
        ways = candidates(_batch(self._graph), arena, cache_nbytes(3), machine)
        if not ways or any(map(_is_host, whole.program.steps)):
            del whole, store  # what wins would keep all that they have packed
            return self.work.compiled()
        models = {str(WHOLE): whole}
        for split in ways:
            models[str(split)] = _of_part(self._part(split).compiled(store).plan, split, store)
        times = run_in_turn(models).times
        if times[str(WHOLE)] <= _WITHIN_REACH * min(times.values()):
            models[str(WHOLE)] = self.work.compiled(store)
            times = run_in_turn(models).times
        cache.store({key: tuple(times.items())})
        plan = models[_fastest(times)].plan
        del whole, store
        models.clear()
        return CompiledModel(plan)

    def _may_split(self) -> bool:
        """Return whether the batch is several items, each computed by itself, all natively."""
        graph = self._graph
        batch = _batch(graph)
        if self._request.has_formats:
            return False  # blocks of a format may hold items of several parts
        if batch < 2 or not graph_capability(graph).is_native or graph.tail is not None:
            return False
        try:
            one = self._imported(Split(batch).shapes(self._shapes))
        except ModelError:
            return False
        carried = batch_outputs(one, frozenset(one.inputs), graph)
        return isinstance(carried, frozenset) and carried == frozenset(graph.outputs)

    def _splits(self) -> Sequence[Split]:
        """Return all ways that there may be, whatever the sizes of arena and caches."""
        batch = _batch(self._graph)
        return [*map(Split, _divisors(batch)), Split(batch, min(batch, self.work.machine.threads))]

    def _part(self, split: Split) -> Work:
        """Prepare the planning of one part, which is tuned as if it were alone."""
        request = self._request.part(split, self._shapes)
        return request.work(
            simplify(self._imported(split.shapes(self._shapes)), passes_for(ABILITY))
        )


def _is_host(step: Step) -> bool:
    return isinstance(step, KernelStep) and step.spec.kind == HOST


def _of_part(plan: Plan, split: Split, store: WeightStore | None = None) -> CompiledModel:
    """Return the model of the whole batch whose parts run by a plan."""
    return CompiledModel(dataclasses.replace(plan, split=split), store)


def _fastest(times: Mapping[str, float]) -> str:
    """Return the label of the fastest way; the whole where others are hardly faster."""
    label = min(times, key=lambda name: times[name])
    whole = str(WHOLE)
    return whole if whole in times and times[label] > _MARGIN * times[whole] else label
