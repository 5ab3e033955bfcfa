"""Where a compiled model comes from, and how its graph is read again once its weights are gone."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from stridewise.api.models import load_file, model_file
from stridewise.api.request import Request
from stridewise.errors import PlanError, describe
from stridewise.graph import Graph
from stridewise.passes import passes_for, simplify
from stridewise.runtime.execution.model import Source
from stridewise.runtime.lowering.memory_limit import checked_limit
from stridewise.targets.onednn.target import ABILITY

__all__ = ["source_of"]


def source_of(request: Request) -> Source:
    """Return what will be known of a model that is about to be compiled.

    Nothing keeps what was handed over in memory, as that has the weights which a model lets go of.
    """
    if not isinstance(request.source, str | os.PathLike):
        return Source()
    path = Path(request.source).absolute()
    read = partial(_read, request, path, time.time())
    return Source(path=path, values=request.values or {}, read=read)


def _read(
    request: Request, path: Path, compiled_at: float, shapes: Mapping[str, tuple[int, ...]]
) -> Graph:
    """Return the simplified graph of a model file, for some shapes of its inputs.

    Raises:
        PlanError: the file has changed since the model was compiled.
        ModelError: the file is gone.
    """
    file = model_file(path, fallback=request.fallback)
    limit = checked_limit(request.memory_limit)
    graph = simplify(load_file(file, shapes, request.values, limit), passes_for(ABILITY)).graph
    for part in (path, *file.paths):
        state = part.stat()
        if max(state.st_mtime, state.st_ctime) > compiled_at:
            raise PlanError(
                describe(
                    f"model {graph.name!r}",
                    expected=f"{part.name} as it was when the model was compiled",
                    found="a file that has changed since",
                    fix="compile the model again",
                )
            )
    return graph
