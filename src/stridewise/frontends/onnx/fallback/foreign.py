"""Which nodes of a model are foreign: those without a handler, and those that a handler refuses.

The import of such a model takes two passes. The *survey* imports the model as far as possible. It
finds the foreign nodes and the types of their results. A value whose shape depends on data, or that
is not a tensor, is *open*: only the other runtime can hold it. Its producer and its consumers
therefore run in one piece, or in the tail. ``cluster.py`` decides which nodes run together, and
``split.py`` builds the graph in the second pass.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field

import onnx
from onnx import (
    ModelProto,
    NodeProto,
    TensorProto,
    TypeProto,
    shape_inference,
)

from stridewise.classes import dataclass
from stridewise.errors import (
    DamageError,
    GraphError,
    MemoryLimitError,
    ModelError,
    UnknownValueError,
    UnsupportedError,
)
from stridewise.frontends.onnx.fallback.cluster import Part, partition
from stridewise.frontends.onnx.fallback.types import ValueTypes, inferred, open_inputs, static_type
from stridewise.frontends.onnx.reading.importer import MAX_WINDOW, Importer
from stridewise.frontends.onnx.reading.nodes import attempt_node
from stridewise.frontends.onnx.reading.proto import (
    OnnxNode,
    bare_node,
    decode_node,
    opset_of,
    reads_of,
    tensors_of,
)
from stridewise.frontends.onnx.reading.tensors import TensorReader, is_known
from stridewise.frontends.onnx.writing.initializers import inline
from stridewise.graph import Refusal
from stridewise.ops.registry import Array

__all__ = ["Survey", "node_label", "operator_label"]

_RULE = "onnx"
_COMMON = frozenset({"float32", "int64"})
_BOUNDS = frozenset({"end", "ends", "start", "starts"})
"""Attributes that are clamped, so that any number is right."""


def node_label(node: NodeProto) -> str:
    """Return the name of a node, or of its first result."""
    return node.name or next((name for name in node.output if name), "")


def operator_label(node: NodeProto) -> str:
    """Return an operator, with its domain if it is not ONNX's own."""
    return node.op_type if node.domain in ("", "ai.onnx") else f"{node.domain}.{node.op_type}"


@dataclass(slots=True)
class Survey:
    """The nodes and types of a model, found by importing as much of it as possible.

    Attributes:
        model: the model.
        reader: reads its tensors.
        importer: has the types of all values that a graph can hold.
        types: the types of its values.
        nodes: the nodes so far.
        reads: for each node the names that it and its subgraphs read.
        refusals: for each foreign node the reason.
        folded: nodes that were computed at import.
        constants: their results.
    """

    model: ModelProto
    reader: TensorReader
    importer: Importer
    types: ValueTypes
    nodes: list[OnnxNode] = field(default_factory=list[OnnxNode])
    reads: list[tuple[str, ...]] = field(default_factory=list[tuple[str, ...]])
    refusals: dict[int, Refusal] = field(default_factory=dict[int, Refusal])
    folded: set[int] = field(default_factory=set[int])
    constants: dict[str, Array] = field(default_factory=dict[str, Array])

    def run(self) -> None:
        """Visit all nodes.

        Raises:
            ModelError: the model is damaged, or ONNX Runtime has no operator for a node either.
        """
        self.types.open |= {name: item.type for name, item in open_inputs(self.model).items()}
        opset = opset_of(self.model)
        for proto in self.model.graph.node:
            self._visit(proto, opset)

    @property
    def open(self) -> dict[str, TypeProto | None]:
        """Values that a graph cannot hold, with their types, None for an unknown type."""
        return self.types.open

    @property
    def foreign(self) -> tuple[tuple[str, str], ...]:
        """Names and operators of the foreign nodes."""
        protos = [self.nodes[index].proto for index in self.refusals]
        return tuple((node_label(proto), operator_label(proto)) for proto in protos)

    def _visit(self, proto: NodeProto, opset: int) -> None:
        proto = self._with_own_tensors(proto)
        index, reads = len(self.nodes), reads_of(proto)
        self.reads.append(reads)
        reason = ""
        try:
            node = decode_node(proto, opset, self.reader)
        except UnsupportedError as error:
            node = bare_node(proto, opset)
            reason = _reason(node, error)
        self.nodes.append(node)
        self._check_defined(node, reads)
        reason = reason or self._open_reason(reads) or self._refused(node)
        if reason:
            self.refusals[index] = Refusal(_RULE, node_label(proto), reason)
            self.types.define_results(node)
            return
        results = {name: self.importer.const(name) for name in node.outputs if name}
        if all(data is not None for data in results.values()):
            self.folded.add(index)
            self.constants |= {name: data for name, data in results.items() if data is not None}

    def _with_own_tensors(self, node: NodeProto) -> NodeProto:
        """Return a node with external data inlined, so that no other runtime opens files."""
        if not any(item.data_location == TensorProto.EXTERNAL for item in tensors_of(node)):
            return node
        copied = NodeProto()
        copied.CopyFrom(node)
        for tensor in tensors_of(copied):
            if tensor.data_location == TensorProto.EXTERNAL:
                where = f"node {node_label(node)!r}, tensor {tensor.name!r}"
                tensor.CopyFrom(inline(tensor.name, self.reader.read(tensor, where)))
        return copied

    def _check_defined(self, node: OnnxNode, reads: Sequence[str]) -> None:
        closed = [name for name in reads if name not in self.open]
        self.importer.check_names(node, closed)
        for name in node.outputs:
            if name in self.open:
                raise node.error("each value to be defined once", f"another definition of {name!r}")

    def _open_reason(self, reads: Sequence[str]) -> str:
        name = next((name for name in reads if name in self.open), None)
        if name is None:
            return ""
        type_ = self.open[name]
        kind = None if type_ is None else type_.WhichOneof("value")
        if type_ is not None and kind not in (None, "tensor_type"):
            return f"it reads {name!r}, which is no tensor"
        if type_ is not None and kind and not is_known(type_.tensor_type.elem_type):
            return f"it reads {name!r}, whose element type no kernel knows"
        return f"it reads {name!r}, whose shape depends on data"

    def _refused(self, node: OnnxNode) -> str:
        """Import a node, or return the reason why it is foreign."""
        new = [name for name in node.outputs if name and not self.importer.known(name)]
        try:
            attempt_node(self.importer, node)
        except (MemoryLimitError, UnknownValueError):
            raise
        except ModelError as error:
            self.importer.forget(new)
            try:
                self._check_refused(node, error)
            except UnsupportedError:
                # The import may compute a node that no runtime supports, given values of inputs.
                inputs = self.importer.small_sources(node.inputs, "biu")
                if inputs:
                    raise UnknownValueError(str(error), inputs) from error
                raise
            return _reason(node, error)
        return ""

    def _check_refused(self, node: OnnxNode, error: ModelError) -> None:
        """Raise the error of a handler again if another runtime must not get the node.

        That holds for a node that is not valid ONNX, and for one that the import could not compute
        within its budget: the other runtime has no budget.
        """
        if isinstance(error, DamageError):
            raise error
        for name in reads_of(node.proto):
            try:
                self.types.constant(name)
            except ModelError:
                raise error from None
        if node.domain != "":
            self._check_elsewhere(node, error)
            return
        if not isinstance(error, UnsupportedError) and self._is_constant(node):
            raise error
        if isinstance(error.__cause__, GraphError) and self._is_common(node):
            raise error  # shapes and attributes do not fit; ONNX's inference misses some
        wide = (key for key in node.attrs if key not in _BOUNDS)
        if any(abs(item) > MAX_WINDOW for key in wide for item in _integers(node, key)):
            raise error  # other runtimes may overflow when they compute with these
        model = self.types.node_model(node)
        complete = ModelProto()
        complete.CopyFrom(model)
        del complete.graph.output[:]
        try:
            if all(item.HasField("type") for item in model.graph.input):
                # onnx types the path that a model may also be given by as PathLike[Unknown]
                onnx.checker.check_model(complete)  # pyright: ignore[reportUnknownMemberType]
            shape_inference.infer_shapes(
                complete, check_type=True, strict_mode=True, data_prop=True
            )
        except Exception as refused:  # native code with undocumented exceptions
            raise error from refused
        self._check_elsewhere(node, error)

    def _check_elsewhere(self, node: OnnxNode, error: ModelError) -> None:
        """Raise the error of a handler again if the other runtime refuses the node, too.

        Raises:
            MemoryLimitError: a result is too large. The other runtime would compute a node of
                constants when it creates a session.
        """
        model = self.types.node_model(node)
        for name, type_ in inferred(model).items():
            static = static_type(type_)
            if static is not None:
                self.importer.check_size(f"value {name!r}", static)
        try:
            self.types.ask(model, node)
        except UnsupportedError as refused:
            raise error from refused

    def _is_common(self, node: OnnxNode) -> bool:
        """Return whether a node reads only dtypes that all operators support."""
        names = [name for name in node.inputs if name]
        return all(self.importer.type(name).dtype.name in _COMMON for name in names)

    def _is_constant(self, node: OnnxNode) -> bool:
        """Return whether a node reads only constants; False if one cannot be read."""
        try:
            return self.importer.all_constant(node)
        except ModelError:
            return False

    # --- partition ---------------------------------------------------------------------

    def parts(self) -> tuple[Part, ...]:
        """Return the parts in order, without nodes computed at import."""
        kept = [index for index in range(len(self.nodes)) if index not in self.folded]
        place = {index: number for number, index in enumerate(kept)}
        makers = {name: index for index in kept for name in self.nodes[index].outputs if name}
        before = [
            {place[makers[name]] for name in self.reads[index] if name in makers} for index in kept
        ]
        pairs = [
            (place[makers[name]], place[index])
            for index in kept
            for name in self.reads[index]
            if name in self.open and name in makers
        ]
        tail = self._tail(before, pairs, place, makers)
        foreign = {place[index] for index in self.refusals}
        found = partition(before, foreign, pairs, tail)
        return tuple(Part(part.kind, tuple(kept[node] for node in part.nodes)) for part in found)

    def _tail(
        self,
        before: Sequence[set[int]],
        pairs: Sequence[tuple[int, int]],
        place: Mapping[int, int],
        makers: Mapping[str, int],
    ) -> set[int]:
        """Return the nodes that have to be in the tail, by their places."""
        outputs = [item.name for item in self.model.graph.output]
        tail = {place[makers[name]] for name in outputs if name in self.open and name in makers}
        tail |= {
            place[index]
            for index in place
            if any(name in self.open and name not in makers for name in self.reads[index])
        }
        size = -1
        while len(tail) != size:
            size = len(tail)
            tail |= {maker for maker, reader in pairs if reader in tail}
            for node, sources in enumerate(before):
                if not tail.isdisjoint(sources):
                    tail.add(node)
        return tail


def _integers(node: OnnxNode, key: str) -> list[int]:
    found = node.attrs.get(key)
    if isinstance(found, int):
        return [found]
    return [item for item in found if isinstance(item, int)] if isinstance(found, tuple) else []


def _reason(node: OnnxNode, error: ModelError) -> str:
    """Return a message without the node, which the refusal names."""
    if isinstance(error, UnsupportedError) and error.reason:
        return error.reason
    found, _, _ = str(error).removeprefix(f"{node.where}: ").partition("; ")
    return found.removesuffix(".")
