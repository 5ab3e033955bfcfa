"""The options of planning and compiling: names, types, defaults and documentation, in one place.

:class:`Options` holds the values of one call. The typed dictionaries say which options a public
function takes, so that type checkers know them. :func:`documented` shows both in ``help``.
"""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from math import isfinite
from numbers import Real
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Any,
    Literal,
    SupportsIndex,
    TypeAlias,
    TypedDict,
    TypeVar,
)

from stridewise.classes import dataclass
from stridewise.errors import InputError
from stridewise.runtime.execution.streams import stream_threads
from stridewise.runtime.machine.machine import this_machine
from stridewise.targets.target import NATIVE

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from stridewise.graph import Shapes
    from stridewise.planner.derivation.derive import Origins
    from stridewise.planner.problem.io_formats import Wanted
    from stridewise.planning import Plan
    from stridewise.targets.cost import Progress
    from stridewise.targets.machine import Machine
    from stridewise.targets.target import Accuracy, PrecisionChoice

__all__ = [
    "MAX_ERROR",
    "CompileOptions",
    "GraphCompileOptions",
    "GraphOptions",
    "NextShapes",
    "Options",
    "PlanOptions",
    "PlanSource",
    "TargetName",
    "Tune",
    "checked",
    "documented",
]

Tune = Literal["auto", "measure", "model"]
"""Whether costs of kernels are predicted from measured ones, measured, or estimated."""

NextShapes = Literal["follow", "tune"]
"""How shapes after the first are planned."""

TargetName = str | os.PathLike[str]
"""The name of a target, or the path of a TOML file."""

PlanSource: TypeAlias = "str | os.PathLike[str] | Plan"
"""Decisions to use again: a plan file, or a plan of the same graph."""

MAX_ERROR = 1e-2
"""Limit on the relative error of outputs, if none is given."""

_CHOICES = {
    "tune": ("auto", "measure", "model"),
    "accuracy": ("fast", "exact"),
    "dtype": ("model", "float32", "bfloat16", "auto"),
    "later": ("follow", "tune"),
}
"""Options that are one of some words."""

_AUTO_S = 1.0
"""How long ``tune="auto"`` may measure."""

_SIZES = ("weight_memory_limit", "store_limit")
"""Options that are a number of bytes, 0 or more, or None."""

_TYPES: tuple[tuple[str, Any, tuple[str, ...]], ...] = (
    ("True or False", bool, ("fallback", "keep_parameters", "verify", "keep_originals")),
    ("a whole number", SupportsIndex, ("threads", "streams", "max_programs", "max_program_nbytes")),
    ("a number of bytes, 0 or more", SupportsIndex, _SIZES),
    ("a number", Real, ("tune_seconds", "max_error")),
    (
        "a mapping by name",
        Mapping,
        ("shapes", "values", "origins", "input_formats", "output_formats"),
    ),
    ("a list of samples", Sequence, ("calibration",)),
    ("a path", (str, os.PathLike), ("cache_dir",)),
    ("a name or a path", (str, os.PathLike), ("target",)),
    ("a function", Callable, ("progress",)),
)
"""What options are, and their types; options with the default None may be None."""

Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """All options of :func:`stridewise.plan` and :func:`stridewise.compile`.

    Attributes:
        shapes: shapes of inputs, if the model leaves them open or others are wanted. An extent may
            be a number; a symbol ``"N"``, the same number wherever it appears in a call; a range
            ``"1..16"`` or ``(1, 16)``, both ends included; or a choice ``"1|4|16"`` or
            ``[1, 4, 16]``; a list of tuples is a choice of whole shapes. If the first extent is a
            batch whose items the model computes independently, a batch between two choices is
            padded to the larger one. A plan is for one shape: that of the least open extents.
        values: values of inputs, by name. These inputs become constants.
        threads: number of threads that run the model; by default the number that CPUs, their quotas
            and OpenMP's variables allow (``docs/environment.md``).
        streams: number of requests that run at the same time, 1 by default. Each has an equal share
            of the threads and an arena of its own, and all have the same weights. Plans are made
            for that share. See :meth:`CompiledModel.submit`, :meth:`CompiledModel.map` and
            ``docs/streams.md``.
        target: what to plan for: ``"onednn-cpu"`` (the default), ``"ascend"``,
            ``"openvino-gpu"``, or a TOML file that describes a target. All but the first are
            simulated: their costs come from the target, and ``threads``, ``tune`` and ``cache_dir``
            have no effect.
        tune: ``"auto"``, the default, takes costs from the cost cache and predicts others from
            those of similar kernels; see :func:`stridewise.calibrate`. It measures for at most a
            second in all, and only kernels that may change the plan. ``"measure"`` times all
            kernels that the cost cache lacks; ``compile`` then runs plans and keeps the result in
            the cost cache, and ``plan`` returns the plan of an earlier result, if there is one.
            ``"model"`` estimates all costs and uses no cache. For a model with open shapes, the
            first shape is tuned.
        tune_seconds: time limit of ``tune="measure"`` in seconds, above 0; 30 by default. Costs of
            kernels that were not measured by then are predicted.
        cache_dir: folder of the cost cache; the default is the user's cache folder.
        origins: for some inputs, the meaning of their axes in the model's own order, if operators
            do not define it: ``{"x": "NHWC"}``. A contradiction to an operator is an error.
        input_formats: for some inputs, the formats in which the caller can give them, by any name:
            ``{"x": ["NCHW", "NHWC"]}``. The plan picks one, which is in ``Plan.input_formats``;
            arrays then have its storage shape. By default inputs are in the model's own order.
        output_formats: likewise, the formats in which the caller can take outputs.
        progress: called as ``progress(done, total, kind)`` while kernels are timed.
        memory_limit: bytes that the model may need to run; by default three quarters of the memory.
        accuracy: ``"fast"``, the default, or ``"exact"`` to exclude Winograd convolution, which has
            larger rounding errors; see ``docs/winograd.md``.
        dtype: ``"model"`` computes quantized tensors by kernels on integers and all others in their
            own type; ``"float32"`` computes quantized tensors in float32; ``"bfloat16"`` also
            allows float32 tensors to be stored as bfloat16. Each applies where it is not slower.
            ``"auto"`` stores tensors as bfloat16, and with ``calibration`` also as integers of 8
            bits, within ``max_error``: the plan is the fastest whose predicted error is below that
            limit, and its error is checked on samples. It is timed beside plans of a single element
            type within the limit, and the fastest is used. See ``docs/precision.md``. Default:
            ``"model"``.
        max_error: with ``dtype="auto"``, the limit on the relative error of the outputs: the norm
            of the difference to float32 over the norm of the float32 result. Default: 0.01.
        calibration: with ``dtype="auto"``, a list of samples: arrays in the user's order by input
            name, tuples of arrays, or single arrays. The first half gives the ranges of integers,
            the next sample gives the sensitivities of tensors, and plans are checked on the rest;
            eight samples or more are recommended. By default samples are standard normal, and no
            tensor is rounded to integers.
        weight_memory_limit: bytes that the transformed weights of Winograd kernels may take,
            counted for each node; no limit by default. ``Plan.winograd_weights`` has the actual
            number.
        fallback: whether ONNX Runtime may compute nodes that Stridewise has no operator for; True
            by default.
        keep_parameters: whether the parameters of a graph can be changed after compiling
            (``model.parameters``); by default they become constants.
        plan: a plan file, or a plan of the same graph, whose decisions and costs are used again.
            Nothing is decided or timed then; ``tune`` and the formats have no effect.
        max_programs: number of shapes for which a :class:`DynamicModel` keeps a program; 8 by
            default.
        max_program_nbytes: limit on the bytes of the weights and arenas of these programs; by
            default only their number is limited.
        later: how a :class:`DynamicModel` plans shapes after the first: ``"follow"``, the default,
            reuses the decisions for the first shape and times nothing; ``"tune"`` tunes each shape
            like the first.
        store_limit: limit on the bytes of the stored models beside the cost cache. A tuned model is
            stored there, and the next process loads it. The default is 4 GiB; with 0 no model is
            stored or loaded. See ``docs/environment.md``.
        verify: whether a stored model runs once before it is first used since the machine was
            started, to compare its outputs for seeded inputs with those that were stored with it.
            If they differ, the model is compiled again, with a warning in the log. Default: True.
        keep_originals: whether the model keeps its original weights beside the packed ones; False
            by default. Without them the graph of its plan cannot be saved, annotated or compiled
            again; ``explain()``, ``why()`` and the report do not need them. A
            :class:`DynamicModel` always keeps them, because it packs further shapes from them.
    """

    shapes: Shapes | None = None
    values: Mapping[str, ArrayLike] | None = None
    threads: int | None = None
    streams: int = 1
    target: TargetName | None = None
    tune: Tune = "auto"
    tune_seconds: float = 30.0
    cache_dir: str | os.PathLike[str] | None = None
    origins: Origins | None = None
    input_formats: Wanted | None = None
    output_formats: Wanted | None = None
    progress: Progress | None = None
    memory_limit: int | None = None
    accuracy: Accuracy = "fast"
    dtype: PrecisionChoice = "model"
    max_error: float = MAX_ERROR
    calibration: Sequence[Mapping[str, ArrayLike] | Sequence[ArrayLike] | ArrayLike] | None = None
    weight_memory_limit: int | None = None
    fallback: bool = True
    keep_parameters: bool = False
    plan: PlanSource | None = None
    max_programs: int = 8
    max_program_nbytes: int | None = None
    later: NextShapes = "follow"
    store_limit: int | None = None
    verify: bool = True
    keep_originals: bool = False

    def __post_init__(self) -> None:
        self._check_types()
        for name, known in _CHOICES.items():
            given = getattr(self, name)
            if given not in known:
                expected = " or ".join(map(repr, known))
                raise InputError.at(name, expected=expected, found=repr(given))
        for name in _SIZES:
            size = getattr(self, name)
            if size is not None and size < 0:
                expected = "a number of bytes, 0 or more"
                raise InputError.at(name, expected=expected, found=repr(size))
        if not self.tune_seconds > 0:
            expected = "a number of seconds above 0"
            raise InputError.at("tune_seconds", expected=expected, found=repr(self.tune_seconds))
        if self.dtype in ("bfloat16", "auto") and not self.is_native:
            found = f"{self.dtype!r}, with target {os.fspath(self.target or '')}"
            expected, fix = "'model' or 'float32'", f"leave it out, or plan for {NATIVE}"
            raise InputError.at("dtype", expected=expected, found=found, fix=fix)
        if not (isfinite(self.max_error) and self.max_error > 0):
            expected = "a relative error above 0"
            raise InputError.at("max_error", expected=expected, found=repr(self.max_error))
        for name, default in (("calibration", None), ("max_error", MAX_ERROR)):
            if self.dtype != "auto" and getattr(self, name) != default:
                fix = f"choose it, or leave {name} out"
                raise InputError.at(name, expected="dtype 'auto'", found=repr(self.dtype), fix=fix)
        if self.dtype == "auto" and self.has_formats:
            found = "input_formats or output_formats"
            fix = "leave them out"
            expected = "inputs and outputs in the model's own order, for dtype 'auto'"
            raise InputError.at("dtype", expected=expected, found=found, fix=fix)
        if self.streams != 1:
            stream_threads(self.threads, self.streams)

    def _check_types(self) -> None:
        for expected, types, names in _TYPES:
            for name in names:
                given, default = getattr(self, name), type(self).__dataclass_fields__[name].default
                is_odd = isinstance(given, bool) and types is not bool
                if (given is None and default is None) or (isinstance(given, types) and not is_odd):
                    continue
                raise InputError.at(name, expected=expected, found=repr(given))

    @property
    def machine(self) -> Machine:
        """This machine, with as many threads as each stream has."""
        return this_machine(stream_threads(self.threads, self.streams))

    @property
    def is_native(self) -> bool:
        """Whether the target runs on this machine; other targets are simulated."""
        return self.target in (None, NATIVE)

    @property
    def has_formats(self) -> bool:
        """Whether the caller constrains the formats of inputs or outputs."""
        return bool(self.input_formats or self.output_formats)

    @property
    def measures(self) -> bool:
        """Whether the cost cache is used, and kernels may be measured."""
        return self.tune != "model" and self.is_native and self.plan is None

    @property
    def measuring_seconds(self) -> float:
        """How long a call may measure."""
        return self.tune_seconds if self.tune == "measure" else _AUTO_S

    @property
    def cache_folder(self) -> Path | None:
        """The folder of the cost cache; None for the user's cache folder."""
        return None if self.cache_dir is None else Path(self.cache_dir)


class GraphOptions(TypedDict, total=False):
    """Options for planning a graph, whose shapes are fixed."""

    threads: int | None
    tune: Tune
    tune_seconds: float
    cache_dir: str | os.PathLike[str] | None
    origins: Origins | None
    input_formats: Wanted | None
    output_formats: Wanted | None
    progress: Progress | None
    memory_limit: int | None
    accuracy: Accuracy
    dtype: PrecisionChoice
    max_error: float
    calibration: Sequence[Mapping[str, ArrayLike] | Sequence[ArrayLike] | ArrayLike] | None
    weight_memory_limit: int | None
    keep_parameters: bool
    plan: PlanSource | None


class PlanOptions(GraphOptions, total=False):
    """Options for planning any model."""

    shapes: Shapes | None
    values: Mapping[str, ArrayLike] | None
    fallback: bool


class GraphCompileOptions(GraphOptions, total=False):
    """Options for compiling a graph."""

    streams: int
    store_limit: int | None
    verify: bool
    keep_originals: bool


class CompileOptions(PlanOptions, GraphCompileOptions, total=False):
    """Options for compiling any model, for one shape or many."""

    max_programs: int
    max_program_nbytes: int | None
    later: NextShapes


def checked(where: str, options: Mapping[str, Any], names: type) -> None:
    """Refuse options that a function does not have, as Python itself would.

    Args:
        where: the name of the function.
        options: the keyword arguments of the call.
        names: the typed dictionary of the options.

    Raises:
        TypeError: an option is not in ``names``.
    """
    for name in options:
        if name not in names.__annotations__:
            raise TypeError(f"{where}() got an unexpected keyword argument {name!r}")


def documented(names: type) -> Callable[[Function], Function]:
    """Give a function the signature and documentation that its ``**options`` stand for.

    Defaults, types and texts are those of :class:`Options`. They replace the lines ``target:`` and
    ``**options:`` of the docstring.

    Args:
        names: the typed dictionary of the options.
    """
    entries = re.findall(r"(?m)^(    (\w+): .*(?:\n {8}.*)*)", inspect.getdoc(Options) or "")
    texts = {name: text for text, name in entries}
    listed = [item for item in fields(Options) if item.name in names.__annotations__]

    def decorate(function: Function) -> Function:
        own = inspect.signature(function)
        named = [p for p in own.parameters.values() if p.kind != inspect.Parameter.VAR_KEYWORD]
        for item in listed:
            kind = inspect.Parameter.KEYWORD_ONLY
            named.append(
                inspect.Parameter(item.name, kind, default=item.default, annotation=item.type)
            )
        function.__signature__ = own.replace(parameters=named)  # pyright: ignore[reportFunctionMemberAccess]
        if function.__doc__:  # there is none under python -OO
            lines = "\n".join(texts[item.name] for item in listed)
            doc = inspect.cleandoc(function.__doc__)
            doc = re.sub(r"(?m)^    target: .*$", lambda _: texts["target"], doc)
            function.__doc__ = re.sub(r"(?m)^    \*\*options: .*$", lambda _: lines, doc)
        return function

    return decorate
