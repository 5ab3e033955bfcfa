"""Contenders of ``benchmarks/training.py formats``: one network in each kind of format."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

import stridewise as sw
from stridewise.graph import Graph
from stridewise.runtime.tuning.plan_race import run_in_turn

__all__ = ["KINDS", "Contender", "batch_of", "different", "steps_of", "undisturbed", "used"]

KINDS = ("plain", "channels-last", "blocked")


def batch_of(graph: Graph) -> tuple[Any, Any]:
    """Return images and classes for a network."""
    rng, shape = np.random.default_rng(0), graph.value(graph.inputs[0]).shape
    classes = graph.value(graph.outputs[0]).shape[1]
    return rng.standard_normal(shape, np.float32), rng.integers(0, classes, shape[0])


@dataclass(frozen=True, slots=True)
class Contender:
    """A compiled program, and how it is run with data of the user."""

    model: sw.CompiledModel
    run: Callable[[], object]


def steps_of(graph: Graph, options: Mapping[str, Any]) -> Iterator[tuple[str, Contender]]:
    """Yield a training step in each kind of format, and as planned."""
    rule, (x, labels) = sw.SGD(lr=1e-3, momentum=0.9), batch_of(graph)
    planned = sw.Trainer(graph, optimizer=rule, **options)
    plan = planned.model.plan
    for kind in KINDS:
        found = sw.Trainer(graph, optimizer=rule, plan=plan.uniform(kind), **options)
        yield kind, Contender(found.model, partial(found.step, x, labels))
    yield "planned", Contender(planned.model, partial(planned.step, x, labels))


def used(graph: Graph, options: Mapping[str, Any]) -> Iterator[tuple[str, Contender]]:
    """Yield inference in each kind of format, and as planned."""
    planned, (x, _) = sw.compile(graph, keep_originals=True, **options), batch_of(graph)
    for kind in KINDS:
        found = sw.compile(graph, plan=planned.plan.uniform(kind), **options)
        yield kind, Contender(found, partial(found, x))
    yield "planned", Contender(planned, partial(planned, x))


def undisturbed(contenders: Mapping[str, Contender], rounds: int) -> dict[str, float]:
    """Return milliseconds of each program without the disturbances of single steps.

    Whole runs of seconds vary by a tenth where other machines share the processor: few of them
    do not tell programs apart that differ in some kernels.
    """
    models = {kind: found.model for kind, found in contenders.items()}
    outcome = run_in_turn(models)
    for _ in range(rounds // 2):
        outcome = run_in_turn(models, ran=outcome.runs)
    return {kind: ns / 1e6 for kind, ns in outcome.times.items()}


def different(contenders: Mapping[str, Contender]) -> dict[str, int]:
    """Return how many nodes of each uniform program run other kernels than the planned one."""
    plans = {kind: found.model.plan for kind, found in contenders.items()}
    kernels = {
        kind: [(d.chosen.option, *(c.implementation for c in d.chosen.costs)) for d in p.decisions]
        for kind, p in plans.items()
    }
    return {
        kind: sum(a != b for a, b in zip(kernels[kind], kernels["planned"], strict=True))
        for kind in KINDS
    }
