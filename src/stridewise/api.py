"""What users call: the stages put together."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, overload

from stridewise.errors import InputError, describe
from stridewise.graph import Graph
from stridewise.graph.verify import verify
from stridewise.ops import infer
from stridewise.passes import simplify
from stridewise.planner import Plan, derive, make_plans
from stridewise.planner.cost import KernelOracle, Progress, Roofline
from stridewise.planner.targets import (
    SHIPPED,
    Machine,
    TableTarget,
    load_target,
    onednn_cpu,
    shipped,
)
from stridewise.runtime.cache import CostCache
from stridewise.runtime.contest import fastest
from stridewise.runtime.executor import CompiledModel
from stridewise.runtime.machine import last_level_cache_nbytes, this_machine
from stridewise.runtime.model import Model
from stridewise.runtime.oracle import MeasuringOracle
from stridewise.runtime.simulate import SimulatedModel

if TYPE_CHECKING:
    from onnx import ModelProto

__all__ = ["TARGETS", "TargetName", "Tune", "compile", "load", "plan"]

Tune = Literal["measure", "model"]

TargetName = str | os.PathLike[str]
"""The name of a target of :data:`TARGETS`, or the path of a TOML file."""

_NATIVE = "onednn-cpu"

TARGETS = (_NATIVE, *SHIPPED)
"""Names of targets. The first runs on this machine; the others are simulated."""

# One AVX-512 core of today does about 100 GFLOP/s in float32 and shares some 40 GB/s.
_FLOPS_PER_CORE = {True: 1.0e11, False: 5.0e10}
_BANDWIDTH = 4.0e10


def load(
    source: str | os.PathLike[str] | bytes | Graph | ModelProto,
    shapes: Mapping[str, Sequence[int]] | None = None,
) -> Graph:
    """Return the graph of a model, as the user wrote it.

    Args:
        source: path of an ONNX file, its bytes, an ``onnx.ModelProto``, or a graph.
        shapes: shapes of inputs, where the model leaves them open or others are wanted.

    Raises:
        ModelError: the model is damaged or uses something unsupported.
        InputError: ``shapes`` names no input of the model, or does not fit it.
        GraphError: a given graph breaks an invariant.
    """
    if isinstance(source, Graph):
        if shapes:
            raise InputError(
                describe(
                    "shapes",
                    expected="none for a graph, whose shapes are fixed",
                    found=", ".join(shapes),
                    fix="build the graph with those shapes",
                )
            )
        verify(source, infer)
        return source
    from stridewise.frontends.onnx import import_model  # noqa: PLC0415 (onnx takes time to load)

    if isinstance(source, os.PathLike):
        source = Path(source)
    return import_model(source, shapes=shapes)


def _table(target: TargetName) -> TableTarget | None:
    """Return a target of formats and rates, or None for the one with kernels."""
    name = os.fspath(target)
    if name == _NATIVE:
        return None
    if name in SHIPPED:
        return shipped(name)
    if isinstance(target, str) and not name.endswith(".toml"):
        raise InputError(
            describe(
                "target",
                expected=f"one of {', '.join(TARGETS)}, or a .toml file",
                found=repr(name),
            )
        )
    return load_target(name)


def _table_plan(
    source: str | os.PathLike[str] | bytes | Graph | ModelProto,
    shapes: Mapping[str, Sequence[int]] | None,
    table: TableTarget,
) -> Plan:
    simplified = simplify(load(source, shapes))
    derived = derive(simplified.graph)
    return make_plans(derived, table, table.machine, table, refusals=simplified.refusals)[0]


def _plans(
    source: str | os.PathLike[str] | bytes | Graph | ModelProto,
    shapes: Mapping[str, Sequence[int]] | None,
    machine: Machine,
    tune: Tune,
    cache: CostCache,
    progress: Progress | None,
) -> tuple[Plan, ...]:
    """Return the cheapest plan for this machine, and the cheapest in each kind of format."""
    if tune not in ("measure", "model"):
        raise InputError(describe("tune", expected="'measure' or 'model'", found=repr(tune)))
    chosen = onednn_cpu(machine)
    simplified = simplify(load(source, shapes))
    oracle: KernelOracle
    if tune == "measure":
        weights = sum(item.array.nbytes for item in simplified.graph.constants.values())
        cold = weights > last_level_cache_nbytes() // 2
        oracle = MeasuringOracle(machine, cache, cold_weights=cold)
    else:
        peak = machine.threads * _FLOPS_PER_CORE[machine.has_avx512]
        oracle = Roofline(peak, _BANDWIDTH, chosen.efficiency)
    return make_plans(
        derive(simplified.graph), chosen, machine, oracle, progress, simplified.refusals
    )


def plan(
    source: str | os.PathLike[str] | bytes | Graph | ModelProto,
    *,
    shapes: Mapping[str, Sequence[int]] | None = None,
    threads: int | None = None,
    target: TargetName = _NATIVE,
    tune: Tune = "measure",
    cache_dir: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
) -> Plan:
    """Decide how every tensor of a model is stored and which kernel computes each node.

    Args:
        source: path of an ONNX file, its bytes, an ``onnx.ModelProto``, or a graph.
        shapes: shapes of inputs, where the model leaves them open or others are wanted.
        threads: how many threads will run the model; all CPUs of this process by default.
        target: what to plan for: ``"onednn-cpu"``, ``"ascend"``, ``"openvino-gpu"``, or a TOML
            file that describes a target. All but the first have costs of their own; ``threads``,
            ``tune`` and ``cache_dir`` mean nothing to them.
        tune: ``"measure"`` times the kernels that the cost cache lacks, ``"model"`` estimates all.
        cache_dir: folder of the cost cache; the user's cache folder by default.
        progress: called as ``progress(done, total, kind)`` while kernels are timed.

    Raises:
        ModelError: the model is damaged or uses something unsupported.
        InputError: an argument does not fit.
        TargetError: the file of a target is damaged.
        PlanError: no combination of kernels computes the model.
        LibraryError: libdnnl cannot be loaded.
    """
    table = _table(target)
    if table is not None:
        return _table_plan(source, shapes, table)
    machine = this_machine(threads)
    cache = CostCache(machine, None if cache_dir is None else Path(cache_dir))
    return _plans(source, shapes, machine, tune, cache, progress)[0]


@overload
def compile(  # noqa: A001
    source: str | os.PathLike[str] | bytes | Graph | ModelProto,
    *,
    shapes: Mapping[str, Sequence[int]] | None = None,
    threads: int | None = None,
    target: Literal["onednn-cpu"] = "onednn-cpu",
    tune: Tune = "measure",
    cache_dir: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
) -> CompiledModel: ...


@overload
def compile(  # noqa: A001
    source: str | os.PathLike[str] | bytes | Graph | ModelProto,
    *,
    shapes: Mapping[str, Sequence[int]] | None = None,
    threads: int | None = None,
    target: TargetName,
    tune: Tune = "measure",
    cache_dir: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
) -> Model: ...


def compile(  # noqa: A001 (the public name; the built-in is never wanted beside it)
    source: str | os.PathLike[str] | bytes | Graph | ModelProto,
    *,
    shapes: Mapping[str, Sequence[int]] | None = None,
    threads: int | None = None,
    target: TargetName = _NATIVE,
    tune: Tune = "measure",
    cache_dir: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
) -> Model:
    """Make a model ready to run; the arguments are those of :func:`plan`.

    For ``"onednn-cpu"`` the result is a :class:`CompiledModel`. For other targets it is a
    :class:`SimulatedModel`, which stores every tensor as the plan says and computes with NumPy.

    With ``tune="measure"`` the plan is run against the uniform ones that promise to come near it,
    and gives way to one that is clearly faster on the clock. The outcome is kept in the cache.

    Raises:
        ModelError: the model is damaged or uses something unsupported.
        InputError: an argument does not fit.
        TargetError: the file of a target is damaged.
        PlanError: no combination of kernels computes the model.
        LibraryError: libdnnl cannot be loaded.
        ExecutionError: the library refuses a kernel that the plan counts on.
    """
    table = _table(target)
    if table is not None:
        return SimulatedModel(_table_plan(source, shapes, table))
    machine = this_machine(threads)
    cache = CostCache(machine, None if cache_dir is None else Path(cache_dir))
    plans = _plans(source, shapes, machine, tune, cache, progress)
    return fastest(plans, cache) if tune == "measure" else CompiledModel(plans[0])
