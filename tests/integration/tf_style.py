"""Rewrite an ONNX model as exporters of TensorFlow write it.

Feature maps are NHWC, and every operator that ONNX defines on NCHW (convolution, pooling, batch
norm, LRN, ...) has a Transpose before and behind it. All others work on NHWC.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, NodeProto, helper, numpy_helper

__all__ = ["tf_style"]

RANK = 4
PER_AXIS = 13
TO_LAST, TO_FIRST = [0, 2, 3, 1], [0, 3, 1, 2]

ELEMENTWISE = frozenset(
    {"Abs", "Add", "Clip", "Div", "Dropout", "Elu", "Exp", "HardSigmoid", "HardSwish", "Identity"}
    | {"LeakyRelu", "Max", "Mean", "Min", "Mul", "Neg", "Relu", "Sigmoid", "Softplus", "Sub"}
    | {"Sum", "Tanh"}
)
OVER_AXES = frozenset(
    {"Concat", "LogSoftmax", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceSum", "Softmax"}
)


class _Rewriter:
    def __init__(self, model: ModelProto) -> None:
        self.model = onnx.shape_inference.infer_shapes(model, strict_mode=True, data_prop=True)
        graph = self.model.graph
        self.ends = (list(model.graph.input), list(model.graph.output))
        self.opset = next(item.version for item in model.opset_import if not item.domain)
        self.constants = {item.name: numpy_helper.to_array(item) for item in graph.initializer}
        for node in graph.node:
            if node.op_type == "Constant":
                self.constants[node.output[0]] = numpy_helper.to_array(node.attribute[0].t)
        known = [*graph.input, *graph.value_info, *graph.output]
        self.ranks = {item.name: len(item.type.tensor_type.shape.dim) for item in known}
        self.nodes: list[NodeProto] = []
        self.added: dict[str, np.ndarray[Any, Any]] = {}
        self.count = 0

    def is_map(self, name: str) -> bool:
        return name not in self.constants and self.ranks.get(name) == RANK

    def transpose(self, name: str, result: str, perm: list[int]) -> str:
        self.count += 1
        title = f"Transpose__{self.count}"
        self.nodes.append(helper.make_node("Transpose", [name], [result], title, perm=perm))
        return result

    def first(self, name: str) -> str:
        """The NCHW form of a value, made separately for each reader."""
        if not self.is_map(name):
            return name
        return self.transpose(name, f"{name}:nchw{self.count}", TO_FIRST)

    def constant(self, name: str, data: np.ndarray[Any, Any]) -> str:
        self.added[f"{name}:nhwc"] = data
        return f"{name}:nhwc"

    def last(self, name: str) -> str:
        """An operand of an elementwise operator, in NHWC."""
        if name not in self.constants or self.constants[name].size == 1:
            return name
        data = self.constants[name]
        full = data.reshape((1,) * (RANK - data.ndim) + data.shape).transpose(TO_LAST)
        kept = next((axis for axis in range(RANK) if full.shape[axis] > 1), RANK - 1)
        return self.constant(name, full.reshape(full.shape[kept:]))

    def wrapped(self, node: NodeProto) -> None:
        inputs = [self.first(name) for name in node.input]
        outputs = [f"{name}:nchw" if self.is_map(name) else name for name in node.output]
        copy = helper.make_node(node.op_type, inputs, outputs, node.name, domain=node.domain)
        copy.attribute.extend(node.attribute)
        self.nodes.append(copy)
        for name in node.output:
            if self.is_map(name):
                self.transpose(f"{name}:nchw", name, TO_LAST)

    def elementwise(self, node: NodeProto) -> None:
        copy = NodeProto()
        copy.CopyFrom(node)
        del copy.input[:]
        copy.input.extend(self.last(name) if name else "" for name in node.input)
        self.nodes.append(copy)

    def over_axes(self, node: NodeProto) -> None:
        copy = NodeProto()
        copy.CopyFrom(node)
        for item in copy.attribute:
            if item.name == "axis":
                item.i = TO_LAST.index(item.i % RANK)
            elif item.name == "axes":
                item.ints[:] = sorted(TO_LAST.index(axis % RANK) for axis in item.ints)
        if len(copy.input) > 1 and node.op_type.startswith("Reduce"):
            axes = [TO_LAST.index(int(axis) % RANK) for axis in self.constants[copy.input[1]]]
            copy.input[1] = self.constant(f"{node.name}/axes", np.array(sorted(axes), np.int64))
        self.nodes.append(copy)

    def flattens(self, node: NodeProto) -> bool:
        """Whether a softmax runs over all axes from one on, as it did before opset 13."""
        return node.op_type.endswith("Softmax") and self.opset < PER_AXIS

    def node(self, node: NodeProto) -> None:
        names = [name for name in (*node.input, *node.output) if name]
        if not any(self.is_map(name) for name in names):
            self.nodes.append(node)
            return
        known = all(self.is_map(name) or name in self.constants for name in names)
        if node.op_type in ELEMENTWISE and known:
            self.elementwise(node)
        elif node.op_type in OVER_AXES and known and not self.flattens(node):
            self.over_axes(node)
        else:
            self.wrapped(node)

    def run(self) -> ModelProto:
        for node in self.model.graph.node:
            self.node(node)
        result = ModelProto()
        result.CopyFrom(self.model)
        graph = result.graph
        del graph.node[:], graph.value_info[:]
        graph.node.extend(self.nodes)
        graph.initializer.extend(numpy_helper.from_array(v, k) for k, v in self.added.items())
        for item in (*graph.input, *graph.output):
            if self.is_map(item.name):
                dims = [item.type.tensor_type.shape.dim[axis].dim_value for axis in TO_LAST]
                for dim, extent in zip(item.type.tensor_type.shape.dim, dims, strict=True):
                    dim.dim_value = extent
        return result

    def framed(self) -> ModelProto:
        """The result with inputs and outputs as they were, in NCHW."""
        result = self.run()
        graph = result.graph
        ends = [item.name for item in (*graph.input, *graph.output)]
        inside = {name: f"{name}:inside" for name in ends if self.is_map(name)}
        for node in graph.node:
            for names in (node.input, node.output):
                names[:] = [inside.get(name, name) for name in names]
        self.nodes = []
        for item in graph.input:
            if item.name in inside:
                self.transpose(item.name, inside[item.name], TO_LAST)
        body = [*self.nodes, *graph.node]
        self.nodes = []
        for item in graph.output:
            if item.name in inside:
                self.transpose(inside[item.name], item.name, TO_FIRST)
        body += self.nodes
        del graph.node[:]
        graph.node.extend(body)
        for ours, theirs in ((graph.input, self.ends[0]), (graph.output, self.ends[1])):
            del ours[:]
            ours.extend(theirs)
        return result


def tf_style(model: ModelProto, *, framed: bool = False) -> ModelProto:
    """A model of the same values, its feature maps in NHWC.

    Operators that have no form over NHWC here work on transposed operands, like convolutions.
    Inputs and outputs are in NHWC as well, or in NCHW as they were if ``framed``.
    """
    rewriter = _Rewriter(model)
    return rewriter.framed() if framed else rewriter.run()
