"""Plans that were made before: what chooses the plan if the option ``plan`` is given."""

from __future__ import annotations

import dataclasses
import inspect
import os
import warnings
import zlib
from collections.abc import Mapping
from pathlib import Path

from stridewise.compiler import compile_model, import_model
from stridewise.errors import PlanError, PlanWarning
from stridewise.frontends.registry import open_model
from stridewise.job import Job
from stridewise.options import Options
from stridewise.planner.documents import files
from stridewise.planner.documents.document import NodeRecord, PlanRecord
from stridewise.planner.questions.winograd_weights import check_weight_limit
from stridewise.planner.split import WHOLE
from stridewise.planning import Plan
from stridewise.runtime.store.stored_models import StoredModel
from stridewise.runtime.tuning.calibrated import unfit
from stridewise.runtime.tuning.offers import with_offers
from stridewise.strategy import Choose, Planner
from stridewise.targets.names import TARGETS
from stridewise.targets.onednn.target import onednn_cpu

__all__ = ["name_of", "restored", "stored_plan"]


def name_of(options: Options) -> str:
    """Return how messages call the plan in the options."""
    decided = options.plan
    if isinstance(decided, Plan):
        return f"plan {decided.name!r}"
    return f"plan file {os.fspath(decided or '')!r}"


def restored(job: Job) -> tuple[Job, Choose]:
    """Return the job of the plan in the options, and the strategy that restores the plan.

    Raises:
        PlanError: the plan is damaged, or does not fit the model or this release.
    """
    options, decided = job.options, job.options.plan
    if not isinstance(decided, Plan | str | os.PathLike):
        found = type(decided).__name__
        raise PlanError.at("plan", expected="a plan, or the path of a plan file", found=found)
    where = name_of(options)
    record = PlanRecord.of(decided) if isinstance(decided, Plan) else files.read(decided)
    if options.target is None and record.target not in TARGETS:
        expected = f"a plan for target {', '.join(TARGETS)}"
        fix = "give target= the TOML file of that target"
        raise PlanError.at(where, expected=expected, found=record.target, fix=fix)
    options = dataclasses.replace(options, target=options.target or record.target)
    return _restored_record(dataclasses.replace(job, options=options), record, where)


def _restored_record(
    job: Job,
    record: PlanRecord,
    where: str,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
) -> tuple[Job, Choose]:
    """Return the job of a plan without its graph, and the strategy that restores the plan.

    The job is that of one part of the batch if the plan runs it in parts.

    Args:
        job: the model, and options for the whole batch.
        record: the decisions.
        where: how messages call the plan.
        shapes: shapes of all inputs, if they are known.

    Raises:
        PlanError: the batch does not divide into the parts of the plan.
    """
    options = job.options
    if record.split != WHOLE:
        job = job.part(record.split, shapes or _divisible(job, record.split.parts, where))

    def choose(planner: Planner) -> Plan:
        # Formats and kernels are those of the machine that the plan was made for.
        native = onednn_cpu(record.machine, options.accuracy, record.dtype)
        target = native if options.is_native else planner.target
        grids = {item.tensor: item.grid for item in record.offers}
        biases = {item.weights: item.bias for item in record.biases}
        derived = with_offers(planner.derived, grids, biases)
        rest = (derived, target, planner.machine, where)
        found = Plan.of(files.restore(record, *rest))
        if options.is_native and any(unfit(found)):
            found = Plan.of(files.restore(_existing(found), *rest))
        check_weight_limit(found, options.weight_memory_limit, where)
        for note in found.notes[len(record.notes) :]:
            _warn(f"{where}: {note}; costs may not hold here")
        return found

    return job, choose


def stored_plan(path: Path, options: Options, stored: StoredModel) -> Plan:
    """Return the plan of a stored model, for the graph in the model's file.

    Args:
        path: the file.
        options: how the model was compiled.
        stored: the stored model.

    Raises:
        PlanError: the file has changed since, or is gone.
    """
    graph = stored.signature.graph
    where = f"model {graph.name!r}"
    if not stored.is_current:
        expected = "the file that it was compiled from, to restore its plan"
        found, fix = "a file that has changed since, or none", "compile the model again"
        raise PlanError.at(where, expected=expected, found=found, fix=fix)
    record = files.parsed(zlib.decompress(stored.plan).decode(), where)
    shapes = {name: graph.values[name].shape for name in graph.inputs}
    job = Job.of(open_model(path, fallback=options.fallback), options)
    return compile_model(*_restored_record(job, record, where, shapes), until="plan")


def _existing(plan: Plan) -> PlanRecord:
    """Return the decisions of a plan; the library chooses kernels whose predicted names it lacks.

    Plans under restrictions, such as uniform ones, are found by predicted costs, and the library is
    not asked whether it has their kernels.
    """
    record, missing = PlanRecord.of(plan), {str(spec): name for spec, name in unfit(plan)}

    def name_of(text: str, name: str) -> str:
        return "" if missing.get(text) == name else name

    def changed(node: NodeRecord) -> NodeRecord:
        names = tuple(map(name_of, node.kernels, node.implementations))
        return dataclasses.replace(node, implementations=names)

    kernels = {
        text: dataclasses.replace(cost, implementation=name_of(text, cost.implementation))
        for text, cost in record.kernels.items()
    }
    specs = [
        plan.target.reorder_spec(plan.graph.values[item.tensor], item.source, item.target)
        for item in plan.reorders
    ]
    reorders = tuple(
        dataclasses.replace(item, implementation=name_of(str(spec), item.implementation))
        for item, spec in zip(record.reorders, specs, strict=True)
    )
    nodes = tuple(map(changed, record.nodes))
    return dataclasses.replace(record, nodes=nodes, reorders=reorders, kernels=kernels)


def _divisible(job: Job, parts: int, where: str) -> dict[str, tuple[int, ...]]:
    """Return the shapes of all inputs, whose first extents must be multiples of the parts."""
    found = "a graph, whose shapes are fixed"
    if not job.source.is_graph:
        graph = import_model(job.source, job.options)
        shapes = {name: graph.values[name].shape for name in graph.inputs}
        if all(shape and shape[0] % parts == 0 for shape in shapes.values()):
            return shapes
        found = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
    expected = f"a model file with a batch of {parts} parts"
    raise PlanError.at(where, expected=expected, found=found)


def _warn(message: str) -> None:
    """Warn at the line outside of this package that called it."""
    frame, level = inspect.currentframe(), 1
    while frame is not None and frame.f_globals["__name__"].startswith("stridewise."):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, PlanWarning, stacklevel=level)
