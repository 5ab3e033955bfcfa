"""Models to test with, and what runs them: ONNX Runtime and the NumPy reference.

Small hand-made models are in ``small_models.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import ModelProto, numpy_helper

import stridewise as sw
from stridewise.frontends.onnx import randomize, rebatch
from stridewise.graph import Graph
from stridewise.ops import evaluate

from .small_models import small_models

__all__ = [
    "LIGHT_ATOL",
    "LIGHT_RTOL",
    "light_inputs",
    "light_model_with_reorders",
    "light_models",
    "light_output",
    "random_inputs",
    "randomize",
    "rebatch",
    "relative_error",
    "run_onnxruntime",
    "run_reference",
    "small_models",
    "torch_models",
]

Array = np.ndarray[Any, np.dtype[Any]]
F32 = np.float32

LIGHT_RTOL, LIGHT_ATOL = 1e-3, 1e-7
"""What ONNX's own backend tests allow for the light models."""


# --- models that exist ----------------------------------------------------------------------------


def light_models() -> dict[str, Path]:
    """The nine light models of the installed onnx package by name, like ``resnet50``."""
    folder = Path(onnx.__file__).parent / "backend/test/data/light"
    return {path.stem.removeprefix("light_"): path for path in sorted(folder.glob("*.onnx"))}


def light_model_with_reorders() -> str:
    """The name of a light model whose plan on this machine, by the analytic model, has reorders."""
    for name in ("squeezenet", "shufflenet", "bvlc_alexnet", "zfnet512"):
        if sw.plan(light_models()[name], tune="model", threads=2).reorders:
            return name
    raise AssertionError("no plan has reorders")


def light_inputs(path: Path) -> dict[str, Array]:
    """The inputs that the shipped outputs belong to: arange(n) / n, as ONNX's own runner feeds."""
    model = onnx.load(path)
    constants = {item.name for item in model.graph.initializer}
    (info,) = (item for item in model.graph.input if item.name not in constants)
    shape = tuple(dim.dim_value or 1 for dim in info.type.tensor_type.shape.dim)
    count = np.prod(shape)
    return {info.name: (np.arange(count).reshape(shape) / count).astype(F32)}


def light_output(path: Path) -> Array:
    """The shipped output of a light model."""
    tensor = onnx.load_tensor(path.with_name(f"{path.stem}_output_0.pb"))
    return numpy_helper.to_array(tensor)


def torch_models() -> dict[str, Path]:
    """The fixtures that ``tests/data/make_torch_models.py`` has written."""
    folder = Path(__file__).parent.parent / "data"
    return {path.stem: path for path in sorted(folder.glob("torch_*.onnx"))}


# --- running models -------------------------------------------------------------------------------


def in_onnxruntime(
    model: ModelProto | Path, *, joins: bool = True
) -> Callable[[Mapping[str, Array]], dict[str, Array]]:
    """A model that runs in ONNX Runtime; without ``joins`` each node is a kernel of its own."""
    options = onnxruntime.SessionOptions()
    if not joins:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    options.intra_op_num_threads = 1  # a pool of threads would spin between runs
    content = str(model) if isinstance(model, Path) else model.SerializeToString()
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    names = [item.name for item in session.get_outputs()]
    return lambda inputs: dict(zip(names, session.run(names, dict(inputs)), strict=True))


def run_onnxruntime(
    model: ModelProto | Path, inputs: Mapping[str, Array], *, joins: bool = True
) -> dict[str, Array]:
    """The outputs of ONNX Runtime by name; without ``joins`` each node is a kernel of its own."""
    return in_onnxruntime(model, joins=joins)(inputs)


def run_reference(graph: Graph, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """The outputs of a graph by name, computed node by node in NumPy."""
    values = {name: constant.array for name, constant in graph.constants.items()}
    values |= dict(inputs)
    for node in graph.nodes:
        operands = [values[name] if name else None for name in node.inputs]
        results = evaluate(node, operands)
        for name, result in zip(node.outputs, results, strict=True):
            expected = graph.value(name)
            assert (result.shape, result.dtype) == (expected.shape, expected.dtype.numpy), node
            values[name] = result
    return {name: values[name] for name in graph.outputs}


def random_inputs(graph: Graph, seed: int = 0) -> dict[str, Array]:
    """Seeded inputs of a graph."""
    rng = np.random.default_rng(seed)
    return {name: rng.normal(size=graph.value(name).shape).astype(F32) for name in graph.inputs}


def relative_error(found: Array, expected: Array) -> float:
    """The length of the difference over the length of what is expected."""
    wanted = expected.astype(np.float64)
    scale = max(float(np.linalg.norm(wanted)), 1e-30)
    return float(np.linalg.norm(found.astype(np.float64) - wanted)) / scale
