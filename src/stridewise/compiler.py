"""What happens to a model between its file and its first run: six stages, in :func:`compile_model`.

| stage    | result        |                                                    |
|----------|---------------|----------------------------------------------------|
| import   | Graph         | the model in the user's axis order                 |
| simplify | Simplified    | the graph folded and fused                         |
| derive   | Derived       | the meaning of the axes of every tensor            |
| plan     | Plan          | a kernel for each node, a format for each tensor   |
| lower    | Lowered       | steps with addresses in memory                     |
| load     | CompiledModel | native kernels and packed constants, ready to run  |

Each stage is a function from a value to a value, and each value prints as text. Everything else
wraps this function. Plan files (``api/restored.py``) and tuning (``runtime/tuning/``) are ways to
choose the plan. The compiled-model store (``api/stored.py``) skips the flow if it has the result.
``api/batches.py`` selects between the whole batch and its parts, and ``api/dynamic.py`` compiles
one model for many shapes.
"""

from __future__ import annotations

import dataclasses
from types import MappingProxyType
from typing import Literal, overload

from stridewise.errors import InputError
from stridewise.frontends.source import ModelReader
from stridewise.graph import Graph
from stridewise.job import Job
from stridewise.options import Options
from stridewise.passes import Simplified, passes_for, simplify
from stridewise.passes.ability import never
from stridewise.planner import derive
from stridewise.planning import Plan
from stridewise.runtime.binding.weights import ArrayStore, WeightStore
from stridewise.runtime.execution.executor import CompiledModel
from stridewise.runtime.execution.loading import load, lower_plan
from stridewise.runtime.machine.machine import checked_limit
from stridewise.strategy import Choose, Planner
from stridewise.targets.onednn.target import ABILITY

__all__ = ["compile_model", "import_model", "simplified_graph"]


@overload
def compile_model(job: Job, choose: Choose) -> CompiledModel: ...


@overload
def compile_model(job: Job, choose: Choose, *, until: Literal["plan"]) -> Plan: ...


def compile_model(
    job: Job, choose: Choose, *, until: Literal["plan", "load"] = "load"
) -> CompiledModel | Plan:
    """Compile a model: the flow.

    Args:
        job: the model and its options.
        choose: selects the plan, such as ``Planner.tuned``.
        until: the last stage.

    Raises:
        StridewiseError: a stage fails; see :func:`stridewise.compile` for the kinds of errors.
    """
    graph = job.imported or import_model(job.source, job.options)
    simplified = simplified_graph(graph, job.options, job.arrays)
    derived = derive(simplified.graph, job.options.origins)
    planner = Planner.of(job, simplified, derived)
    plan = planner.fitted(choose(planner))
    if until == "plan":
        return plan
    lowered = lower_plan(plan)
    return load(lowered, job.weights or WeightStore(memory=job.memory))


def import_model(source: ModelReader, options: Options) -> Graph:
    """Return the graph of a model in the user's axis order.

    Raises:
        StridewiseError: an InputError if options do not fit, an UnsupportedError if an operator
            is not supported; see :func:`stridewise.load` for others.
    """
    if options.keep_parameters and not source.is_graph:
        found = "a model file, whose weights are constants"
        raise InputError.at("keep_parameters", expected="a graph", found=found)
    limit = checked_limit(options.memory_limit)
    return source.graph(options.shapes, options.values, memory_limit=limit)


def simplified_graph(
    graph: Graph, options: Options, arrays: ArrayStore | None = None
) -> Simplified:
    """Return the graph after all passes; ``arrays`` replace equal constants.

    Without ``arrays`` the result has constants of its own, which may be dropped.
    """
    ability = ABILITY if options.is_native else dataclasses.replace(ABILITY, attends=never)
    found = simplify(graph, passes_for(ability, keep_parameters=options.keep_parameters))
    if arrays is not None:
        return dataclasses.replace(found, graph=arrays.shared(found.graph))
    constants = {name: item.shared() for name, item in found.graph.constants.items()}
    own = dataclasses.replace(found.graph, constants=MappingProxyType(constants))
    return dataclasses.replace(found, graph=own)
