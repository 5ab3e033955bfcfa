"""Random quantized models, layer by layer, with ONNX's definition of each layer.

A layer reads tensors of integers and gives one. Its definition is a model of standard operators
between DequantizeLinear and QuantizeLinear, which gives the real numbers before they are rounded.
The file may state it in another way, as an operator on integers (QLinearConv, QLinearAdd).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

__all__ = ["Layer", "RandomModel", "Stored"]

Array = np.ndarray[Any, np.dtype[Any]]
F32 = np.float32
MICROSOFT = "com.microsoft"
_DEFINED = 21


@dataclass(frozen=True)
class Stored:
    """A tensor of integers: its name, what they stand for, and an example of its values."""

    name: str
    dtype: str
    scale: float
    zero: int
    example: Array

    @property
    def shape(self) -> tuple[int, ...]:
        return self.example.shape

    @property
    def limits(self) -> tuple[int, int]:
        found = np.iinfo(self.dtype)
        return int(found.min), int(found.max)

    def rounded(self, real: Array) -> Array:
        """Return the integers of real numbers."""
        low, _ = self.between(real, 0.0)
        return low.astype(self.dtype)

    def between(self, real: Array, error: float) -> tuple[Array, Array]:
        """Return the least and the greatest integers of real numbers that are off by some steps."""
        steps = real.astype(np.float64) / F32(self.scale)
        slack = error * (1 + np.abs(steps) / 100)
        low, high = (np.clip(np.rint(steps + d) + self.zero, *self.limits) for d in (-slack, slack))
        return low, high


@dataclass(frozen=True)
class Layer:
    """One layer: what it is, what it reads, its definition, and what it gives."""

    kind: str
    inputs: tuple[Stored, ...]
    definition: ModelProto
    output: Stored

    def real(self, given: list[Array]) -> Array:
        """Return the real numbers before the rounding, by ONNX's reference evaluator."""
        feeds = {item.name: array for item, array in zip(self.inputs, given, strict=True)}
        return _evaluated(self.definition, feeds)


def _evaluated(model: ModelProto, feeds: dict[str, Array]) -> Array:
    evaluator: Any = ReferenceEvaluator(model)
    (found,) = evaluator.run(None, feeds)
    return np.asarray(found)


class _Nodes:
    """Nodes and constants of one model."""

    def __init__(self, prefix: str, opset: int) -> None:
        self.prefix, self.opset = prefix, opset
        self.nodes: list[NodeProto] = []
        self.constants: list[TensorProto] = []

    def name(self) -> str:
        return f"{self.prefix}_{len(self.nodes) + len(self.constants)}"

    def constant(self, array: Any, dtype: Any = None) -> str:
        name = self.name()
        self.constants.append(numpy_helper.from_array(np.asarray(array, dtype), name))
        return name

    def op(
        self, op: str, inputs: list[str], *, output: str = "", domain: str = "", **attrs: Any
    ) -> str:
        name = output or self.name()
        self.nodes.append(helper.make_node(op, inputs, [name], name=name, domain=domain, **attrs))
        return name

    def numbers(self, item: Stored) -> list[str]:
        return [self.constant(item.scale, F32), self.constant(item.zero, item.dtype)]

    def real(self, item: Stored) -> str:
        return self.op("DequantizeLinear", [item.name, *self.numbers(item)])

    def clip(self, x: str, low: float, high: float) -> str:
        if self.opset < 11:
            return self.op("Clip", [x], min=low, max=high)
        return self.op("Clip", [x, self.constant(low, F32), self.constant(high, F32)])

    def model(self, inputs: list[Any], outputs: list[Any]) -> ModelProto:
        graph = helper.make_graph(self.nodes, "g", inputs, outputs, self.constants)
        opsets = [helper.make_opsetid("", self.opset), helper.make_opsetid(MICROSOFT, 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=8)

    def definition(self, inputs: list[Any], outputs: list[Any]) -> ModelProto:
        """Return the same in an opset of the reference evaluator, which knows no old ones."""
        new = _Nodes(f"{self.prefix}_d", _DEFINED)
        for node in self.nodes:
            if node.op_type == "Clip" and node.attribute:
                found = {item.name: item.f for item in node.attribute}
                bounds = [new.constant(found[name], F32) for name in ("min", "max")]
                new.op("Clip", [node.input[0], *bounds], output=node.output[0])
            else:
                new.nodes.append(node)
        new.constants += self.constants
        return new.model(inputs, outputs)


def _info(item: Stored) -> Any:
    code = helper.np_dtype_to_tensor_dtype(np.dtype(item.dtype))
    return helper.make_tensor_value_info(item.name, code, item.shape)


@dataclass
class _Weights:
    """Weights of integers, with one scale or one for each output."""

    stored: Array
    scales: Array
    zero: int
    axis: int

    def real(self, nodes: _Nodes) -> str:
        """Return their real numbers."""
        zero = np.full(self.scales.shape, self.zero)
        inputs = [
            nodes.constant(self.stored),
            nodes.constant(self.scales),
            nodes.constant(zero, self.stored.dtype),
        ]
        axis: dict[str, Any] = {"axis": self.axis} if self.scales.shape else {}
        return nodes.op("DequantizeLinear", inputs, **axis)


@dataclass
class RandomModel:
    """A model that grows by random layers.

    Attributes:
        rng: the source of all choices.
        opset: of the model.
        layers: what was added.
    """

    rng: np.random.Generator
    opset: int
    layers: list[Layer] = field(default_factory=list[Layer])

    def __post_init__(self) -> None:
        """Start with one or two inputs that are rounded, and the nodes that do this."""
        self.file = _Nodes("f", self.opset)
        self.tensors: list[Stored] = []
        self.inputs: dict[str, Array] = {}
        size = map(int, self.rng.integers(4, 11, 2))
        shape = (int(self.rng.integers(1, 3)), self._channels(), *size)
        for number in range(int(self.rng.integers(1, 3))):
            x = self.rng.normal(size=shape).astype(F32)
            name, given = f"x{number}", self._stored(f"q{number}", x)
            self.inputs[name] = x
            self.file.op("QuantizeLinear", [name, *self.file.numbers(given)], output=given.name)
            self.tensors.append(given)

    # --- choices ----------------------------------------------------------------------------------

    def _chance(self, part: float) -> bool:
        return bool(self.rng.random() < part)

    def _one_of(self, *items: Any) -> Any:
        return items[int(self.rng.integers(len(items)))]

    def _channels(self) -> int:
        return int(self._one_of(1, 3, 8, 16, 17, 24, 32, 40))

    def _stored(self, name: str, real: Array) -> Stored:
        """Return a tensor whose range is about that of real numbers; some saturate."""
        dtype = self._one_of("uint8", "uint8", "int8")
        low, high = min(0.0, float(real.min())), max(0.0, float(real.max()))
        span = (high - low or 1.0) * float(self.rng.uniform(0.6, 1.1))
        scale = float(F32(span / 255))
        first, last = np.iinfo(dtype).min, np.iinfo(dtype).max
        zero = int(np.clip(np.rint(first - low / scale), first, last))
        kind = self.rng.random()
        if kind < 0.25:  # symmetric, as many quantizers make them
            zero, scale = (first + last + 1) // 2, scale * 2
        elif kind < 0.35:
            zero = int(self.rng.integers(first, last + 1))
        example = np.clip(np.rint(real / F32(scale)) + zero, first, last).astype(dtype)
        return Stored(name, dtype, float(F32(scale)), zero, example)

    def _pick(self, rank: int | None = 4, like: Stored | None = None) -> Stored | None:
        """Return one of the tensors, of some rank, or of the shape of another one."""
        fits = [
            item
            for item in self.tensors
            if (rank is None or len(item.shape) == rank)
            and (like is None or (item.shape == like.shape and item.name != like.name))
        ]
        late = sorted(self.rng.integers(len(fits), size=2))[-1] if fits else 0
        return fits[late] if fits else None

    # --- layers -----------------------------------------------------------------------------------

    def _add(
        self, kind: str, inputs: list[Stored], nodes: _Nodes, real: str, like: Stored | None = None
    ) -> Stored:
        """Add a layer with its definition; return its result. ``like`` has its scale."""
        result = helper.make_tensor_value_info(real, TensorProto.FLOAT, None)
        distinct = list({item.name: item for item in inputs}.values())
        definition = nodes.definition([_info(item) for item in distinct], [result])
        feeds = {item.name: item.example for item in distinct}
        values = _evaluated(definition, feeds)
        name = f"q{len(self.tensors)}"
        output = self._stored(name, values)
        if like is not None:
            example = like.rounded(values)
            output = Stored(name, like.dtype, like.scale, like.zero, example)
        self.tensors.append(output)
        self.layers.append(Layer(kind, tuple(distinct), definition, output))
        return output

    def _state(self, nodes: _Nodes, real: str, output: Stored) -> None:
        """State a layer in the file by its definition and a QuantizeLinear."""
        self.file.nodes += nodes.nodes
        self.file.constants += nodes.constants
        self.file.op("QuantizeLinear", [real, *self.file.numbers(output)], output=output.name)

    def _nodes(self) -> _Nodes:
        return _Nodes(f"n{len(self.layers)}", self.opset)

    def _activation(self, nodes: _Nodes, x: str) -> str:
        kinds = ("none", "none", "relu", "clip", "sigmoid", "hard_swish", "swish", "leaky")
        kind = self._one_of(*kinds)
        if kind == "relu":
            return nodes.op("Relu", [x])
        if kind == "clip":
            return nodes.clip(x, 0.0, float(self._one_of(1.0, 6.0)))
        if kind in ("sigmoid", "swish") and max(item.scale for item in self.tensors) > 0.05:
            x = nodes.clip(x, -60.0, 60.0)  # the evaluator's sigmoid has no greater numbers
        if kind == "sigmoid":
            return nodes.op("Sigmoid", [x])
        if kind == "swish":
            return nodes.op("Mul", [x, nodes.op("Sigmoid", [x])])
        if kind == "leaky":
            return nodes.op("LeakyRelu", [x], alpha=0.1)
        if kind == "hard_swish":
            return nodes.op("Mul", [x, nodes.op("HardSigmoid", [x], alpha=1 / 6, beta=0.5)])
        return x

    def _norm(self, nodes: _Nodes, x: str, channels: int) -> str:
        numbers = [
            nodes.constant(self.rng.uniform(low, high, channels), F32)
            for low, high in ((0.5, 2), (-1, 1), (-1, 1), (0.3, 3))
        ]
        return nodes.op("BatchNormalization", [x, *numbers], epsilon=1e-5)

    def _weights(self, shape: tuple[int, ...], axis: int, *, per_channel: bool) -> _Weights:
        count = (shape[axis],) if per_channel else ()
        terms = float(np.prod(shape)) / shape[axis]
        scales = (self.rng.uniform(0.002, 0.02, count) / np.sqrt(terms)).astype(F32)
        dtype, zero = self._one_of(("int8", 0), ("int8", 0), ("uint8", 128), ("uint8", 120))
        low, high = (-128, 128) if dtype == "int8" else (0, 256)
        return _Weights(self.rng.integers(low, high, shape).astype(dtype), scales, zero, axis)

    def conv(self) -> None:
        """Add a convolution of any groups, window, strides, dilations and pads."""
        x = self._pick()
        if x is None:
            return
        channels = x.shape[1]
        groups = int(self._one_of(1, 1, channels, self._one_of(*_divisors(channels))))
        outputs = groups * int(self._one_of(1, 1, 2)) if groups > 1 else self._channels()
        window = tuple(int(self._one_of(1, 1, 2, 3, 3)) for _ in range(2))
        dilations = [int(self._one_of(1, 1, 1, 2)) for _ in range(2)]
        pads = [int(self.rng.integers(0, extent)) for _ in range(2) for extent in window]
        sizes = zip(x.shape[2:], window, dilations, pads[:2], pads[2:], strict=True)
        if any(size + a + b <= (w - 1) * d for size, w, d, a, b in sizes):
            return
        attrs = {
            "kernel_shape": list(window), "pads": pads, "group": groups, "dilations": dilations,
            "strides": [int(self._one_of(1, 1, 2)) for _ in range(2)],
        }  # fmt: skip
        is_operator = self._chance(0.3)
        per_channel = self._chance(0.5) and (is_operator or self.opset >= 13)
        shape = (outputs, channels // groups, *window)
        weights = self._weights(shape, 0, per_channel=per_channel)
        nodes = self._nodes()
        bias = self._bias(x, weights, outputs) if self._chance(0.6) else None
        real = self._product(nodes, "Conv", x, weights, bias, attrs)
        if not is_operator:
            real = self._norm(nodes, real, outputs) if self._chance(0.25) else real
            real = self._activation(nodes, real)
        output = self._add("conv", [x], nodes, real)
        if is_operator:
            self._operator("QLinearConv", x, weights, output, bias, attrs)
        else:
            self._state(nodes, real, output)

    def _bias(self, x: Stored, weights: _Weights, outputs: int) -> tuple[Array, Array]:
        stored = self.rng.integers(-3000, 3000, outputs).astype(np.int32)
        return stored, np.asarray(weights.scales * F32(x.scale), F32)

    def _product(
        self, nodes: _Nodes, op: str, x: Stored, weights: _Weights,
        bias: tuple[Array, Array] | None, attrs: dict[str, Any],
    ) -> str:  # fmt: skip
        inputs = [nodes.real(x), weights.real(nodes)]
        if bias is not None:
            axis: dict[str, Any] = {"axis": 0} if bias[1].shape else {}
            inputs.append(nodes.op("DequantizeLinear", [*map(nodes.constant, bias)], **axis))
        return nodes.op(op, inputs, **attrs)

    def _operator(
        self, op: str, x: Stored, weights: _Weights, output: Stored,
        bias: tuple[Array, Array] | None, attrs: dict[str, Any],
    ) -> None:  # fmt: skip
        zero = np.full(weights.scales.shape, weights.zero, weights.stored.dtype)
        numbers = map(self.file.constant, (weights.stored, weights.scales, zero))
        inputs = [x.name, *self.file.numbers(x), *numbers, *self.file.numbers(output)]
        inputs += [self.file.constant(bias[0])] if bias else []
        self.file.op(op, inputs, output=output.name, **attrs)

    def matmul(self) -> None:
        """Add a product of a matrix, made of any tensor, with constant weights."""
        x = self._pick(None)
        if x is None or x.example.size > 40000:
            return
        if len(x.shape) > 2:
            nodes = self._nodes()
            real = nodes.op("Flatten", [nodes.real(x)], axis=1)
            flat = self._add("flatten", [x], nodes, real, x)
            self._state(nodes, real, flat)
            x = flat
        outputs, is_operator = self._channels(), self._chance(0.3)
        per_channel = self._chance(0.5) and self.opset >= 13 and not is_operator
        nodes = self._nodes()
        if is_operator or self._chance(0.5):
            weights = self._weights((x.shape[1], outputs), 1, per_channel=per_channel)
            real = self._product(nodes, "MatMul", x, weights, None, {})
        else:
            weights = self._weights((outputs, x.shape[1]), 0, per_channel=per_channel)
            bias = self._bias(x, weights, outputs)
            real = self._product(nodes, "Gemm", x, weights, bias, {"transB": 1})
        real = real if is_operator else self._activation(nodes, real)
        output = self._add("matmul", [x], nodes, real)
        if is_operator:
            self._operator("QLinearMatMul", x, weights, output, None, {})
        else:
            self._state(nodes, real, output)

    def binary(self) -> None:
        """Add a sum, difference or product of two tensors, or of one and a row of channels."""
        x = self._pick(None)
        y = x and (self._pick(len(x.shape), like=x) or x)
        if x is None or y is None:
            return
        if len(x.shape) == 4 and self._chance(0.4):
            y = self._gate(x)
        op = self._one_of("Add", "Add", "Mul", "Sub")
        nodes = self._nodes()
        pair = [x, y] if self._chance(0.7) else [y, x]
        is_operator = op != "Sub" and self._chance(0.3) and x.dtype == y.dtype
        real = nodes.op(op, [nodes.real(item) for item in pair])
        if not is_operator:
            real = self._activation(nodes, real)
        output = self._add(op.lower(), pair, nodes, real)
        if is_operator and output.dtype == x.dtype:
            numbers = [name for item in pair for name in (item.name, *self.file.numbers(item))]
            inputs = [*numbers, *self.file.numbers(output)]
            self.file.op(f"QLinear{op}", inputs, output=output.name, domain=MICROSOFT)
        else:
            self._state(nodes, real, output)

    def _gate(self, x: Stored) -> Stored:
        """Return a number for each channel, made of the means of a tensor."""
        nodes = self._nodes()
        real = nodes.op("Sigmoid", [nodes.op("GlobalAveragePool", [nodes.real(x)])])
        output = self._add("gate", [x], nodes, real)
        self._state(nodes, real, output)
        return output

    def concat(self) -> None:
        """Add a concat of tensors with scales of their own."""
        x = self._pick()
        y = x and self._pick(like=x)
        if x is None or y is None:
            return
        parts = [x, y, x] if self._chance(0.2) else [x, y]
        nodes = self._nodes()
        real = nodes.op("Concat", [nodes.real(item) for item in parts], axis=1)
        output = self._add("concat", parts, nodes, real)
        self._state(nodes, real, output)

    def pool(self) -> None:
        """Add a pooling; one of maxima keeps the scale, or does not."""
        x = self._pick()
        if x is None or min(x.shape[2:]) < 2:
            return
        nodes, kind = self._nodes(), self._one_of("MaxPool", "AveragePool", "GlobalAveragePool")
        if kind == "GlobalAveragePool":
            real = nodes.op(kind, [nodes.real(x)])
        else:
            pads = [int(item) for item in self.rng.integers(0, 2, 4)]
            attrs: dict[str, Any] = {"kernel_shape": [2, 2], "strides": [2, 1], "pads": pads}
            if kind == "AveragePool":
                attrs["count_include_pad"] = int(self._chance(0.5))
            real = nodes.op(kind, [nodes.real(x)], **attrs)
        like = x if kind == "MaxPool" and self._chance(0.7) else None
        output = self._add(kind.lower(), [x], nodes, real, like)
        self._state(nodes, real, output)

    def resize(self) -> None:
        """Add a resize to twice the size."""
        x = self._pick()
        if x is None or self.opset < 13 or np.prod(x.shape) > 20000:
            return
        nodes, mode = self._nodes(), self._one_of("nearest", "linear")
        scales = nodes.constant([1, 1, 2, 2], F32)
        attrs = {"nearest_mode": "floor", "coordinate_transformation_mode": "asymmetric"}
        real = nodes.op("Resize", [nodes.real(x), "", scales], mode=mode, **attrs)
        output = self._add("resize", [x], nodes, real, x if self._chance(0.5) else None)
        self._state(nodes, real, output)

    def function(self) -> None:
        """Add a function of one tensor, or a batch norm that is not folded."""
        x = self._pick(None)
        if x is None:
            return
        nodes = self._nodes()
        real = nodes.real(x)
        if len(x.shape) == 4 and self._chance(0.5):
            real = self._norm(nodes, real, x.shape[1])
        real = self._activation(nodes, real)
        output = self._add("function", [x], nodes, real)
        self._state(nodes, real, output)

    def move(self) -> None:
        """Add a transpose or a slice of integers."""
        x = self._pick()
        if x is None:
            return
        nodes = self._nodes()
        real = nodes.op("Transpose", [nodes.real(x)], perm=self._one_of([0, 1, 3, 2], [0, 2, 3, 1]))
        output = self._add("move", [x], nodes, real, x)
        self._state(nodes, real, output)

    def grow(self, layers: int) -> None:
        """Add so many layers, or a few less where a choice does not fit."""
        kinds = (
            self.conv, self.conv, self.conv, self.matmul, self.binary, self.binary, self.concat,
            self.pool, self.resize, self.function, self.move,
        )  # fmt: skip
        for _ in range(layers):
            self._one_of(*kinds)()

    # --- results ----------------------------------------------------------------------------------

    def model(self, *, is_open: bool) -> ModelProto:
        """Return the model; its outputs are all tensors, or with ``is_open`` false the last one."""
        shown = self.tensors if is_open else self.tensors[-1:]
        inputs = [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, array.shape)
            for name, array in self.inputs.items()
        ]
        return self.file.model(inputs, [_info(item) for item in shown])


def _divisors(number: int) -> list[int]:
    return [item for item in range(1, number + 1) if number % item == 0]
