"""One node, and the ONNX nodes that compute the same, in ONNX's own reference evaluator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from stridewise.graph import Attr

__all__ = ["CHANNELS", "F32", "Array", "Case", "Rng", "draw", "expected", "image", "ints"]

Array = np.ndarray[Any, np.dtype[Any]]
Rng = np.random.Generator
F32 = np.float32
CHANNELS = (1, 3, 17, 24)


@dataclass
class Case:
    """Operands and attributes of one node, and ONNX nodes that compute the same.

    The ONNX nodes read x0, x1, ... and further constants by name; the last one's result counts, the
    one at place ``output``. It is compared with result ``result`` of Stridewise's node.
    """

    arrays: Sequence[Array | None]
    nodes: Sequence[tuple[str, Sequence[str], dict[str, Any]]]
    attrs: Mapping[str, Attr] = field(default_factory=dict)
    constants: Mapping[str, Array] = field(default_factory=dict)
    rtol: float = 2e-6
    output: int = 0
    result: int = 0


def expected(case: Case) -> Array:
    """Run the ONNX nodes in ONNX's reference evaluator."""
    feeds = {f"x{i}": array for i, array in enumerate(case.arrays) if array is not None}
    nodes = []
    for number, (op, inputs, attrs) in enumerate(case.nodes):
        last = number == len(case.nodes) - 1
        unread = [f"unread{place}" for place in range(case.output if last else 0)]
        nodes.append(helper.make_node(op, list(inputs), [*unread, f"y{number}"], **attrs))
    types = [
        helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape
        )
        for name, array in feeds.items()
    ]
    result = helper.make_empty_tensor_value_info(nodes[-1].output[-1])
    initializers = [numpy_helper.from_array(data, name) for name, data in case.constants.items()]
    graph = helper.make_graph(nodes, "case", types, [result], initializers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    (found,) = ReferenceEvaluator(model).run(None, feeds)
    return np.asarray(found)


def draw(rng: Rng, *shape: int) -> Array:
    return rng.normal(size=shape).astype(F32)


def image(rng: Rng, rank: int | None = None, least: int = 5) -> Array:
    """Return a random image of a random number of spatial axes and odd channels."""
    rank = rank or int(rng.integers(1, 4))
    spatial = rng.integers(least, least + 3, rank)
    return draw(rng, int(rng.choice([1, 3])), int(rng.choice(CHANNELS)), *spatial)


def ints(values: Any) -> tuple[int, ...]:
    return tuple(int(value) for value in values)
