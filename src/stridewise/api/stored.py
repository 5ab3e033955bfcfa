"""The compiled-model store around the flow: which models are stored, and under which key."""

from __future__ import annotations

import dataclasses
import hashlib
import logging
import os
import sys
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from stridewise.api.restored import restored_record
from stridewise.compiler import compile_model
from stridewise.errors import ExecutionError, PlanError
from stridewise.frontends.registry import ModelSource, open_model
from stridewise.job import Job
from stridewise.options import Options
from stridewise.planner.documents import files
from stridewise.planning import Plan
from stridewise.program import KernelStep
from stridewise.runtime.binding.library import library_info
from stridewise.runtime.execution.executor import CompiledModel
from stridewise.runtime.execution.loading import load_stored
from stridewise.runtime.lowering.memory_limit import checked_limit
from stridewise.runtime.store.fingerprint import differing, fingerprint
from stridewise.runtime.store.stored_models import ModelStore, Stamp, StoredModel, checksums, stamp
from stridewise.runtime.tuning.cost_cache import CostCache, cache_path
from stridewise.runtime.tuning.oracle import decisive
from stridewise.targets.kernels import HOST

__all__ = ["DEFAULT_LIMIT", "StoreEntry"]

_LOG = logging.getLogger("stridewise")

DEFAULT_LIMIT = 4 << 30
"""Bytes that stored models may take in a folder."""

_UNUSABLE = (
    ExecutionError, ArithmeticError, LookupError, TypeError, ValueError, AttributeError,
)  # fmt: skip
"""Errors of a stored program that does not fit this process."""

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

    def find(self) -> CompiledModel | None:
        """Return the stored model; None if there is none that compiling would also give.

        Unless the options say otherwise, it runs once, and its outputs are compared with those at
        the time when it was stored.
        """
        found = self.store.find(self.key, self.options.machine.threads)
        if found is None:
            return None
        stored, weights = found
        costs = CostCache(self.options.machine, self.options.cache_folder)
        if costs.digest(decisive(costs, stored.costs)) != stored.costs_digest:
            return None
        wrong = ""
        try:
            plan = _StoredPlan(self.path, self.options, stored)
            model = load_stored(stored.signature, stored.program, weights, plan)
            if self.options.verify:
                wrong = differing(stored.outputs, fingerprint(model))
        except _UNUSABLE as error:
            wrong = str(error)
        else:
            if not wrong:
                return model
        _LOG.warning("stored model of %s is dropped and compiled again: %s", self.path, wrong)
        self.store.forget(self.key)
        return None

    def keep(self, model: CompiledModel, job: Job) -> None:
        """Store a compiled model, if that is possible.

        Args:
            model: the model, with the weights of its graph.
            job: the file and the costs that it was compiled from.
        """
        costs = job.costs
        if costs is None or costs.is_provisional or not _is_plain(model):
            return
        try:
            sources = tuple(stamp(path) for path in dict.fromkeys((self.path, *job.source.paths)))
        except OSError:
            return
        changed = max(max(source[3], source[4]) for source in sources)
        digest = costs.digest(decisive(costs, costs.asked.copy()))
        if changed * 1e-9 > job.source.opened - _SETTLED_S or not digest:
            return
        weights, signature, plan = model.weights, model.call_signature, model.plan
        stored = StoredModel(
            signature=signature,
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
        )

        def completed() -> StoredModel:
            # The alternatives in a plan's document are searched when it is written.
            document = zlib.compress(plan.to_json().encode(), 1)
            return dataclasses.replace(
                stored, plan=document, pieces=checksums(weights), outputs=fingerprint(model)
            )

        self.store.keep_later(self.key, completed, weights)


def _is_plain(model: CompiledModel) -> bool:
    """Return whether a model has only native steps, and one block of packed weights."""
    kernels = [step for step in model.program.steps if isinstance(step, KernelStep)]
    has_fallback = any(step.spec.kind == HOST for step in kernels)
    return not has_fallback and not model.has_tail and len(model.weights.blocks) == 1


@dataclass(frozen=True, slots=True)
class _StoredPlan:
    """The decisions of a stored model, to be restored for the graph in the model's file."""

    path: Path
    options: Options
    stored: StoredModel

    def restore(self) -> Plan:
        """Import the model's file and restore the plan.

        Raises:
            PlanError: the file has changed since, or is gone.
        """
        graph = self.stored.signature.graph
        where = f"model {graph.name!r}"
        if not self.stored.is_current:
            expected = "the file that it was compiled from, to restore its plan"
            found, fix = "a file that has changed since, or none", "compile the model again"
            raise PlanError.at(where, expected=expected, found=found, fix=fix)
        record = files.parsed(zlib.decompress(self.stored.plan).decode(), where)
        shapes = {name: graph.values[name].shape for name in graph.inputs}
        job = Job.of(open_model(self.path, fallback=self.options.fallback), self.options)
        job, choose = restored_record(job, record, where, shapes)
        return compile_model(job, choose, until="plan")
