"""Importing one node: from its checks over its handler to the wording of its errors."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto

from stridewise.errors import (
    GraphError,
    MemoryLimitError,
    ModelError,
    StridewiseError,
    UnknownValueError,
    UnsupportedError,
)
from stridewise.frontends.onnx.handlers.indices import DATA_DEPENDENT
from stridewise.frontends.onnx.reading import fold
from stridewise.frontends.onnx.reading.bodies import (
    Body,
    body_of_branch,
    body_of_function,
    body_of_operator,
    import_body,
)
from stridewise.frontends.onnx.reading.importer import Importer
from stridewise.frontends.onnx.reading.legacy import modern
from stridewise.frontends.onnx.reading.proto import OPSETS, OnnxNode, Undecoded
from stridewise.frontends.onnx.reading.schema import check_schema
from stridewise.frontends.onnx.table import HANDLERS

__all__ = ["attempt_node", "import_node"]

_CONTROL_FLOW = frozenset({"If", "Loop", "Scan", "SequenceMap"})
_NOT_A_FUNCTION = frozenset(
    {"Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform",
     "RandomUniformLike"}
)  # fmt: skip
"""Operators with random results, which must not be computed at import."""

_MOVES = ("Expand", "Flatten", "Reshape", "Squeeze", "Transpose", "Unsqueeze")
_ARITHMETIC = (
    *("Add", "Concat", "Div", "Mul", "Neg", "Pow", "ReduceL2", "ReduceMean", "ReduceSum"),
    *("Slice", "Split", "Sqrt", "Sub"),
)
"""Operators by which models compute weights from others, all of which have gradients."""

_FLOAT = TensorProto.FLOAT


def import_node(importer: Importer, node: OnnxNode) -> None:
    """Add a node to the graph, or compute it if its inputs are constants.

    Raises:
        UnknownValueError: the node might be computed if values of inputs were given.
        ModelError: the node is damaged or unsupported.
    """
    try:
        _import_checked(importer, node)
    except ModelError as error:
        _check_values(importer, node, error)
        raise


def _check_values(importer: Importer, node: OnnxNode, error: ModelError) -> None:
    """Ask for values of inputs if a refused node could be computed from them."""
    # Many nodes that are refused for tensors are fine for constants, above all shape arithmetic.
    inputs = importer.small_sources(node.inputs, "biu")
    if inputs and not isinstance(error, UnknownValueError):
        raise UnknownValueError(str(error), inputs) from error


def attempt_node(importer: Importer, node: OnnxNode) -> None:
    """Add a node as :func:`import_node` does, if another runtime may compute it instead.

    An operator that is not supported is an UnsupportedError then, without a request for values.

    Raises:
        UnsupportedError: Stridewise does not support the node.
        UnknownValueError: the node might be computed if values of inputs were given.
        ModelError: the node is damaged.
    """
    try:
        _import_checked(importer, node)
    except UnsupportedError:
        raise
    except ModelError as error:
        _check_values(importer, node, error)
        raise


def _import_checked(importer: Importer, node: OnnxNode) -> None:
    importer.check_inputs(node)
    try:
        # Constants are computed as in ONNX: overflow gives infinity, without a warning.
        with np.errstate(all="ignore"):
            _dispatch(importer, node)
    except UnknownValueError:
        raise
    except ModelError as error:
        if node.where in str(error):
            raise
        raise type(error)(f"{node.where}: {error}") from error
    except StridewiseError as error:
        # Errors of operators name the node in their own way.
        _, own_name, rest = str(error).partition("): ")
        raise ModelError(f"{node.where}: {rest if own_name else error}") from error
    except (ArithmeticError, LookupError, TypeError, ValueError, MemoryError) as error:
        # Handlers and NumPy raise these for invalid attributes and data.
        text = " ".join(str(error).split()) or type(error).__name__
        raise ModelError.at(
            node.where, expected="inputs and attributes that fit it", found=text
        ) from error


def _dispatch(importer: Importer, node: OnnxNode) -> None:
    function = body_of_function(importer, node)
    if function is not None:
        _import_body(importer, node, function)
        return
    if node.domain == "" and node.opset < OPSETS[0]:
        raise node.unsupported(
            f"an operator of opset {OPSETS[0]} to {OPSETS[1]}",
            f"opset {node.opset}",
            "export the model with another opset",
            f"it is of opset {node.opset}",
        )
    if node.domain == "":
        check_schema(node)
    node = modern(importer, node)
    branch = body_of_branch(importer, node)
    if branch is not None:
        _import_body(importer, node, branch)
    else:
        _import_operator(importer, node)


def _computes_weights(importer: Importer, node: OnnxNode) -> bool:
    """Return whether a node computes with weights that are to be trained.

    Vectors are also scales and sizes, which have to stay constant; only moves of them count.
    """
    if node.op_type not in (*_MOVES, *_ARITHMETIC):
        return False
    least = 1 if node.op_type in _MOVES else 2
    tensors = map(importer.initializer, node.inputs)
    return any(t is not None and t.data_type == _FLOAT and len(t.dims) >= least for t in tensors)


def _import_operator(importer: Importer, node: OnnxNode) -> None:
    handler = HANDLERS.get(node.domain, {}).get(node.op_type)
    subgraph = any(isinstance(value, Undecoded) for value in node.attrs.values())
    if node.domain == "" and node.op_type in _CONTROL_FLOW:
        raise node.unsupported(
            "a model without control flow",
            f"operator {node.op_type}",
            "export it with fixed conditions, or simplify it before",
            "control flow",
        )
    constant = node.domain == "" and importer.all_constant(node) and not subgraph
    importer.keeps = importer.trains and _computes_weights(importer, node)
    constant = constant and not importer.keeps
    if constant and fold.fold(importer, node):
        return
    if handler is None:
        _import_other(importer, node, constant=constant)
        return
    try:
        handler(importer, node)
    except GraphError:
        # ONNX's operators have more dtypes; for constants its reference evaluator has them.
        if not constant:
            raise
        fold.by_reference(importer, node)


def _import_other(importer: Importer, node: OnnxNode, *, constant: bool) -> None:
    """Import a node without a handler: by ONNX's definition of it, or as a constant."""
    body = body_of_operator(importer, node)
    if body is not None:
        # A definition means ONNX's operators, whatever local functions are named like them.
        functions, importer.functions = importer.functions, {}
        try:
            _import_body(importer, node, body)
        finally:
            importer.functions = functions
    elif constant and node.op_type not in _NOT_A_FUNCTION:
        fold.by_reference(importer, node)
    else:
        raise _unsupported(node)


def _import_body(importer: Importer, node: OnnxNode, body: Body) -> None:
    """Import the nodes that a node stands for.

    Raises:
        UnsupportedError: one of them is not supported; another runtime may support the node.
        ModelError: as for :func:`import_node`.
    """
    try:
        import_body(importer, node, body, _import_checked)
    except (MemoryLimitError, UnknownValueError):
        raise
    except ModelError as error:
        reason = error.reason if isinstance(error, UnsupportedError) else ""
        message = f"{node.where}: it stands for several nodes; {error}"
        raise UnsupportedError(message, reason or "one of the nodes that it stands for") from error


def _unsupported(node: OnnxNode) -> UnsupportedError:
    domain = node.domain or "ai.onnx"
    count = "" if node.domain else DATA_DEPENDENT.get(node.op_type, "")
    reason = f", whose result has {count}, which no shape can tell" if count else ""
    return node.unsupported(
        "a supported operator",
        f"{node.op_type!r} of domain {domain!r} (opset {node.opset}){reason}",
        "export the model without it, replace it by supported operators, or fold it if its "
        "inputs are constants",
        "there is no operator for it",
    )
