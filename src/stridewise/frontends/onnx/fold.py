"""Computing nodes whose inputs are all constants.

Most constant nodes go through the handlers: their operators are evaluated as soon as all operands
are known. The table here has the rest that shape arithmetic needs, mostly on integers and
booleans. What neither knows is left to ONNX's reference implementation, which is slow to import.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np
from onnx import helper

from stridewise.frontends.onnx.importer import Importer
from stridewise.frontends.onnx.proto import OnnxNode
from stridewise.ops.registry import Array

__all__ = ["by_reference", "fold"]

Fold = Callable[[OnnxNode, list[Array]], Array | None]


def _remainder(node: OnnxNode, x: list[Array]) -> Array:
    """Source: ONNX, operator Mod: the sign of the divisor, or with ``fmod`` of the dividend."""
    return np.fmod(x[0], x[1]) if node.integer("fmod", 0) else np.mod(x[0], x[1])


def _range(_node: OnnxNode, x: list[Array]) -> Array:
    start, limit, delta = (item.reshape(()).item() for item in x)
    return np.arange(start, limit, delta, dtype=x[0].dtype)


def _reversed(node: OnnxNode, x: list[Array]) -> Array | None:
    """Compute a slice with a negative step, which the graph's operator doesn't have.

    Exporters reverse lists of pads by it.
    """
    if not node.input(4) or min(x[-1].reshape(-1), default=1) > 0:
        return None
    data, starts, ends, steps = x[0], x[1].reshape(-1), x[2].reshape(-1), x[-1].reshape(-1)
    axes = x[3].reshape(-1) if node.input(3) else np.arange(starts.size)
    keys: list[slice] = [slice(None)] * data.ndim
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        stop = int(end) + (data.shape[int(axis)] if end < 0 else 0)
        # What lies before the first element is -1 for ONNX and None for Python.
        keys[int(axis)] = slice(int(start), None if stop < 0 else stop, int(step))
    return data[tuple(keys)]


_FOLDS: dict[str, Fold] = {
    "Abs": lambda _node, x: np.abs(x[0]),
    "And": lambda _node, x: np.logical_and(x[0], x[1]),
    "Ceil": lambda _node, x: np.ceil(x[0]),
    "Floor": lambda _node, x: np.floor(x[0]),
    "Greater": lambda _node, x: np.greater(x[0], x[1]),
    "GreaterOrEqual": lambda _node, x: np.greater_equal(x[0], x[1]),
    "Less": lambda _node, x: np.less(x[0], x[1]),
    "LessOrEqual": lambda _node, x: np.less_equal(x[0], x[1]),
    "Mod": _remainder,
    "Neg": lambda _node, x: np.negative(x[0]),
    "Not": lambda _node, x: np.logical_not(x[0]),
    "Or": lambda _node, x: np.logical_or(x[0], x[1]),
    "Pow": lambda _node, x: np.power(x[0], x[1]).astype(x[0].dtype),
    "Range": _range,
    "Slice": _reversed,
    "Sqrt": lambda _node, x: np.sqrt(x[0]),
}


def _operands(importer: Importer, node: OnnxNode) -> list[Array]:
    found = [importer.const(name) for name in node.inputs if name]
    return [item for item in found if item is not None]


def fold(importer: Importer, node: OnnxNode) -> bool:
    """Compute a node of constants by the table; return False where the table doesn't know it."""
    function = _FOLDS.get(node.op_type)
    if function is None:
        return False
    result = function(node, _operands(importer, node))
    if result is None:
        return False
    importer.define(node.outputs[0], np.asarray(result))
    return True


def by_reference(importer: Importer, node: OnnxNode) -> None:
    """Compute a node of constants by ONNX's reference implementation.

    Raises:
        ModelError: it doesn't know the operator either, or refuses the inputs.
    """
    from onnx.reference import ReferenceEvaluator  # noqa: PLC0415 (takes half a second)

    names = sorted({name for name in node.inputs if name})
    results = [name for name in node.outputs if name]
    graph = helper.make_graph(
        [node.proto],
        "constant",
        [helper.make_empty_tensor_value_info(name) for name in names],
        [helper.make_empty_tensor_value_info(name) for name in results],
    )
    opsets = [helper.make_opsetid("", node.opset)]
    model = helper.make_model(graph, opset_imports=opsets)
    feeds = {name: importer.const(name) for name in names}
    try:
        evaluator = cast("Any", ReferenceEvaluator(model))
        found: list[object] = evaluator.run(results, feeds)
    except Exception as error:  # its operators raise whatever NumPy and Python do
        text = " ".join(str(error).split()) or type(error).__name__
        raise node.error(
            "constant inputs that ONNX's reference implementation takes",
            text,
            "fold the node before the import",
        ) from error
    for name, value in zip(results, found, strict=True):
        if not isinstance(value, np.ndarray | np.generic):
            raise node.error(f"a tensor as {name!r}", type(value).__name__)
        importer.define(name, np.asarray(cast("Array", value)))
