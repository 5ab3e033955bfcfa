"""Mutations of model files: of the messages that they hold, and of their bytes.

Everything is drawn from one generator, so an input is determined by its seed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from onnx import ModelProto, helper

__all__ = ["mutated"]

Rng = np.random.Generator

_INTS = (0, 1, -1, 2, 3, 4, 7, 8, 13, 64, 255, 2**15, 2**31 - 1, 2**31, -(2**31), 2**32, 2**40,
         2**62, 2**63 - 1, -(2**63))  # fmt: skip
_FLOATS = (0.0, -0.0, 1.0, -1.0, 0.5, 1e-30, 1e30, 3.4e38, float("inf"), float("-inf"),
           float("nan"))  # fmt: skip
_TEXTS = ("", "x", "y", "NaN", "a" * 300, "../../etc/passwd", "nul\0", "n\nl", "\u202e", "%s",
          "SAME_UPPER", "VALID", "constant", "reflect", "tanh")  # fmt: skip
_OPERATORS = (
    "Abs", "Add", "AveragePool", "BatchNormalization", "Cast", "Clip", "Concat",
    "ConstantOfShape", "Conv", "ConvTranspose", "Cumsum", "Div", "Dropout", "Einsum", "Elu",
    "Equal", "Exp", "Expand", "Flatten", "Gather", "Gemm", "GlobalAveragePool", "HardSigmoid",
    "HardSwish", "Identity", "If", "InstanceNormalization", "LRN", "LeakyRelu", "LogSoftmax",
    "Loop", "MatMul", "Max", "MaxPool", "Mod", "Mul", "Neg", "OneHot", "PRelu", "Pad", "Pow",
    "Range", "ReduceMean", "ReduceProd", "ReduceSum", "Relu", "Reshape", "Resize", "Scan",
    "Shape", "Sigmoid", "Size", "Slice", "Softmax", "Split", "Sqrt", "Squeeze", "Sub", "Tanh",
    "Tile", "TopK", "Transpose", "Unsqueeze", "Upsample", "Where", "Xor",
)  # fmt: skip

_INTEGERS = (
    FieldDescriptor.TYPE_INT32, FieldDescriptor.TYPE_INT64, FieldDescriptor.TYPE_UINT64,
    FieldDescriptor.TYPE_ENUM,
)  # fmt: skip
_REALS = (FieldDescriptor.TYPE_FLOAT, FieldDescriptor.TYPE_DOUBLE)


def _pick(rng: Rng, items: Sequence[Any]) -> Any:
    return items[int(rng.integers(len(items)))]


def _fields(message: Message) -> list[tuple[Message, FieldDescriptor]]:
    """Return every set field of a message and of those inside of it."""
    found: list[tuple[Message, FieldDescriptor]] = []
    stack = [message]
    while stack:
        top = stack.pop()
        for field, value in top.ListFields():
            found.append((top, field))
            if field.type == FieldDescriptor.TYPE_MESSAGE:
                stack.extend(value if field.is_repeated else [value])
    return found


def _names(model: ModelProto) -> list[str]:
    graph = model.graph
    names = [item.name for item in (*graph.input, *graph.initializer, *graph.output)]
    for node in graph.node:
        names += [*node.input, *node.output]
    return names or ["x"]


def _scalar(rng: Rng, model: ModelProto, field: FieldDescriptor, old: Any) -> Any:
    """Return another value for a scalar field."""
    if field.type in _INTEGERS:
        near = int(old) + int(rng.integers(-2, 3))
        value = near if rng.random() < 0.4 else _pick(rng, _INTS)
        if field.type in (FieldDescriptor.TYPE_INT32, FieldDescriptor.TYPE_ENUM):
            return (value + 2**31) % 2**32 - 2**31
        if field.type == FieldDescriptor.TYPE_UINT64:
            return value % 2**64
        return (value + 2**63) % 2**64 - 2**63
    if field.type in _REALS:
        return _pick(rng, _FLOATS) if rng.random() < 0.7 else float(rng.normal())
    if field.type == FieldDescriptor.TYPE_STRING:
        if field.name == "op_type":
            return _pick(rng, _OPERATORS)
        return _pick(rng, _names(model)) if rng.random() < 0.7 else _pick(rng, _TEXTS)
    return _bytes(rng, bytes(old))


def _bytes(rng: Rng, data: bytes) -> bytes:
    """Return damaged bytes: flipped, cut, repeated, inserted."""
    if not data:
        return rng.bytes(int(rng.integers(9)))
    kind, at = int(rng.integers(5)), int(rng.integers(len(data)))
    if kind == 0:
        return data[:at]
    if kind == 1:
        return data[:at] + rng.bytes(int(rng.integers(1, 9))) + data[at:]
    if kind == 2:
        end = min(len(data), at + int(rng.integers(1, 64)))
        return data[:end] + data[at:end] + data[end:]
    if kind == 3:
        return data[:at] + data[at + int(rng.integers(1, 16)) :]
    changed = bytearray(data)
    for position in rng.integers(len(data), size=int(rng.integers(1, 5))):
        changed[position] = int(rng.integers(256))
    return bytes(changed)


# --- mutations of messages ------------------------------------------------------------------------


def _field(rng: Rng, model: ModelProto, other: ModelProto) -> None:
    """Change a field: another scalar, an item dropped, doubled, moved or taken from elsewhere."""
    fields = _fields(model.graph if rng.random() < 0.9 else model)
    if not fields:
        return
    message, field = _pick(rng, fields)
    if field.is_repeated:
        _repeated(rng, model, other, message, field)
    elif field.type == FieldDescriptor.TYPE_MESSAGE:
        if rng.random() < 0.3:
            message.ClearField(field.name)
        else:
            _splice(rng, other, getattr(message, field.name))
    else:
        value = _scalar(rng, model, field, getattr(message, field.name))
        setattr(message, field.name, value)


def _repeated(
    rng: Rng, model: ModelProto, other: ModelProto, message: Message, field: FieldDescriptor
) -> None:
    items = getattr(message, field.name)
    at, kind = int(rng.integers(len(items))), int(rng.integers(6))
    if kind == 0:
        del items[at]
    elif kind == 1:
        _insert(items, field, items[at])
    elif kind == 2:
        moved = list(items)
        moved.append(moved.pop(at))
        message.ClearField(field.name)
        getattr(message, field.name).extend(moved)
    elif field.type == FieldDescriptor.TYPE_MESSAGE:
        _splice(rng, other, items[at])
    else:
        items[at] = _scalar(rng, model, field, items[at])


def _insert(items: Any, field: FieldDescriptor, value: Any) -> None:
    if field.type == FieldDescriptor.TYPE_MESSAGE:
        items.add().CopyFrom(value)
    else:
        items.append(value)


def _splice(rng: Rng, other: ModelProto, target: Message) -> None:
    """Put a message of the same type from another model in the place of one."""
    found: list[Message] = []
    for message, field in _fields(other):
        if field.type == FieldDescriptor.TYPE_MESSAGE and field.message_type == target.DESCRIPTOR:
            value = getattr(message, field.name)
            found.extend(value if field.is_repeated else [value])
    if found:
        target.CopyFrom(_pick(rng, found))


def _rewire(rng: Rng, model: ModelProto, other: ModelProto) -> None:
    """Let a node read another value."""
    del other
    nodes = [node for node in model.graph.node if node.input]
    if nodes:
        node = _pick(rng, nodes)
        node.input[int(rng.integers(len(node.input)))] = _pick(rng, _names(model))


def _shape(rng: Rng, model: ModelProto, other: ModelProto) -> None:
    """Change an extent of an input, or of an initializer without its data."""
    del other
    infos = [item for item in model.graph.input if item.type.tensor_type.shape.dim]
    if infos and rng.random() < 0.6:
        dims = _pick(rng, infos).type.tensor_type.shape.dim
        _pick(rng, dims).dim_value = _pick(rng, _INTS)
    elif model.graph.initializer:
        tensor = _pick(rng, model.graph.initializer)
        if tensor.dims:
            tensor.dims[int(rng.integers(len(tensor.dims)))] = _pick(rng, _INTS)


def _node(rng: Rng, model: ModelProto, other: ModelProto) -> None:
    """Add a node between others, of any operator, or take one from another model."""
    nodes = model.graph.node
    names = _names(model)
    if other.graph.node and rng.random() < 0.5:
        node = type(other.graph.node[0])()
        node.CopyFrom(_pick(rng, other.graph.node))
        for index in range(len(node.input)):
            node.input[index] = _pick(rng, names)
    else:
        inputs = [_pick(rng, names) for _ in range(int(rng.integers(4)))]
        node = helper.make_node(_pick(rng, _OPERATORS), inputs, [f"new{rng.integers(100)}"])
    at = int(rng.integers(len(nodes) + 1))
    rest = list(nodes)
    rest.insert(at, node)
    del nodes[:]
    nodes.extend(rest)
    if node.output and at + 1 < len(nodes) and nodes[at + 1].input:
        nodes[at + 1].input[0] = node.output[0]


def _drop(rng: Rng, model: ModelProto, other: ModelProto) -> None:
    """Remove a node and let those that read its result read its operand."""
    del other
    nodes = model.graph.node
    if not nodes:
        return
    at = int(rng.integers(len(nodes)))
    node = nodes[at]
    if node.input and node.output:
        for later in nodes:
            for index, name in enumerate(later.input):
                if name == node.output[0]:
                    later.input[index] = node.input[0]
    del nodes[at]


def _function(rng: Rng, model: ModelProto, other: ModelProto) -> None:
    """Make a local function of a node; it may call itself, or others many times."""
    nodes = model.graph.node
    if not nodes or not model.opset_import:
        return
    at = int(rng.integers(len(nodes)))
    name = f"F{rng.integers(3)}"
    inner = [nodes[at]] if rng.random() < 0.5 else [*nodes[:2], *other.graph.node[:2]]
    body = []
    for node in inner:
        body.append(type(node)())
        body[-1].CopyFrom(node)
    if rng.random() < 0.4:
        call = helper.make_node(f"F{rng.integers(3)}", ["a"], ["b"], domain="local")
        body += [call] * int(rng.integers(1, 4))
    inputs, outputs = list(dict.fromkeys(nodes[at].input)), list(dict.fromkeys(nodes[at].output))
    opsets = [*model.opset_import, helper.make_opsetid("local", 1)]
    model.functions.append(helper.make_function("local", name, inputs, outputs, body, opsets))
    model.opset_import.append(helper.make_opsetid("local", 1))
    nodes[at].domain, nodes[at].op_type = "local", name
    del nodes[at].attribute[:]


def _subgraph(rng: Rng, model: ModelProto, other: ModelProto) -> None:
    """Give a node graphs as attributes, one inside of the other."""
    if not model.graph.node:
        return
    graph = type(model.graph)()
    graph.CopyFrom(other.graph)
    for _ in range(int(rng.integers(1, 12))):
        outer = type(graph)(name="g")
        outer.node.append(helper.make_node("If", ["c"], ["y"], then_branch=graph))
        graph = outer
    _pick(rng, model.graph.node).attribute.append(helper.make_attribute("body", graph))


Mutation = Callable[[Rng, ModelProto, ModelProto], None]
_MUTATIONS: tuple[tuple[Mutation, float], ...] = (
    (_field, 0.5), (_shape, 0.14), (_rewire, 0.12), (_node, 0.1), (_drop, 0.08),
    (_function, 0.03), (_subgraph, 0.03),
)  # fmt: skip


def mutated(rng: Rng, seeds: Sequence[bytes]) -> bytes:
    """Return the content of a model file made of the seeds."""
    model, other = ModelProto(), ModelProto()
    content = _pick(rng, seeds)
    model.ParseFromString(content)
    other.ParseFromString(_pick(rng, seeds))
    if rng.random() < 0.85:
        functions, weights = zip(*_MUTATIONS, strict=True)
        for _ in range(1 + int(rng.geometric(0.6))):
            functions[int(rng.choice(len(functions), p=weights))](rng, model, other)
        content = model.SerializeToString()
    if rng.random() < 0.2:
        for _ in range(int(rng.integers(1, 4))):
            content = _bytes(rng, content)
    return content
