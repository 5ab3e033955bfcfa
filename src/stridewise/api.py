"""What users call: the stages put together."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from stridewise.errors import InputError, describe
from stridewise.graph import Graph
from stridewise.graph.verify import verify
from stridewise.ops import infer
from stridewise.passes import simplify
from stridewise.planner import Plan, derive, make_plans
from stridewise.planner.annotate import annotated
from stridewise.planner.cost import KernelOracle, Progress, Roofline
from stridewise.planner.targets import Machine, onednn_cpu
from stridewise.runtime.cache import CostCache
from stridewise.runtime.contest import fastest
from stridewise.runtime.executor import CompiledModel
from stridewise.runtime.machine import last_level_cache_nbytes, this_machine
from stridewise.runtime.oracle import MeasuringOracle

if TYPE_CHECKING:
    from onnx import ModelProto

__all__ = ["Tune", "annotate", "compile", "load", "plan", "save"]

Tune = Literal["measure", "model"]

TARGETS = {"onednn-cpu": onednn_cpu}

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


def _plans(
    source: str | os.PathLike[str] | bytes | Graph | ModelProto,
    shapes: Mapping[str, Sequence[int]] | None,
    target: str,
    machine: Machine,
    tune: Tune,
    cache: CostCache,
    progress: Progress | None,
) -> tuple[Plan, ...]:
    """Return the cheapest plan, and the cheapest in each kind of format."""
    if target not in TARGETS:
        raise InputError(
            describe("target", expected=f"one of {', '.join(TARGETS)}", found=repr(target))
        )
    if tune not in ("measure", "model"):
        raise InputError(describe("tune", expected="'measure' or 'model'", found=repr(tune)))
    chosen = TARGETS[target](machine)
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
    target: str = "onednn-cpu",
    tune: Tune = "measure",
    cache_dir: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
) -> Plan:
    """Decide how every tensor of a model is stored and which kernel computes each node.

    Args:
        source: path of an ONNX file, its bytes, an ``onnx.ModelProto``, or a graph.
        shapes: shapes of inputs, where the model leaves them open or others are wanted.
        threads: how many threads will run the model; all CPUs of this process by default.
        target: what to plan for; ``"onednn-cpu"``.
        tune: ``"measure"`` times the kernels that the cost cache lacks, ``"model"`` estimates all.
        cache_dir: folder of the cost cache; the user's cache folder by default.
        progress: called as ``progress(done, total, kind)`` while kernels are timed.

    Raises:
        ModelError: the model is damaged or uses something unsupported.
        InputError: an argument does not fit.
        PlanError: no combination of kernels computes the model.
        LibraryError: libdnnl cannot be loaded.
    """
    machine = this_machine(threads)
    cache = CostCache(machine, None if cache_dir is None else Path(cache_dir))
    return _plans(source, shapes, target, machine, tune, cache, progress)[0]


def compile(  # noqa: A001 (the public name; the built-in is never wanted beside it)
    source: str | os.PathLike[str] | bytes | Graph | ModelProto,
    *,
    shapes: Mapping[str, Sequence[int]] | None = None,
    threads: int | None = None,
    target: str = "onednn-cpu",
    tune: Tune = "measure",
    cache_dir: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
) -> CompiledModel:
    """Make a model ready to run; the arguments are those of :func:`plan`.

    With ``tune="measure"`` the plan is run against the uniform ones that promise to come near it,
    and gives way to one that is clearly faster on the clock. The outcome is kept in the cache.

    Raises:
        ModelError: the model is damaged or uses something unsupported.
        InputError: an argument does not fit.
        PlanError: no combination of kernels computes the model.
        LibraryError: libdnnl cannot be loaded.
        ExecutionError: the library refuses a kernel that the plan counts on.
    """
    machine = this_machine(threads)
    cache = CostCache(machine, None if cache_dir is None else Path(cache_dir))
    plans = _plans(source, shapes, target, machine, tune, cache, progress)
    return fastest(plans, cache) if tune == "measure" else CompiledModel(plans[0])


def save(
    graph: Graph, path: str | os.PathLike[str], *, external_above: int = 2_000_000_000
) -> None:
    """Write a graph as an ONNX model of opset 17, or 20 where an operator needs it.

    Values and nodes keep their names. Post-ops of a simplified graph become nodes of their own,
    and equal graphs give equal bytes. An existing file is replaced once the new one is whole.

    Args:
        graph: built with :class:`GraphBuilder`, loaded, or simplified.
        path: the file; its folder must exist.
        external_above: bytes of weights above which they go to a second file, ``path`` followed by
            ``.data``. Above 2 GB, which no ONNX file can hold, they always do.

    Raises:
        GraphError: the graph breaks an invariant.
        ModelError: ONNX has no counterpart for an operator, a form of it, or an element type.
        InputError: the file cannot be written.
    """
    verify(graph, infer)
    from stridewise import __version__  # noqa: PLC0415 (the package imports this module)
    from stridewise.frontends.onnx import save_model  # noqa: PLC0415 (onnx takes time to load)

    save_model(graph, path, version=__version__, external_above=external_above)


def annotate(plan: Plan, path: str | os.PathLike[str], *, weights: bool = True) -> None:
    """Write a plan as an ONNX model for viewers like Netron.

    The nodes are those of the planned graph, and every reorder is a node of its own on the edge
    that it sits on. Metadata name the kernel, formats and cost of each node, Origin and Storage of
    each value, and machine, target and proof of the whole. Runtimes that take local functions can
    run the file, and get what the model gives.

    Args:
        plan: what to show.
        path: the file; its folder must exist. Weights above 2 GB go to a file beside it.
        weights: False leaves out the weights, to keep the file small; zeros stand in for them.

    Raises:
        ModelError: ONNX has no counterpart for an operator, a form of it, or an element type.
        InputError: the file cannot be written.
    """
    from stridewise import __version__  # noqa: PLC0415 (the package imports this module)
    from stridewise.frontends.onnx import Notes, annotate_model  # noqa: PLC0415 (as above)

    found = annotated(plan)
    notes = Notes(found.model, found.nodes, found.values)
    annotate_model(found.graph, notes, path, version=__version__, weights=weights)
