"""Models of one or a few nodes, and checking how an import refuses them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

from stridewise.errors import ModelError, StridewiseError
from stridewise.frontends.onnx import import_model

__all__ = ["computed_branches", "fails", "make", "node"]


def make(
    *nodes: NodeProto,
    shape: Sequence[int | str | None] | None = (1, 3, 8, 8),
    constants: dict[str, Any] | None = None,
    opset: int = 13,
    dtype: int = TensorProto.FLOAT,
    outputs: Sequence[str] = ("y",),
) -> ModelProto:
    """A model of an input x, some nodes, and the output y."""
    tensors = [
        item if isinstance(item, TensorProto) else numpy_helper.from_array(np.array(item), name)
        for name, item in (constants or {}).items()
    ]
    graph = helper.make_graph(
        list(nodes),
        "test",
        [helper.make_tensor_value_info("x", dtype, shape)],
        [helper.make_empty_tensor_value_info(name) for name in outputs],
        tensors,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def node(op: str, *inputs: str, outputs: Sequence[str] = ("y",), **attrs: Any) -> NodeProto:
    return helper.make_node(op, inputs or ("x",), outputs, **{"name": "n", **attrs})


def computed_branches(branch: GraphProto) -> tuple[NodeProto, ...]:
    """Nodes of a conditional whose condition depends on x, with the same graph on both sides."""
    return (
        node("ReduceMax", outputs=["greatest"], keepdims=0),
        node("Cast", "greatest", outputs=["c"], to=TensorProto.BOOL),
        node("If", "c", then_branch=branch, else_branch=branch),
    )


def fails(model: Any, *parts: str, error: type[StridewiseError] = ModelError, **args: Any) -> None:
    """Check that the import fails with a one-line message that has all of these parts."""
    with pytest.raises(error) as caught:
        import_model(model, **args)
    message = str(caught.value)
    assert "\n" not in message
    for part in parts:
        assert part in message, message
