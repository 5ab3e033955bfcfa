"""Models for one shape or many: the flow is run for each shape that is needed."""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Mapping
from contextlib import suppress

from stridewise.api.batches import Batch
from stridewise.compiler import compile_model, import_model
from stridewise.errors import MemoryLimitError, ModelError, UnknownValueError, UnsupportedError
from stridewise.graph import Graph, Refusal, Signature
from stridewise.job import Job
from stridewise.ops.batch import batch_outputs
from stridewise.ops.demand import spelled
from stridewise.ops.registry import Array
from stridewise.planner.questions.follow import follow
from stridewise.planning import Plan
from stridewise.runtime.binding.provision import Provision
from stridewise.runtime.binding.weights import ArrayStore, WeightStore
from stridewise.runtime.execution.dynamic import DynamicModel
from stridewise.runtime.execution.executor import CompiledModel
from stridewise.runtime.tuning.following import Following
from stridewise.runtime.tuning.offers import with_offers
from stridewise.strategy import Choose, Planner

__all__ = ["ModelSpecializer", "SharedPrograms", "compile_file", "plan_file"]

_Shapes = Mapping[str, tuple[int, ...]]
_Values = Mapping[str, Array]

_BATCHES = (2, 3, 4, 5, 6, 8, 10, 16, 32, 64, 128)
"""Batches that are tried for a message about a model that does not take a batch of 1."""


class SharedPrograms:
    """Makes programs of one model for several shapes.

    They share packed weights and the arrays that these are packed from. The first program is tuned,
    and the others decide as it does, unless the option ``later`` says otherwise.
    """

    def __init__(
        self,
        leaders: Mapping[Hashable, Plan] | None = None,
        memory: Provision | None = None,
    ) -> None:
        """Start without programs.

        Args:
            leaders: plans of programs that exist elsewhere, by kind.
            memory: what the weights of the first program may be packed into.
        """
        self._arrays, self._weights = ArrayStore(), WeightStore(memory=memory)
        self._leaders = dict(leaders or {})

    def compiled(self, job: Job, kind: Hashable) -> CompiledModel:
        """Return a program.

        Args:
            job: the model for some shapes, and its options.
            kind: programs of one kind decide alike.
        """
        job = dataclasses.replace(job, arrays=self._arrays, weights=self._weights)
        leader = self._leaders.get(kind)
        if leader is None:
            compiled = compile_model(job, Planner.tuned)
            self._leaders.setdefault(kind, compiled.plan)
            return compiled
        if job.options.later == "tune":
            compiled = compile_model(job, Planner.tuned)
        else:
            estimated = dataclasses.replace(job.options, tune="model")
            job = dataclasses.replace(job, options=estimated, costs=None)
            compiled = compile_model(job, _following(leader))
        return compiled.with_plan(_noted(compiled, leader))


class ModelSpecializer:
    """Makes the programs of one model, from a file that was read once."""

    def __init__(self, job: Job, leader: Plan | None = None) -> None:
        """Start without programs.

        Args:
            job: the model file and its options; its values belong to all programs.
            leader: the plan of a program for inputs with elements that exists elsewhere.
        """
        self._job = job
        leaders: dict[Hashable, Plan] = {frozenset(): leader} if leader is not None else {}
        self._programs = SharedPrograms(leaders, job.memory)

    @classmethod
    def again(cls, job: Job, leader: Plan) -> ModelSpecializer:
        """Return the specializer of a model whose first program comes from the store."""
        return cls(_opened(job)[0], leader)

    def model(self, shapes: _Shapes, values: _Values) -> CompiledModel:
        """Return a program.

        Programs for empty inputs and those for others do not decide alike: without elements all
        kernels cost the same.
        """
        empty = frozenset(name for name, shape in shapes.items() if 0 in shape)
        return self._programs.compiled(self._job.sized(shapes, values), empty)

    def batch_outputs(
        self, shapes: _Shapes, values: _Values, inputs: frozenset[str]
    ) -> frozenset[str] | Refusal:
        """Return the outputs to cut if these inputs are padded to a larger batch, or why not."""
        more = {
            name: (shape[0] + 1, *shape[1:]) if name in inputs else shape
            for name, shape in shapes.items()
        }
        try:
            larger = self._graph(more, values)
        except UnknownValueError:
            raise
        except ModelError:
            return Refusal("batch", "model", "it takes no other batch")
        return batch_outputs(self._graph(shapes, values), inputs, larger)

    def _graph(self, shapes: _Shapes, values: _Values) -> Graph:
        job = self._job.sized(shapes, values)
        return import_model(job.source, job.options)


def _following(leader: Plan) -> Choose:
    """Return the strategy that decides as an earlier plan did; nothing is timed for it."""
    grids = leader.graph.offers
    biases = {name: value.bias for name, value in leader.graph.values.items() if value.bias}

    def choose(planner: Planner) -> Plan:
        offered = dataclasses.replace(planner, derived=with_offers(planner.derived, grids, biases))
        return follow(offered(Following(planner.oracle, leader))[0], leader)

    return choose


def _noted(model: CompiledModel, leader: Plan) -> Plan:
    """Return the plan of a model with notes on the weights that it shares."""
    values = leader.graph.values
    shapes = ", ".join(f"{name} {values[name].shape}" for name in leader.graph.inputs)
    own, shared = model.weights.own_nbytes, model.weights.shared_nbytes
    notes = [f"decides as the plan for {shapes} where it can; costs that are not are estimates"]
    if model.plan.name != "follows":
        notes = []
    if own:
        again = f"packs {spelled(own)} of weights for itself and shares {spelled(shared)}"
        notes.append(f"{again}: other programs have them in other formats, or not at all")
    return dataclasses.replace(model.plan, notes=(*model.plan.notes, *notes))


def _opened(job: Job) -> tuple[Job, Signature]:
    """Return the job with checked values, and the shapes that the inputs may have."""
    file, options = job.source, job.options
    values = file.values(options.values or {})
    given = {name: value.shape for name, value in values.items()}
    signature = file.signature.narrowed({**(options.shapes or {}), **given}).without(values)
    return job.sized(signature.default(), values), signature


def _with_batch(job: Job, signature: Signature, error: ModelError) -> ModelError:
    """Return the error of a model at its default shapes, with a batch that it takes instead of 1.

    A model may declare any batch and have constants that fit one batch only.
    """
    shapes = signature.default()
    assumed = [
        item.name
        for item in signature
        if item.extents and item.name in shapes and item.extents[0].least is None
    ]
    if not assumed or isinstance(error, MemoryLimitError | UnknownValueError | UnsupportedError):
        return error
    for batch in _BATCHES:
        given = {
            name: (batch, *shape[1:]) if name in assumed else shape
            for name, shape in shapes.items()
        }
        with suppress(ModelError):
            sized = job.sized(given)
            import_model(sized.source, sized.options)
            fix = f"give a batch that fits the constants of the model: shapes={given}"
            return type(error)(f"{error}; a batch of 1 was assumed; {fix}")
    return error


def plan_file(job: Job) -> Plan:
    """Return the plan of :func:`compile_file`, for the least shapes if some are open.

    Raises:
        InputError: shapes, values or limits do not fit.
        ModelError: the model uses something unsupported.
    """
    job, signature = _opened(job)
    if signature.is_fixed or job.options.has_formats:
        return Batch(job, signature.default()).planned()
    try:
        return compile_model(job, Planner.remembered, until="plan")
    except ModelError as error:
        raise _with_batch(job, signature, error) from error.__cause__


def compile_file(job: Job) -> CompiledModel | DynamicModel:
    """Return a model for the shapes that the options allow: one, or many.

    For a model with open shapes, the program for the default shapes is made, if there are any.

    Args:
        job: a model file and its options.

    Raises:
        InputError: shapes, values or limits do not fit.
        ModelError: the model uses something unsupported.
    """
    job, signature = _opened(job)
    file, options = job.source, job.options
    if options.has_formats:  # formats have extents, so that such a model has one shape
        return Batch(job, signature.default()).compiled()
    if signature.is_fixed:
        with suppress(UnknownValueError):
            return Batch(job, signature.default()).compiled()
    model = DynamicModel(
        file.name,
        signature,
        file.outputs,
        ModelSpecializer(job),
        max_programs=options.max_programs,
        max_nbytes=options.max_program_nbytes,
        arguments=[name for name in file.arguments if name not in (options.values or {})],
    )
    try:
        model.prepare_default()
    except ModelError as error:
        raise _with_batch(job, signature, error) from error.__cause__
    return model
