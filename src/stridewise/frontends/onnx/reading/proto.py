"""Typed views of the nodes in a model file, with decoded attributes.

Only this module reads the loosely typed protocol buffers of nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import field, replace

import numpy as np
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto

from stridewise.classes import dataclass
from stridewise.errors import DamageError, ModelError, UnsupportedError, describe
from stridewise.frontends.onnx.reading.tensors import TensorReader
from stridewise.ops.registry import Array

__all__ = [
    "OPSETS",
    "OnnxAttr",
    "OnnxNode",
    "bare_node",
    "decode_node",
    "opset_of",
    "reads_of",
    "subgraphs_of",
    "tensors_of",
]

OPSETS = (6, 28)
"""The first and the last opset of the default domain that the handlers support."""

DEFAULT_DOMAINS = ("", "ai.onnx")


@dataclass(frozen=True, slots=True)
class Undecoded:
    """An attribute of a type that no handler takes, like a subgraph."""

    kind: str


OnnxAttr = (
    int | float | str | Array | tuple[int, ...] | tuple[float, ...] | tuple[str, ...] | Undecoded
)


@dataclass(frozen=True, slots=True)
class OnnxNode:
    """One node of an ONNX graph.

    Attributes:
        op_type: ONNX's operator name.
        domain: ``""`` for ONNX's own operators.
        name: the node's name in the model, often ``""``.
        inputs: names of values; ``""`` for an absent optional input.
        outputs: names of values; ``""`` for an unused result.
        attrs: decoded attributes.
        opset: version of the default domain in the model.
        proto: the node in the file, for ONNX's reference implementation.
    """

    op_type: str
    domain: str
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attrs: Mapping[str, OnnxAttr]
    opset: int
    proto: NodeProto = field(repr=False, compare=False)

    @property
    def where(self) -> str:
        """The node's name and operator, for messages."""
        label = self.name or next((name for name in self.outputs if name), "")
        operator = self.op_type if self.op_type.isidentifier() else repr(self.op_type)
        return f"node {label!r} ({operator})"

    def error(self, expected: str, found: object, fix: str = "") -> ModelError:
        """Return an error that names the node."""
        return ModelError.at(self.where, expected=expected, found=str(found), fix=fix)

    def damage(self, expected: str, found: object, fix: str = "") -> DamageError:
        """Return an error that names the node, for a node that is not valid ONNX."""
        return DamageError.at(self.where, expected=expected, found=str(found), fix=fix)

    def unsupported(self, expected: str, found: str, fix: str, reason: str) -> UnsupportedError:
        """Return an error that names the node, for a valid node that is not supported."""
        return UnsupportedError(
            describe(self.where, expected=expected, found=found, fix=fix), reason
        )

    def input(self, index: int) -> str:
        """Return the name of an optional input, ``""`` if it is absent."""
        return self.inputs[index] if index < len(self.inputs) else ""

    def required(self, index: int) -> str:
        """Return the name of an input.

        Raises:
            ModelError: it is absent.
        """
        name = self.input(index)
        if not name:
            raise self.error(f"input {index}", "none")
        return name

    def _wrong(self, key: str, expected: str) -> ModelError:
        value = self.attrs.get(key)
        found = "none" if value is None else _kind(value)
        return self.error(f"attribute {key!r} to be {expected}", found)

    def integer(self, key: str, default: int | None = None) -> int:
        """Return an integer attribute.

        Raises:
            ModelError: it has another type, or is absent without a default.
        """
        value = self.attrs.get(key, default)
        if not isinstance(value, int):
            raise self._wrong(key, "an integer")
        return value

    def number(self, key: str, default: float | None = None) -> float:
        """Return a float attribute; raises ModelError like :meth:`integer`."""
        value = self.attrs.get(key, default)
        if not isinstance(value, float):
            raise self._wrong(key, "a float")
        return value

    def text(self, key: str, default: str | None = None) -> str:
        """Return a string attribute; raises ModelError like :meth:`integer`."""
        value = self.attrs.get(key, default)
        if not isinstance(value, str):
            raise self._wrong(key, "a string")
        return value

    def integers(self, key: str, default: tuple[int, ...] | None = None) -> tuple[int, ...]:
        """Return a list of integers; raises ModelError like :meth:`integer`."""
        value = self.attrs.get(key, default)
        items = value if isinstance(value, tuple) else None
        whole = tuple(item for item in items or () if isinstance(item, int))
        if items is None or len(whole) != len(items):
            raise self._wrong(key, "a list of integers")
        return whole

    def tensor(self, key: str) -> Array:
        """Return a tensor attribute; raises ModelError like :meth:`integer`."""
        value = self.attrs.get(key)
        if not isinstance(value, np.ndarray):
            raise self._wrong(key, "a tensor")
        return value


_KINDS: tuple[tuple[type, str], ...] = (
    (int, "an integer"),
    (float, "a float"),
    (str, "a string"),
    (np.ndarray, "a tensor"),
    (tuple, "a list"),
)


def _kind(value: OnnxAttr) -> str:
    if isinstance(value, Undecoded):
        return value.kind
    return next(name for kind, name in _KINDS if isinstance(value, kind))


def _shortest(value: float) -> float:
    """Return the shortest decimal with the same float32, like 0.1 for 0.10000000149."""
    return float(str(np.float32(value)))


_DECODERS: dict[int, Callable[[AttributeProto], OnnxAttr]] = {
    AttributeProto.INT: lambda item: int(item.i),
    AttributeProto.FLOAT: lambda item: _shortest(item.f),
    AttributeProto.STRING: lambda item: item.s.decode(errors="replace"),
    AttributeProto.INTS: lambda item: tuple(int(value) for value in item.ints),
    AttributeProto.FLOATS: lambda item: tuple(_shortest(value) for value in item.floats),
    AttributeProto.STRINGS: lambda item: tuple(
        value.decode(errors="replace") for value in item.strings
    ),
}


def _decode(attribute: AttributeProto, reader: TensorReader, where: str) -> OnnxAttr:
    if attribute.type == AttributeProto.TENSOR:
        return reader.read(attribute.t, f"{where}, attribute {attribute.name!r}")
    decoder = _DECODERS.get(attribute.type)
    return Undecoded(_undecoded_kind(attribute.type)) if decoder is None else decoder(attribute)


def _undecoded_kind(code: int) -> str:
    names = {number: name for name, number in AttributeProto.AttributeType.items()}
    return f"an attribute of type {names.get(code, str(code))}"


def _check_attributes(node: OnnxNode) -> None:
    names: set[str] = set()
    for item in node.proto.attribute:
        if not item.name or item.name in names:
            found = f"another {item.name!r}" if item.name else "one without a name"
            raise node.error("attributes with names of their own", found)
        names.add(item.name)
        if item.ref_attr_name:
            found = f"{item.name!r}, which refers to {item.ref_attr_name!r}"
            raise node.error("attributes with values, outside of functions", found)


def bare_node(proto: NodeProto, opset: int) -> OnnxNode:
    """Return the view of a node without its attributes."""
    domain = "" if proto.domain in DEFAULT_DOMAINS else proto.domain
    return OnnxNode(
        proto.op_type, domain, proto.name, tuple(proto.input), tuple(proto.output), {}, opset, proto
    )


def reads_of(proto: NodeProto) -> tuple[str, ...]:
    """Return the names that a node reads, each once, and then those that its subgraphs capture.

    >>> reads_of(NodeProto(op_type="Add", input=["x", "", "y", "x"]))
    ('x', 'y')
    """
    names = dict.fromkeys(name for name in proto.input if name)
    for attribute in proto.attribute:
        for graph in subgraphs_of(attribute):
            names |= dict.fromkeys(_captured(graph))
    return tuple(names)


def subgraphs_of(attribute: AttributeProto) -> tuple[GraphProto, ...]:
    """Return the graphs in an attribute; an absent ``g`` would be an empty graph."""
    return (*((attribute.g,) if attribute.HasField("g") else ()), *attribute.graphs)


def _captured(graph: GraphProto) -> list[str]:
    """Return the names that a subgraph reads and does not define."""
    reads = [name for node in graph.node for name in reads_of(node)]
    reads += [item.name for item in graph.output]
    own = {item.name for item in (*graph.input, *graph.initializer)}
    own |= {item.values.name for item in graph.sparse_initializer}
    own |= {name for node in graph.node for name in node.output}
    return [name for name in reads if name not in own]


def tensors_of(node: NodeProto) -> Iterator[TensorProto]:
    """Yield the tensors in a node's attributes and subgraphs."""
    for attribute in node.attribute:
        yield from _attribute_tensors(attribute)


def _attribute_tensors(attribute: AttributeProto) -> Iterator[TensorProto]:
    yield from (attribute.t, *attribute.tensors)
    for sparse in (attribute.sparse_tensor, *attribute.sparse_tensors):
        yield from (sparse.values, sparse.indices)
    for graph in subgraphs_of(attribute):
        yield from graph.initializer
        for sparse in graph.sparse_initializer:
            yield from (sparse.values, sparse.indices)
        for node in graph.node:
            yield from tensors_of(node)


def decode_node(proto: NodeProto, opset: int, reader: TensorReader) -> OnnxNode:
    """Return the typed view of a node.

    Raises:
        ModelError: a tensor attribute cannot be read, an attribute occurs twice or refers to one
            of a function, or the node has no result.
    """
    bare = bare_node(proto, opset)
    if not any(bare.outputs):
        raise bare.error("a result with a name", "none")
    if not proto.attribute:
        return bare
    _check_attributes(bare)
    attrs = {item.name: _decode(item, reader, bare.where) for item in proto.attribute}
    return replace(bare, attrs=attrs)


def opset_of(model: ModelProto) -> int:
    """Return the version of the default domain, the last supported one for models without it.

    The version may be older than :data:`OPSETS`, as other runtimes may support it.

    Raises:
        ModelError: there is none, or it is newer than :data:`OPSETS`.
    """
    versions = [int(item.version) for item in model.opset_import if item.domain in DEFAULT_DOMAINS]
    first, last = OPSETS
    if not versions and all(node.domain not in DEFAULT_DOMAINS for node in model.graph.node):
        return last
    if not versions or not 1 <= max(versions) <= last:
        raise ModelError.at(
            "model",
            expected=f"an ONNX opset from {first} to {last}",
            found=str(max(versions)) if versions else "none",
            fix="convert it with onnx.version_converter, or export it with another opset",
        )
    return max(versions)
