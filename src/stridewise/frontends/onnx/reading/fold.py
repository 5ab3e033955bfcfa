"""Computing nodes whose inputs are all constants.

Handlers import most of these nodes: the importer evaluates an operator if all operands are known.
The table in this module has further operators of shape arithmetic. ONNX's reference implementation,
which is slow to import, computes the others.

The work is estimated and taken out of the importer's budget before a computation. The reference
implementation may need any time and memory, depending on attributes and data. So it only gets
operators whose work is bounded by the sizes of inputs and results.
"""

from __future__ import annotations

from collections.abc import Callable
from math import ceil, isfinite, prod
from typing import Any, cast

import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper, shape_inference

from stridewise.errors import ModelError, UnsupportedError
from stridewise.frontends.onnx.reading.importer import Importer
from stridewise.frontends.onnx.reading.proto import OnnxNode
from stridewise.ops.effort import Effort
from stridewise.ops.registry import Array

__all__ = ["by_reference", "fold"]

Fold = Callable[[OnnxNode, list[Array]], Array]


def _range_count(x: list[Array]) -> int:
    """Return the number of elements of a range.

    Raises:
        ArithmeticError: it is infinite.
    """
    start, limit, delta = (item.reshape(()).item() for item in x)
    if not all(isfinite(item) for item in (start, limit, delta)):
        raise ArithmeticError("a range without an end")
    steps = -((start - limit) // delta) if isinstance(delta, int) else ceil((limit - start) / delta)
    return max(int(steps), 0)


def _range(node: OnnxNode, x: list[Array]) -> Array:
    start, limit, delta = (item.reshape(()).item() for item in x)
    precision, wanted = node.integer("stash_type", TensorProto.FLOAT), x[0].dtype
    is_half = wanted.kind not in "biu" and wanted.itemsize < np.dtype(np.float32).itemsize
    if is_half and precision != TensorProto.FLOAT:
        found, fix = f"stash_type={precision}", "compute the range in float32"
        raise node.unsupported("stash_type=1", found, fix, f"it has {found}")
    return np.arange(start, limit, delta, dtype=np.float32 if is_half else wanted).astype(wanted)


_FOLDS: dict[str, Fold] = {
    "Range": _range,
}


def _operands(importer: Importer, node: OnnxNode) -> list[Array]:
    found = [importer.const(name) for name in node.inputs if name]
    return [item for item in found if item is not None]


def _effort(node: OnnxNode, x: list[Array]) -> Effort:
    """Return the work of a node of the table."""
    count = _range_count(x) if node.op_type == "Range" else _broadcast_count(x)
    return Effort(count * max(item.itemsize for item in x), count)


def _broadcast_count(x: list[Array]) -> int:
    """Return the number of elements of operands that are broadcast to one another."""
    rank = max(item.ndim for item in x)
    shapes = [(1,) * (rank - item.ndim) + item.shape for item in x]
    return prod(max(extents) for extents in zip(*shapes, strict=True))


def fold(importer: Importer, node: OnnxNode) -> bool:
    """Compute a node of constants by the table; return False if its operator is not in the table.

    Raises:
        MemoryLimitError: the result is too large.
    """
    function = _FOLDS.get(node.op_type)
    if function is None:
        return False
    operands = _operands(importer, node)
    importer.spend(node.where, _effort(node, operands))
    importer.define(node.outputs[0], np.asarray(function(node, operands)))
    return True


# --- by ONNX's reference implementation -----------------------------------------------------------

_VECTORIZED = frozenset(
    {
    "Abs", "Acos", "Acosh", "Add", "And", "ArgMax", "ArgMin", "Asin", "Asinh", "Atan", "Atanh",
    "BitShift", "BitwiseAnd", "BitwiseNot", "BitwiseOr", "BitwiseXor", "Cast", "CastLike", "Ceil",
    "Celu", "Clip", "Concat", "Cos", "Cosh", "DepthToSpace", "DequantizeLinear", "Div", "Elu",
    "Equal", "Erf", "Exp", "Expand", "EyeLike", "Flatten", "Floor", "Gather", "Gelu", "Greater",
    "GreaterOrEqual", "HardSigmoid", "HardSwish", "Hardmax", "Identity", "IsInf", "IsNaN",
    "LeakyRelu", "Less", "LessOrEqual", "Log", "LogSoftmax", "Max", "Mean", "Min", "Mish", "Mod",
    "Mul", "Neg", "Not", "Or", "PRelu", "Pow", "QuantizeLinear", "Reciprocal", "ReduceL1",
    "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin",
    "ReduceProd", "ReduceSum", "ReduceSumSquare", "Relu", "Reshape", "Round", "Selu", "Shape",
    "Sigmoid", "Sign", "Sin", "Sinh", "Size", "Slice", "Softmax", "Softplus", "Softsign",
    "SpaceToDepth", "Split", "Sqrt", "Squeeze", "Sub", "Sum", "Swish", "Tan", "Tanh",
    "ThresholdedRelu", "Tile", "Transpose", "Trilu", "Unsqueeze", "Where", "Xor",
    }
)  # fmt: skip
"""Operators that are a few calls of NumPy, and whose result sizes follow from types and small
constants."""
_LOOPS = frozenset(
    {
    "Compress", "GatherElements", "GatherND", "NonZero", "OneHot", "ScatterElements", "ScatterND",
    "TopK", "Unique",
    }
)  # fmt: skip
"""Operators that are Python loops over elements, or whose result shapes depend on data."""
_SAME = frozenset({"CumProd", "CumSum"})
"""Operators whose result has the type of their first input, without shape inference in ONNX."""
_LOOP_COST = 256
"""Work of a step of such a loop, in operations of NumPy."""
_SMALL = 1024
"""Greatest number of elements of constants for shape inference, such as shapes and repeats."""


def _single_node(node: OnnxNode, feeds: dict[str, Array]) -> ModelProto:
    """Return a model of one node; inputs have types, small ones also data."""
    results = [name for name in node.outputs if name]
    graph = helper.make_graph(
        [node.proto],
        "constant",
        [
            helper.make_tensor_value_info(name, _code(data), list(data.shape))
            for name, data in feeds.items()
        ],
        [helper.make_empty_tensor_value_info(name) for name in results],
        [
            numpy_helper.from_array(np.ascontiguousarray(data), name)
            for name, data in feeds.items()
            if data.size <= _SMALL
        ],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", node.opset)])


def _code(data: Array) -> int:
    return int(helper.np_dtype_to_tensor_dtype(data.dtype))


def _reference_effort(node: OnnxNode, feeds: dict[str, Array]) -> Effort:
    """Return the work of the reference implementation.

    Raises:
        UnsupportedError: it is unknown.
    """
    given = sum(data.size for data in feeds.values())
    if node.op_type in _SAME:
        return Effort(8 * given, 2 * given)
    if node.op_type in _LOOPS:
        depth = feeds[node.inputs[1]] if node.op_type == "OneHot" else None
        factor = 1 if depth is None else max(int(depth.reshape(-1)[0]), 1)
        axes = max((data.ndim for data in feeds.values()), default=0) + 1
        count = given * factor * axes
        return Effort(8 * count, _LOOP_COST * count)
    if node.op_type not in _VECTORIZED:
        raise _unsupported(
            node, "an operator that can be computed at import", f"{node.op_type!r} of constants"
        )
    model = shape_inference.infer_shapes(_single_node(node, feeds), data_prop=True)
    count = 0
    for info in model.graph.output:
        tensor = info.type.tensor_type
        if not tensor.HasField("shape") or not all(
            dim.HasField("dim_value") for dim in tensor.shape.dim
        ):
            raise _unsupported(
                node, "a result whose size is known before", "one that depends on data"
            )
        count += prod(max(int(dim.dim_value), 0) for dim in tensor.shape.dim)
    return Effort(8 * count, given + count)


def _unsupported(node: OnnxNode, expected: str, found: str) -> UnsupportedError:
    """Return the error for a node of constants; another runtime may support the node."""
    return node.unsupported(
        expected, found, "fold the node before the import", f"expected {expected}, found {found}"
    )


def _refused(node: OnnxNode, error: Exception) -> UnsupportedError:
    text = " ".join(str(error).split()).removesuffix(".") or type(error).__name__
    return _unsupported(node, "constant inputs that ONNX's reference implementation takes", text)


def by_reference(importer: Importer, node: OnnxNode) -> None:
    """Compute a node of constants by ONNX's reference implementation.

    Raises:
        UnsupportedError: it doesn't support the operator or the inputs, or the work is unknown. The
            model may still be valid.
        MemoryLimitError: the result is too large.
    """
    from onnx.reference import ReferenceEvaluator  # noqa: PLC0415 (takes half a second)

    names = sorted({name for name in node.inputs if name})
    results = [name for name in node.outputs if name]
    known = {name: importer.const(name) for name in names}
    feeds = {name: data for name, data in known.items() if data is not None}
    try:
        wanted = _reference_effort(node, feeds)
    except ModelError:
        raise
    except Exception as error:
        raise _refused(node, error) from error
    importer.spend(node.where, wanted)
    model = _single_node(node, feeds)
    try:
        evaluator = cast("Any", ReferenceEvaluator(model))
        found: list[object] = evaluator.run(results, feeds)
    except Exception as error:  # its operators raise any exception of NumPy and Python
        raise _refused(node, error) from error
    for name, value in zip(results, found, strict=True):
        if not isinstance(value, np.ndarray | np.generic):
            raise node.error(f"a tensor as {name!r}", type(value).__name__)
        importer.define(name, np.asarray(cast("Array", value)))
