"""Models that an earlier process compiled: when they count, and how they come back."""

from __future__ import annotations

import hashlib
import logging
import os
import sys
import zlib
from collections.abc import Iterable, Mapping
from functools import cache, partial
from pathlib import Path

import numpy as np

from stridewise.api.request import NATIVE, Request
from stridewise.errors import ExecutionError, PlanError, describe
from stridewise.planner import derive
from stridewise.planner.documents import files
from stridewise.planner.split import WHOLE
from stridewise.planning import Plan
from stridewise.program import KernelStep
from stridewise.runtime.binding.library import library_info
from stridewise.runtime.execution.executor import CompiledModel
from stridewise.runtime.lowering.memory_limit import checked_limit
from stridewise.runtime.store.fingerprint import differing, fingerprint
from stridewise.runtime.store.stored_models import Ready, ReadyModels, checksums, stamp
from stridewise.runtime.tuning.cost_cache import CostCache, cache_path
from stridewise.targets.onednn.target import onednn_cpu

__all__ = ["DEFAULT_LIMIT", "find_ready", "keep_ready"]

_LOG = logging.getLogger("stridewise")

DEFAULT_LIMIT = 4 << 30
"""Bytes that ready models may take in a folder."""

_UNUSABLE = (
    ExecutionError, ArithmeticError, LookupError, TypeError, ValueError, AttributeError,
)  # fmt: skip
"""Errors of a stored program that counts on what is not there."""

_SETTLED_S = 2.0
"""Age from which a change of a file shows in its times on every file system."""


def _store(request: Request) -> ReadyModels:
    folder = cache_path(None if request.cache_dir is None else Path(request.cache_dir)).parent
    limit = DEFAULT_LIMIT if request.ready_limit is None else request.ready_limit
    return ReadyModels(folder / "ready-v1", limit)


def _costs(request: Request) -> CostCache:
    folder = None if request.cache_dir is None else Path(request.cache_dir)
    return CostCache(request.machine, folder)


def _path(request: Request) -> Path | None:
    """Return the file of a model that may be kept; None for what is not."""
    if not isinstance(request.source, str | os.PathLike) or request.tune != "measure":
        return None
    if request.target not in (None, NATIVE) or request.plan is not None:
        return None
    return Path(request.source).absolute()


@cache
def _code() -> str:
    """Return what tells this code, its native core and the libraries from any others."""
    root = Path(__file__).parent.parent
    parts = [stamp(path) for path in sorted((*root.rglob("*.py"), *root.glob("_core*.so")))]
    found = (parts, stamp(library_info().path), np.__version__, sys.version)
    return hashlib.sha256(repr(found).encode()).hexdigest()


def _key(request: Request, path: Path) -> str:
    """Return the name of a ready model: all that it depends on but the content of files."""
    given = {name: np.asarray(value) for name, value in (request.values or {}).items()}
    values = {name: (item.dtype.str, item.shape, item.tobytes()) for name, item in given.items()}
    parts = (
        str(path),
        sorted((request.shapes or {}).items()),
        sorted(values.items()),
        str(request.machine),
        request.streams,
        checked_limit(request.memory_limit),
        request.accuracy,
        request.dtype,
        request.weight_memory_limit,
        request.fallback,
        *map(_spelled, (request.origins, request.input_formats, request.output_formats)),
        _code(),
    )
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def _spelled(given: Mapping[str, object] | None) -> list[tuple[str, str]]:
    """Return formats by name as text."""
    return sorted((name, str(wanted)) for name, wanted in (given or {}).items())


def find_ready(request: Request) -> CompiledModel | None:
    """Return a model as an earlier process compiled it, where that is what a search would give.

    Unless the request says otherwise, it runs once, and what it computes is compared with what it
    computed when it was stored. Its plan is restored from the model's file when it is asked for.
    """
    path, store = _path(request), _store(request)
    if path is None or not store.limit:
        return None
    key = _key(request, path)
    found = store.find(key)
    if found is None:
        return None
    ready, weights = found
    if _costs(request).digest(ready.costs) != ready.costs_digest:
        return None
    wrong = ""
    try:
        model = CompiledModel.ready(
            ready.face, ready.program, weights, partial(_restored, request, ready)
        )
        if request.verify:
            wrong = differing(ready.outputs, fingerprint(model))
    except _UNUSABLE as error:
        wrong = str(error)
    else:
        if not wrong:
            return model
    _LOG.warning("stored model of %s is dropped and compiled again: %s", path, wrong)
    store.forget(key)
    return None


def keep_ready(
    request: Request, model: CompiledModel, costs: CostCache, paths: Iterable[Path], opened: float
) -> None:
    """Keep a model that was tuned for the next process, where that is possible.

    Args:
        request: how it was wanted.
        model: what was compiled.
        costs: the cache that its search has asked.
        paths: the files that it was read from.
        opened: when reading began, in seconds since the epoch.
    """
    path, store = _path(request), _store(request)
    if path is None or not store.limit or not _is_plain(model):
        return
    try:
        sources = tuple(stamp(source) for source in dict.fromkeys((path, *paths)))
    except OSError:
        return
    changed = max(max(source[3], source[4]) for source in sources)
    digest = costs.digest(costs.asked)
    if changed * 1e-9 > opened - _SETTLED_S or not digest:
        return
    program = model.lowered()
    if (program.constants, program.arena_nbytes) != (
        model.program.constants, model.program.arena_nbytes
    ):  # fmt: skip
        return
    weights, threads = model.weights, model.face.threads
    ready = Ready(
        face=model.face,
        program=program,
        offsets=tuple(offset for _, offset in weights.places),
        nbytes=weights.own_nbytes,
        winograd_nbytes=sum(weights.winograd.values()),
        pieces=checksums(weights, threads),
        plan=zlib.compress(model.plan.to_json().encode(), 1),
        sources=sources,
        costs=tuple(sorted(costs.asked)),
        costs_digest=digest,
        outputs=fingerprint(model),
    )
    store.keep(_key(request, path), ready, weights)


def _is_plain(model: CompiledModel) -> bool:
    """Return whether a model consists of native steps and weights of its own alone."""
    kernels = [step for step in model.program.steps if isinstance(step, KernelStep)]
    on_host = any(step.spec.kind == "host" for step in kernels)
    return not on_host and not model.has_tail and len(model.weights.blocks) == 1


def _restored(request: Request, ready: Ready) -> Plan:
    """Return the plan of a ready model: its decisions, for the graph in the model's file."""
    where = f"model {ready.face.graph.name!r}"
    if not ready.is_current:
        raise PlanError(
            describe(
                where,
                expected="the file that it was compiled from, to restore its plan",
                found="a file that has changed since, or none",
                fix="compile the model again",
            )
        )
    record = files.parsed(zlib.decompress(ready.plan).decode(), where)
    if record.split != WHOLE:
        shapes = {value.name: value.shape for value in ready.face.graph.values.values()}
        request = request.part(record.split, {n: shapes[n] for n in ready.face.graph.inputs})
    machine = request.machine
    derived = derive(request.simplified().graph, request.origins)
    target = onednn_cpu(machine, request.accuracy, request.dtype)
    return Plan.of(files.restore(record, derived, target, machine, where))
