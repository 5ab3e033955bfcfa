"""The arguments of :func:`stridewise.plan` and :func:`stridewise.compile`: names and types.

Their defaults are those of the fields of ``Request``; what they mean is said where users look, in
the docstrings of the two functions.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from typing import Any, Literal, TypedDict, TypeVar

from numpy.typing import ArrayLike

from stridewise.graph import Shapes
from stridewise.planner.derivation.derive import Origins
from stridewise.planner.problem.io_formats import Wanted
from stridewise.planning import Plan
from stridewise.targets.cost import Progress
from stridewise.targets.target import Accuracy, Precision

__all__ = [
    "CompileOptions",
    "GraphCompileOptions",
    "GraphOptions",
    "Later",
    "PlanOptions",
    "PlanSource",
    "TargetName",
    "Tune",
    "checked",
    "documented",
]

Tune = Literal["measure", "model"]

Later = Literal["follow", "tune"]
"""How shapes after the first are planned."""

TargetName = str | os.PathLike[str]
"""The name of a target of :data:`TARGETS`, or the path of a TOML file."""

PlanSource = str | os.PathLike[str] | Plan
"""Decisions to use again: a plan file, or a plan of the same graph."""

Function = TypeVar("Function", bound=Callable[..., Any])


class GraphOptions(TypedDict, total=False):
    """What may be asked for of a graph, whose shapes are fixed."""

    threads: int | None
    tune: Tune
    cache_dir: str | os.PathLike[str] | None
    origins: Origins | None
    input_formats: Wanted | None
    output_formats: Wanted | None
    progress: Progress | None
    memory_limit: int | None
    accuracy: Accuracy
    dtype: Precision
    weight_memory_limit: int | None
    plan: PlanSource | None


class PlanOptions(GraphOptions, total=False):
    """What may be asked for of any model."""

    shapes: Shapes | None
    values: Mapping[str, ArrayLike] | None
    fallback: bool


class GraphCompileOptions(GraphOptions, total=False):
    """What may be asked for of a graph that is to run."""

    streams: int
    ready_limit: int | None
    verify: bool
    keep_originals: bool


class CompileOptions(PlanOptions, total=False):
    """What may be asked for of a model that is to run, with any number of shapes."""

    streams: int
    ready_limit: int | None
    verify: bool
    keep_originals: bool
    max_programs: int
    max_program_nbytes: int | None
    later: Later


def checked(where: str, options: Mapping[str, Any], names: type) -> None:
    """Refuse arguments that a function does not have, as Python itself would.

    Args:
        where: the name of the function.
        options: what it was given.
        names: the typed dictionary of what it takes.

    Raises:
        TypeError: a name is none of these.
    """
    for name in options:
        if name not in names.__annotations__:
            raise TypeError(f"{where}() got an unexpected keyword argument {name!r}")


def documented(request: type, names: type) -> Callable[[Function], Function]:
    """Give a function the signature that its ``**options`` stand for, as ``help`` shows it.

    Args:
        request: the dataclass whose fields have the defaults.
        names: the typed dictionary of the options.
    """
    defaults = {item.name: item for item in fields(request)}

    def decorate(function: Function) -> Function:
        own = inspect.signature(function)
        named = [p for p in own.parameters.values() if p.kind != inspect.Parameter.VAR_KEYWORD]
        for name in sorted(names.__annotations__, key=list(defaults).index):
            item = defaults[name]
            default = inspect.Parameter.empty if item.default is MISSING else item.default
            kind = inspect.Parameter.KEYWORD_ONLY
            named.append(inspect.Parameter(name, kind, default=default, annotation=item.type))
        function.__signature__ = own.replace(parameters=named)  # pyright: ignore[reportFunctionMemberAccess]
        return function

    return decorate
