"""The compiled-model store around the flow: which models are stored, and under which key."""

from __future__ import annotations

import dataclasses
import hashlib
import logging
import os
import sys
import time
import zlib
from collections.abc import Iterator
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from stridewise.classes import dataclass
from stridewise.errors import ExecutionError
from stridewise.options import Options
from stridewise.program import KernelStep
from stridewise.runtime.binding.library import library_info
from stridewise.runtime.execution.executor import CompiledModel, DeferredPlan
from stridewise.runtime.execution.stored import load_stored, with_names
from stridewise.runtime.machine.machine import checked_limit
from stridewise.runtime.store.checks import Checks, system_state
from stridewise.runtime.store.fingerprint import differing, fingerprint
from stridewise.runtime.store.stored_models import (
    Found,
    ModelStore,
    OpenInputs,
    Stamp,
    StoredModel,
    checksums,
    stamp,
)
from stridewise.runtime.tuning.cost_file import cache_path, cache_state
from stridewise.targets.kernels import HOST

if TYPE_CHECKING:
    from stridewise.api.dynamic import ModelSpecializer
    from stridewise.frontends.registry import ModelSource
    from stridewise.graph import Refusal
    from stridewise.job import Job
    from stridewise.planning import Plan
    from stridewise.runtime.execution.dynamic import DynamicModel, Shapes, Values
    from stridewise.runtime.execution.model import Model
    from stridewise.runtime.tuning.cost_cache import CostCache

__all__ = ["DEFAULT_LIMIT", "StoreEntry"]

_LOG = logging.getLogger("stridewise")

DEFAULT_LIMIT = 4 << 30
"""Bytes that stored models may take in a folder."""

_UNUSABLE = (
    ExecutionError, ArithmeticError, LookupError, TypeError, ValueError, AttributeError,
)  # fmt: skip
"""Errors of a stored program that does not fit this process."""

_CHECKED_S = 1.0
"""Time of a run up to which the process that stores a model makes the first check of it, too."""

_SETTLED_S = 2.0
"""Age from which a change of a file shows in its times on every file system."""


@cache
def _code() -> str:
    """Return a digest of this code, its native core and the libraries."""
    root = Path(__file__).parent.parent
    parts = sorted(_files(str(root)))
    found = (parts, stamp(library_info().path), np.__version__, sys.version)
    return hashlib.sha256(repr(found).encode()).hexdigest()


def _files(folder: str) -> Iterator[Stamp]:
    """Yield the state of each file of code below a folder."""
    with os.scandir(folder) as entries:  # a Path for each file would take most of the time
        for entry in entries:
            if entry.name.endswith((".py", ".so")):
                yield stamp(entry)
            elif entry.is_dir(follow_symlinks=False) and entry.name != "__pycache__":
                yield from _files(entry.path)


def _key(path: Path, options: Options) -> str:
    """Return the key of a model: all that it depends on except the content of files."""
    given = {name: np.asarray(value) for name, value in (options.values or {}).items()}
    values = {name: (item.dtype.str, item.shape, item.tobytes()) for name, item in given.items()}
    formats = (options.origins, options.input_formats, options.output_formats)
    parts = (
        str(path),
        sorted((options.shapes or {}).items()),
        sorted(values.items()),
        str(options.machine),
        options.streams,
        checked_limit(options.memory_limit),
        options.accuracy,
        options.dtype,
        options.max_error,
        options.weight_memory_limit,
        options.fallback,
        options.tune,
        *(sorted((name, str(item)) for name, item in (named or {}).items()) for named in formats),
        _code(),
    )
    return hashlib.sha256(repr(parts).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class StoreEntry:
    """The place of one model in the compiled-model store.

    Attributes:
        store: the store.
        key: the model's key.
        path: the model's file.
        options: how the model is compiled.
    """

    store: ModelStore
    key: str
    path: Path
    options: Options

    @classmethod
    def of(cls, source: ModelSource, options: Options) -> StoreEntry | None:
        """Return the entry of a model; None if such models are not stored.

        Only tuned models that come from a path are stored, and none that depends on samples.
        """
        limit = DEFAULT_LIMIT if options.store_limit is None else options.store_limit
        if not isinstance(source, str | os.PathLike) or not options.measures or not limit:
            return None
        if options.calibration is not None:
            return None
        folder, path = cache_path(options.cache_folder).parent, Path(source).absolute()
        return cls(ModelStore(folder / "models-v1", limit), _key(path, options), path, options)

    def find(self) -> CompiledModel | DynamicModel | None:
        """Return the stored model; None if there is none that compiling would also give.

        Unless the options say otherwise, it runs once, and its outputs are compared with those at
        the time when it was stored. What a start has checked is not checked again while the cost
        cache and the system stay as they are.
        """
        found = self.store.find(self.key, self.options.machine.threads)
        if found is None:
            return None
        try:
            program = self._checked(found)  # while checksums are computed
            if program is None or not found.is_sound:
                return None
        finally:
            found.drop()
        inputs = found.stored.inputs
        return program if inputs is None else self._open(program, inputs)

    def _open(self, program: CompiledModel, inputs: OpenInputs) -> DynamicModel:
        """Return the model for many shapes whose first program is this one."""
        from stridewise.runtime.execution.dynamic import DynamicModel  # noqa: PLC0415 (if needed)

        options, signature = self.options, program.call_signature
        model = DynamicModel(
            signature.graph.name,
            inputs.signature,
            signature.graph.outputs,
            _StoredSpecializer(self.path, options, program),
            max_programs=options.max_programs,
            max_nbytes=options.max_program_nbytes,
            arguments=inputs.arguments,
        )
        model.adopt(dict(inputs.shapes), program)
        return model

    def _checked(self, found: Found, *, anew: bool = False) -> CompiledModel | None:
        """Return the model of a file after the checks of :meth:`find`; see :func:`load_stored`.

        The caller compares the checksums of the weights, unless the model runs here.
        """
        stored, path = found.stored, self.store.checks(self.key)
        known = Checks.read(path, stored.digest)
        now = Checks(stored.digest, cache_state(self._costs), system_state())
        if not now.costs:
            return None
        if now.costs != known.costs:
            costs = self._checked_costs(stored)
            if costs is None:
                return None
            if costs.is_provisional:  # they may have expired at the next start
                now = dataclasses.replace(now, costs="")
        needs_run = self.options.verify and (not now.system or now.system != known.system)
        try:
            plan = _StoredPlan(self.path, self.options, stored)
            reorders = dict(stored.reorders)
            parts = stored.signature, stored.program, found.weights, plan, reorders
            model = load_stored(*parts, anew=anew)
            if (needs_run or now != known) and not found.is_sound:
                return None
            wrong = differing(stored.outputs, fingerprint(model)) if needs_run else ""
            if wrong:
                raise ExecutionError(wrong)
        except _UNUSABLE as error:
            _LOG.warning("stored model of %s is dropped and compiled again: %s", self.path, error)
            self.store.forget(self.key)
            return None
        if not self.options.verify:
            now = dataclasses.replace(now, system=known.system)
        if now != known:
            now.write(path)
        return model

    @property
    def _costs(self) -> Path:
        return cache_path(self.options.cache_folder)

    def _checked_costs(self, stored: StoredModel) -> CostCache | None:
        """Return the costs; None if they are others than those that a model was planned by."""
        # SQLite takes time to import, and most starts find the cost cache as it was.
        from stridewise.runtime.tuning.cost_cache import CostCache  # noqa: PLC0415
        from stridewise.runtime.tuning.kept import decisive  # noqa: PLC0415

        costs = CostCache(self.options.machine, self.options.cache_folder)
        is_alike = costs.digest(decisive(costs, stored.costs)) == stored.costs_digest
        return costs if is_alike else None

    def keep(self, made: Model, job: Job) -> None:
        """Store a compiled model, if that is possible; of one for many shapes, its first program.

        Args:
            made: the model, with the weights of its graph.
            job: the file and the costs that it was compiled from.
        """
        model, inputs = _first_program(made)
        stored = None if model is None else self._described(model, job, inputs)
        if model is None or stored is None:
            return
        taken = [0.0]

        def completed() -> StoredModel:
            found, taken[0] = _completed(stored, model)
            return found

        def check() -> None:
            is_wanted = self.options.verify and taken[0] < _CHECKED_S
            found = self.store.read(self.key) if is_wanted else None
            if found is not None:
                self._checked(found, anew=True)
                found.drop()

        self.store.keep_later(self.key, completed, model.weights, check)

    def _described(
        self, model: CompiledModel, job: Job, inputs: OpenInputs | None
    ) -> StoredModel | None:
        """Return what is known of a model before it is stored; None if it is not to be stored."""
        costs = job.costs
        if costs is None or not _is_plain(model):
            return None
        try:
            sources = tuple(stamp(path) for path in dict.fromkeys((self.path, *job.source.paths)))
        except OSError:
            return None
        changed = max(max(source[3], source[4]) for source in sources)
        from stridewise.runtime.tuning.kept import decisive  # noqa: PLC0415 (as above)

        digest = costs.digest(decisive(costs, costs.asked.copy()))
        if changed * 1e-9 > job.source.opened - _SETTLED_S or not digest:
            return None
        weights = model.weights
        return StoredModel(
            signature=model.call_signature,
            program=model.program,
            offsets=tuple(offset for _, offset in weights.places),
            nbytes=weights.own_nbytes,
            winograd_nbytes=sum(weights.winograd.values()),
            pieces=(),
            plan=b"",
            sources=sources,
            costs=tuple(sorted(costs.asked)),
            costs_digest=digest,
            outputs=(),
            inputs=inputs,
        )


def _first_program(model: Model) -> tuple[CompiledModel | None, OpenInputs | None]:
    """Return the program that is stored of a model, and its inputs if it is for many shapes."""
    from stridewise.runtime.execution.dynamic import DynamicModel  # noqa: PLC0415 (if needed)

    if isinstance(model, CompiledModel):
        return model, None
    if not isinstance(model, DynamicModel) or (first := model.first_program()) is None:
        return None, None
    shapes, program = first
    return program, OpenInputs(model.signature, model.input_names, tuple(shapes.items()))


def _completed(stored: StoredModel, model: CompiledModel) -> tuple[StoredModel, float]:
    """Return the stored model with its plan, checksums and outputs, and the seconds of a run."""
    from stridewise.runtime.binding.reorder_kernels import (  # noqa: PLC0415 (as above)
        planned_reorders,
    )

    # The alternatives in a plan's document are searched when it is written.
    document = zlib.compress(model.plan.to_json().encode(), 1)
    begin = time.monotonic()
    outputs = fingerprint(model)
    taken = time.monotonic() - begin
    threads = model.call_signature.threads
    program = with_names(stored.program, threads // stored.program.split.lanes)
    found = dataclasses.replace(
        stored,
        program=program,
        plan=document,
        pieces=checksums(model.weights, threads),
        outputs=outputs,
        reorders=tuple(planned_reorders(program)),
    )
    return found, taken


def _is_plain(model: CompiledModel) -> bool:
    """Return whether a model has only native steps, and one block of packed weights."""
    kernels = [step for step in model.program.steps if isinstance(step, KernelStep)]
    has_fallback = any(step.spec.kind == HOST for step in kernels)
    return not has_fallback and not model.has_tail and len(model.weights.blocks) == 1


class _StoredSpecializer:
    """Makes more programs of a model for many shapes; its file is read for the first of them."""

    def __init__(self, path: Path, options: Options, program: CompiledModel) -> None:
        self._path, self._options, self._program = path, options, program

    @cached_property
    def _specializer(self) -> ModelSpecializer:
        from stridewise.api.plans import reopened  # noqa: PLC0415 (a start does not need it)

        return reopened(self._path, self._options, self._program.plan)

    def model(self, shapes: Shapes, values: Values) -> CompiledModel:
        """Return a program for these shapes; see :class:`ModelSpecializer`.

        Raises:
            PlanError: the file has changed since the model was compiled, or is gone.
        """
        return self._specializer.model(shapes, values)

    def batch_outputs(
        self, shapes: Shapes, values: Values, inputs: frozenset[str]
    ) -> frozenset[str] | Refusal:
        """Return the outputs to cut from a larger batch; see :class:`ModelSpecializer`."""
        return self._specializer.batch_outputs(shapes, values, inputs)


@dataclass(frozen=True, slots=True)
class _StoredPlan(DeferredPlan):
    """The decisions of a stored model, to be restored for the graph in the model's file."""

    path: Path
    options: Options
    stored: StoredModel

    def restore(self) -> Plan:
        """Import the model's file and restore the plan.

        Raises:
            PlanError: the file has changed since, or is gone.
        """
        # The whole flow up to the plan, which a start does not need.
        from stridewise.api.restored import stored_plan  # noqa: PLC0415

        return stored_plan(self.path, self.options, self.stored)
