"""Changing ONNX models: seeded random weights, another batch size.

Models without real weights (all ones, for example) cannot test arithmetic, and models with a fixed
batch size cannot be compared at another one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, TensorProto, numpy_helper

from stridewise.errors import ModelError

__all__ = ["randomize", "rebatch"]

Array = NDArray[Any]
F32 = np.float32


def _copied(model: ModelProto) -> ModelProto:
    """Return a copy to change.

    Raises:
        ModelError: the model has external data.
    """
    for tensor in model.graph.initializer:
        if tensor.data_location == TensorProto.EXTERNAL:
            raise ModelError.at(
                f"initializer {tensor.name!r}",
                expected="data inside of the model, to change it",
                found="external data",
                fix="load it with onnx.load(path), which reads them",
            )
    result = ModelProto()
    result.CopyFrom(model)
    return result


def _trace(model: ModelProto) -> dict[str, tuple[NodeProto, int]]:
    """Return the consumer of each constant and the index of its input, ignoring reshapes."""
    readers: dict[str, tuple[NodeProto, int]] = {}
    for node in reversed(model.graph.node):
        for index, name in enumerate(node.input):
            through = index == 0 and node.op_type in ("Reshape", "Unsqueeze", "Identity")
            role = readers.get(node.output[0]) if through else None
            readers[name] = role or (node, index)
    return readers


def _draw(
    rng: np.random.Generator, shape: tuple[int, ...], role: tuple[NodeProto, int], gain: float
) -> Array:
    """Return random values for a constant by its role, so that activations keep their scale."""
    op, index = role[0].op_type, role[1]
    if op in ("Conv", "Gemm", "MatMul") and index == 1:
        trans_b = any(item.name == "transB" and item.i for item in role[0].attribute)
        rows = shape[0] if op == "MatMul" or (op == "Gemm" and not trans_b) else np.prod(shape[1:])
        return rng.normal(0, np.sqrt((2 if op == "Conv" else 1) / rows), shape)
    if op == "BatchNormalization":
        low, high = {1: (0.9, 1.1), 4: (0.5, 1.5)}.get(index, (-0.2, 0.2))
        return rng.uniform(low, high, shape) * (gain if index in (1, 2) else 1)
    return rng.uniform(0.9, 1.1, shape) if op == "Mul" else rng.normal(0, 0.05, shape)


def _residual_norms(model: ModelProto) -> set[str]:
    """Return scales and shifts of norms on residual branches, which are small after training.

    If all operands of a sum are norms, the last one is the shortcut.
    """
    norms = {node.output[0]: node for node in model.graph.node if node.op_type.startswith("Batch")}
    found: set[str] = set()
    for node in model.graph.node:
        if node.op_type in ("Add", "Sum"):
            operands = [norms[name] for name in node.input if name in norms]
            branches = operands[:-1] if len(operands) == len(node.input) else operands
            found.update(name for norm in branches for name in norm.input[1:3])
    return found


def randomize(model: ModelProto, seed: int = 0) -> ModelProto:
    """Return a copy with seeded random weights in place of all float constants.

    Weights are scaled after He et al. 2015, batch norms get positive variances around 1 and small
    shifts, and residual branches are small, so that activations keep their scale through deep
    networks. Constants become plain initializers.

    Args:
        model: what to copy; constants made by ConstantOfShape are replaced too.
        seed: seed of the generator; equal seeds give equal weights.

    Raises:
        ModelError: the model has external data.
    """
    result = _copied(model)
    graph = result.graph
    arrays = {item.name: numpy_helper.to_array(item) for item in graph.initializer}
    drawn = {name: data.shape for name, data in arrays.items() if data.dtype == F32}
    for node in graph.node:
        if node.op_type == "ConstantOfShape" and node.input[0] in arrays:
            drawn[node.output[0]] = tuple(arrays[node.input[0]].tolist())
    kept = [node for node in graph.node if node.output[0] not in drawn]
    arrays |= _weights(model, drawn, np.random.default_rng(seed))
    names = {name for node in kept for name in node.input}
    _replace(graph.node, kept)
    _replace(graph.input, [item for item in graph.input if item.name not in arrays])
    used = [numpy_helper.from_array(data, name) for name, data in arrays.items() if name in names]
    _replace(graph.initializer, used)
    result.ir_version = max(result.ir_version, 4)
    return result


def _weights(
    model: ModelProto, shapes: Mapping[str, tuple[int, ...]], rng: np.random.Generator
) -> dict[str, Array]:
    """Return random values of the given shapes for the constants of a model."""
    readers, small = _trace(model), _residual_norms(model)
    found = {
        name: _draw(rng, shape, readers[name], 0.2 if name in small else 1.0).astype(F32)
        for name, shape in shapes.items()
        if name in readers
    }
    # Variances and scales have different ranges; their ratio sets the scale of activations.
    for node in model.graph.node:
        if node.op_type == "BatchNormalization":
            found[node.input[1]] *= np.sqrt(found[node.input[4]])
    return found


def _replace(field: Any, items: Iterable[Any]) -> None:
    """Replace the items of a repeated field."""
    kept = list(items)
    del field[:]
    field.extend(kept)


def rebatch(model: ModelProto, n: int) -> ModelProto:
    """Return a copy for batch ``n``: inputs, outputs, and constant targets of Reshape are changed.

    Raises:
        ModelError: the model has no input with a batch, or external data.
    """
    result = _copied(model)
    graph = result.graph
    constants = {item.name: numpy_helper.to_array(item) for item in graph.initializer}
    for node in graph.node:
        if node.op_type == "Constant" and node.attribute[0].name == "value":
            constants[node.output[0]] = numpy_helper.to_array(node.attribute[0].t)
    info = next((item for item in graph.input if item.name not in constants), None)
    if info is None or not info.type.tensor_type.shape.dim:
        raise ModelError.at("model", expected="an input with a batch", found="none")
    old = info.type.tensor_type.shape.dim[0].dim_value
    for item in (*graph.input, *graph.output):
        if item.name not in constants and item.type.tensor_type.shape.dim:
            item.type.tensor_type.shape.dim[0].dim_value = n
    for number, node in enumerate(graph.node):
        if node.op_type != "Reshape" or node.input[0] in constants:
            continue
        target = constants.get(node.input[1])
        if target is not None and target[0] == old:
            name = f"rebatched.{number}"
            data = np.array([n, *target[1:]], np.int64)
            graph.initializer.append(numpy_helper.from_array(data, name))
            node.input[1] = name
    del graph.value_info[:]
    return result
