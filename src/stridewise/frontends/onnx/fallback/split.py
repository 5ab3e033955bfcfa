"""The second pass of an import with foreign nodes: native nodes, clusters and a tail."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from onnx import (
    GraphProto,
    ModelProto,
    TensorProto,
    ValueInfoProto,
)

from stridewise.classes import dataclass
from stridewise.errors import UnsupportedError
from stridewise.frontends.onnx.fallback.cluster import Part
from stridewise.frontends.onnx.fallback.foreign import Survey, node_label, operator_label
from stridewise.frontends.onnx.fallback.runtime import OnnxPart
from stridewise.frontends.onnx.reading.importer import Importer
from stridewise.frontends.onnx.reading.inputs import stored_names
from stridewise.frontends.onnx.reading.nodes import attempt_node
from stridewise.frontends.onnx.writing.initializers import inline
from stridewise.graph import (
    Attr,
    Capability,
    Graph,
    NodeSupport,
    Refusal,
    Segment,
    Support,
    Tail,
)

__all__ = ["Split"]

_AFTER = "it runs after nodes whose results only the other runtime can hold"
_BETWEEN = "it runs between nodes that exchange values which only the other runtime can hold"


@dataclass(frozen=True, slots=True)
class _Border:
    """Values that cross the border of a part: its inputs, and results that other parts read."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


class Split:
    """A surveyed model and its partition."""

    def __init__(self, survey: Survey) -> None:
        """Partition a model."""
        self._survey = survey
        self.parts = survey.parts()
        self._outputs = tuple(item.name for item in survey.model.graph.output)
        self._readers: dict[str, set[int]] = {}
        for index, names in enumerate(survey.reads):
            for name in names:
                self._readers.setdefault(name, set()).add(index)
        self.refusals = dict(survey.refusals)
        for part in self.parts:
            if part.kind != "native":
                for index in part.nodes:
                    label = node_label(survey.nodes[index].proto)
                    reason = _AFTER if part.kind == "tail" else _BETWEEN
                    self.refusals.setdefault(index, Refusal("onnx", label, reason))

    @property
    def tail(self) -> Part | None:
        """The part that runs last, None if there is none."""
        return next((part for part in self.parts if part.kind == "tail"), None)

    # --- borders --------------------------------------------------------------------------------

    def _is_constant(self, name: str) -> bool:
        if name in self._survey.open:
            return False
        importer = self._survey.importer
        return importer.initializer(name) is not None or importer.const(name) is not None

    def _border(self, part: Part) -> _Border:
        nodes = set(part.nodes)
        made = [name for index in part.nodes for name in self._survey.nodes[index].outputs if name]
        reads = dict.fromkeys(name for index in part.nodes for name in self._survey.reads[index])
        inside = set(made)
        return _Border(
            tuple(name for name in reads if name not in inside and not self._is_constant(name)),
            tuple(name for name in made if self._is_read(name, nodes)),
        )

    def _is_read(self, name: str, nodes: set[int]) -> bool:
        return name in self._outputs or not self._readers.get(name, set()) <= nodes

    def program_outputs(self) -> tuple[str, ...]:
        """Return the outputs of the graph: results outside of the tail, and inputs of the tail."""
        part = self.tail
        if part is None and not any(name in self._survey.open for name in self._outputs):
            return self._outputs
        border = _Border((), ()) if part is None else self._border(part)
        elsewhere = {*border.outputs, *self._survey.open}
        given = {item.name for item in self._survey.model.graph.input}
        own = [name for name in self._outputs if name not in elsewhere]
        own += [name for name in border.inputs if name not in elsewhere and name not in given]
        return tuple(dict.fromkeys(own))

    # --- models of parts ------------------------------------------------------------------------

    def _part(self, part: Part, border: _Border) -> OnnxPart:
        """Return a part as a model, with the constants that it reads."""
        survey = self._survey
        graph = GraphProto(name=f"{survey.model.graph.name or 'model'}/{part.kind}")
        for index in part.nodes:
            graph.node.append(survey.nodes[index].proto)
        reads = dict.fromkeys(name for index in part.nodes for name in survey.reads[index])
        made = {name for node in graph.node for name in node.output}
        for name in reads:
            if name not in made and name not in border.inputs:
                graph.initializer.append(self._initializer(name))
        graph.input.extend(survey.types.declared(name) for name in border.inputs)
        graph.output.extend(
            ValueInfoProto(name=name) if name in survey.open else survey.types.declared(name)
            for name in border.outputs
        )
        model = ModelProto(
            ir_version=survey.model.ir_version,
            opset_import=survey.model.opset_import,
            functions=survey.model.functions,
            graph=graph,
        )
        try:
            content = model.SerializeToString(deterministic=True)
        except Exception as error:  # protocol buffers raise several exceptions for this
            first = survey.nodes[part.nodes[0]]
            raise UnsupportedError.at(
                first.where,
                expected="weights of less than 2 GB beside it, for another runtime",
                found=" ".join(str(error).split()),
            ) from error
        labels = [(node_label(node), operator_label(node)) for node in graph.node]
        return OnnxPart(content, labels)

    def _initializer(self, name: str) -> TensorProto:
        importer = self._survey.importer
        found = TensorProto()
        raw = importer.initializer(name)
        if raw is None or raw.data_location == TensorProto.EXTERNAL:
            data = importer.const(name)
            assert data is not None  # the part would list it as an input
            return inline(name, data)
        found.CopyFrom(raw)
        found.name = name
        return found

    # --- the graph ------------------------------------------------------------------------------

    def build(self, importer: Importer) -> Graph:
        """Return the graph.

        Args:
            importer: a new importer of the same model for the outputs of
                :meth:`program_outputs`.

        Raises:
            ModelError: a part is too large for another runtime.
        """
        survey = self._survey
        importer.preset(survey.constants)
        tail: Tail | None = None
        for part in self.parts:
            if part.kind == "native":
                attempt_node(importer, survey.nodes[part.nodes[0]])
            elif part.kind == "tail":
                tail = self._tail(part)
            else:
                self._add(importer, part)
        if tail is None and any(name in survey.open for name in self._outputs):
            tail = self._tail(Part("tail", ()))  # an input that is an output, and not a tensor
        return importer.finish(tail)

    def _described(self, part: Part) -> dict[str, tuple[str, ...]]:
        protos = [self._survey.nodes[index].proto for index in part.nodes]
        return {
            "nodes": tuple(map(node_label, protos)),
            "operators": tuple(map(operator_label, protos)),
            "reasons": tuple(self.refusals[index].reason for index in part.nodes),
        }

    def _add(self, importer: Importer, part: Part) -> None:
        border = self._border(part)
        if not border.outputs:
            return  # its results are unused
        types = tuple(str(self._survey.importer.type(name)) for name in border.outputs)
        attrs: dict[str, Attr] = {**self._described(part), "types": types}
        attrs["part"] = self._part(part, border)
        importer.fallback(border.outputs[0], border.inputs, attrs, border.outputs)

    def _tail(self, part: Part) -> Tail:
        border = self._border(part)
        given = stored_names(self._survey.model)
        inputs = self._survey.model.graph.input
        return Tail(
            part=self._part(part, border) if part.nodes else None,
            inputs=border.inputs,
            outputs=border.outputs,
            arguments=tuple(item.name for item in inputs if item.name not in given),
            results=self._outputs,
            **self._described(part),
        )

    # --- capability ----------------------------------------------------------------------------

    def capability(self, name: str) -> Capability:
        """Return where each node runs."""
        kinds: dict[int, Support] = {
            index: part.kind for part in self.parts for index in part.nodes
        }
        survey = self._survey
        nodes = tuple(
            NodeSupport(
                node_label(node.proto),
                operator_label(node.proto),
                kinds.get(index, "constant"),
                self.refusals[index].reason if index in self.refusals else "",
            )
            for index, node in enumerate(survey.nodes)
        )
        return Capability(name, nodes, tuple(_segments(self.parts, nodes)))


def _segments(parts: Sequence[Part], nodes: Sequence[NodeSupport]) -> Iterator[Segment]:
    """Yield the parts in order, native neighbors as one segment."""
    groups: list[tuple[Support, list[int]]] = []
    for part in parts:
        if part.kind == "native" and groups and groups[-1][0] == "native":
            groups[-1][1].extend(part.nodes)
        else:
            groups.append((part.kind, list(part.nodes)))
    for kind, members in groups:
        found = [nodes[index] for index in members]
        yield Segment(
            kind,
            tuple(node.name for node in found),
            tuple(node.operator for node in found),
            tuple(dict.fromkeys(node.reason for node in found if node.reason)),
        )
