"""Models for many shapes: what makes their programs, each from the same model file."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from contextlib import suppress

from stridewise.api.batches import Batches
from stridewise.api.ready import keep_ready
from stridewise.api.request import Request
from stridewise.errors import ModelError, UnknownValueError
from stridewise.frontends.source import ModelReader
from stridewise.graph import Graph, Refusal, Signature
from stridewise.ops.batch import batch_outputs
from stridewise.ops.demand import spelled
from stridewise.ops.registry import Array
from stridewise.passes import Simplified, passes_for, simplify
from stridewise.planner.questions.follow import follow
from stridewise.planning import Plan
from stridewise.runtime.binding.weights import ArrayStore, WeightStore
from stridewise.runtime.execution.dynamic import DynamicModel
from stridewise.runtime.execution.executor import CompiledModel
from stridewise.runtime.execution.model import Model
from stridewise.runtime.lowering.memory_limit import checked_limit
from stridewise.runtime.tuning.following import Following
from stridewise.targets.onednn.target import ABILITY

__all__ = ["ModelSpecializer", "compile_file"]

_Shapes = Mapping[str, tuple[int, ...]]


class ModelSpecializer:
    """Makes the programs of one model, from a file that was read once.

    Packed weights and the arrays that they are packed from are shared by all programs that live.
    """

    def __init__(self, file: ModelReader, request: Request, values: Mapping[str, Array]) -> None:
        """Remember how the model is wanted; ``values`` belong to all programs."""
        self._file, self._request, self.values = file, request, values
        self._arrays, self._weights = ArrayStore(), WeightStore()
        self._leaders: dict[frozenset[str], Plan] = {}

    def graph(self, shapes: _Shapes, values: Mapping[str, Array]) -> Graph:
        """Return the model for some shapes, as the user wrote it."""
        limit = checked_limit(self._request.memory_limit)
        return self._file.graph(shapes, {**self.values, **values}, memory_limit=limit)

    def model(
        self, shapes: Mapping[str, tuple[int, ...]], values: Mapping[str, Array]
    ) -> CompiledModel:
        """Return a program; the first one is tuned as asked for, the others as ``later`` says.

        Without elements no kernel is better than another, so that programs for empty inputs and
        those for others do not decide alike.
        """
        simplified = simplify(self.graph(shapes, values), passes_for(ABILITY))
        shared = self._arrays.shared(simplified.graph)
        simplified = dataclasses.replace(simplified, graph=shared)
        empty = frozenset(name for name, shape in shapes.items() if 0 in shape)
        leader = self._leaders.get(empty)
        if leader is None:
            compiled = self._request.work(simplified).compiled(self._weights)
            self._leaders.setdefault(empty, compiled.plan)
            return compiled
        if self._request.later == "tune":
            compiled = self._request.work(simplified).compiled(self._weights)
        else:
            compiled = self._follower(simplified, leader)
        return compiled.with_plan(_noted(compiled, leader))

    def _follower(self, simplified: Simplified, leader: Plan) -> CompiledModel:
        """Return the program that decides as the first one did; nothing is timed for it."""
        work = dataclasses.replace(self._request, tune="model").work(simplified)
        plan = follow(work.plans(Following(work.oracle, leader))[0], leader)
        return CompiledModel(plan, self._weights)

    def batches(self, shapes: _Shapes) -> Batches:
        """Return the ways to run the model for some shapes.

        Raises:
            UnknownValueError: the graph depends on the values of inputs.
        """
        return Batches(self._request, shapes, lambda sizes: self.graph(sizes, {}))

    def only(self, shapes: _Shapes) -> CompiledModel:
        """Return the model where it has no other shapes, and keep it for the next process.

        Raises:
            UnknownValueError: its plan depends on the values of inputs.
        """
        batches = self.batches(shapes)
        model, cache = batches.compiled(), batches.work.cache
        if cache is not None:
            keep_ready(self._request, model, cache, self._file.paths, self._file.opened)
        if not self._request.keep_originals:
            model.drop_originals()
        return model

    def batch_outputs(
        self,
        shapes: Mapping[str, tuple[int, ...]],
        values: Mapping[str, Array],
        inputs: frozenset[str],
    ) -> frozenset[str] | Refusal:
        """Return the outputs to cut where these inputs are padded to a larger batch, or why not."""
        more = {
            name: (shape[0] + 1, *shape[1:]) if name in inputs else shape
            for name, shape in shapes.items()
        }
        try:
            larger = self.graph(more, values)
        except UnknownValueError:
            raise
        except ModelError:
            return Refusal("batch", "model", "it takes no other batch")
        return batch_outputs(self.graph(shapes, values), inputs, larger)


def _noted(model: CompiledModel, leader: Plan) -> Plan:
    """Return the plan of a model with what a reader must know about the weights it shares."""
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


def plan_file(request: Request, file: ModelReader) -> Plan:
    """Return the plan of :func:`compile_file`, for the least shapes where some are open.

    Raises:
        InputError: shapes, values or limits do not fit.
        ModelError: the model uses something unsupported.
    """
    specializer, signature = _specializer(request, file)
    return specializer.batches(signature.default()).planned()


def _specializer(request: Request, file: ModelReader) -> tuple[ModelSpecializer, Signature]:
    """Return what makes programs of a model, and which shapes its inputs may have."""
    values = file.values(request.values or {})
    given = {name: value.shape for name, value in values.items()}
    signature = file.signature.narrowed({**(request.shapes or {}), **given}).without(values)
    return ModelSpecializer(file, request, values), signature


def compile_file(request: Request, file: ModelReader) -> Model:
    """Return a model for the shapes that are asked for: one, or many.

    Of a model for many shapes, the program for the default ones is made, if there are any.

    Raises:
        InputError: shapes, values or limits do not fit.
        ModelError: the model uses something unsupported.
    """
    specializer, signature = _specializer(request, file)
    if request.has_formats:  # formats have extents, so that such a model has one shape
        return specializer.only(signature.default())
    if signature.is_fixed:
        with suppress(UnknownValueError):
            return specializer.only(signature.default())
    model = DynamicModel(
        file.name,
        signature,
        file.outputs,
        specializer,
        max_programs=request.max_programs,
        max_nbytes=request.max_program_nbytes,
        arguments=[name for name in file.arguments if name not in specializer.values],
    )
    model.prepare_default()
    return model
