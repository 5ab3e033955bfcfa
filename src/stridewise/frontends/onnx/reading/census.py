"""Counting the operators of an ONNX file, as other runtimes write them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import onnx

__all__ = ["count_operators"]


def count_operators(path: Path) -> dict[str, int]:
    """Return how many nodes of each operator type a file has, in the order of their appearance.

    Subgraphs are not counted. The model is not checked, so that it may have operators of a runtime.

    >>> from onnx.helper import make_graph, make_model, make_node
    >>> nodes = [make_node("Relu", ["x"], ["y"]), make_node("Relu", ["y"], ["z"])]
    >>> path = Path(getfixture("tmp_path")) / "m.onnx"
    >>> onnx.save(make_model(make_graph(nodes, "g", [], [])), path)
    >>> count_operators(path)
    {'Relu': 2}
    """
    model = onnx.ModelProto.FromString(path.read_bytes())
    return dict(Counter(node.op_type for node in model.graph.node))
