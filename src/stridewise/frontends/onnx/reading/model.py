"""A model file that was read once, and the graphs that are imported from it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from numpy.typing import ArrayLike

from stridewise.errors import GraphError, ModelError
from stridewise.frontends.onnx.fallback import runtime
from stridewise.frontends.onnx.fallback.foreign import Survey
from stridewise.frontends.onnx.fallback.split import Split
from stridewise.frontends.onnx.fallback.types import ValueTypes, open_inputs
from stridewise.frontends.onnx.reading.importer import Importer
from stridewise.frontends.onnx.reading.inputs import (
    ModelInput,
    given_values,
    model_inputs,
    resolve_shapes,
)
from stridewise.frontends.onnx.reading.nodes import import_node
from stridewise.frontends.onnx.reading.proto import OnnxNode, decode_node, opset_of
from stridewise.frontends.onnx.reading.source import Source, open_model
from stridewise.frontends.source import fixed_shapes
from stridewise.graph import Capability, Graph, Shapes, Signature, TensorType
from stridewise.ops.demand import check_demand, memory_demand
from stridewise.ops.registry import Array

__all__ = ["ModelFile", "import_model"]

_MakeImporter = Callable[[Sequence[str] | None], Importer]
"""Makes an importer of the model for some outputs, or for all of them."""


def import_model(
    source: Source,
    *,
    shapes: Shapes | None = None,
    values: Mapping[str, ArrayLike] | None = None,
    name: str | None = None,
    memory_limit: int | None = None,
    fallback: bool = False,
) -> Graph:
    """Import an ONNX model of opset 6 to 28.

    All shapes are fixed at import, and nodes that depend only on shapes and constants are computed.
    Inputs, outputs and results keep their ONNX names. Weights are not copied; external data are
    mapped from files in the model's folder.

    ``shapes`` may change a fixed batch of the model. The new batch then also replaces the old one
    in the constant target of a ``Reshape``, if the target starts with the old batch, the operand
    with the new one, and the element counts have that ratio; and in the sizes of a ``Resize``.

    Args:
        source: a path, the content of a file, or a loaded model.
        shapes: shapes of inputs with symbolic extents, or in place of fixed ones. An unknown first
            extent is 1 by default; other unknown extents must be given.
        values: values of inputs that become constants, such as shapes, axes and pads.
        name: the graph's name; by default that in the model, or the file's.
        memory_limit: bytes that the model may need; None for no limit. The computation of constants
            has a limit of its own, which grows with the content of the file.
        fallback: whether ONNX Runtime may compute nodes that are not supported.

    Raises:
        MemoryLimitError: the model needs more memory than it may have.
        ModelError: the model cannot be read, or is damaged.
        UnsupportedError: it uses something that is not supported.
        DependencyError: it needs ONNX Runtime, which is not installed.
        UnknownValueError: the import needs the value of an input, which ``values`` does not have.
        InputError: ``shapes`` or ``values`` do not fit the inputs of the model.
    """
    file = ModelFile(source, name, fallback=fallback)
    return file.graph(shapes, values, memory_limit=memory_limit)


class ModelFile:
    """A model that was read once, to be imported for any number of shapes.

    It is the :class:`~stridewise.frontends.source.ModelReader` of ONNX.

    Attributes:
        is_graph: False.
        calls: None.
        name: the graph's.
        signature: the inputs that a graph can hold, and the shapes that the model takes them in.
        outputs: names of the outputs, in order.
        arguments: names of all inputs, in order; also of those that a graph cannot hold.
        opened: when reading began, in seconds since the epoch.
    """

    is_graph = False
    calls = None

    def __init__(
        self,
        source: Source,
        name: str | None = None,
        *,
        fallback: bool = False,
        training: bool = False,
    ) -> None:
        """Read a model.

        Args:
            source: a path, the content of a file, or a loaded model.
            name: the graphs' name; by default that in the model, or the file's.
            fallback: whether ONNX Runtime may compute nodes that are not supported.
            training: whether graphs are to be trained.

        Raises:
            ModelError: it cannot be read or is damaged, or an input has no supported type.
        """
        self.opened = time.time()
        opened = open_model(source)
        self._model, self._reader, self._fallback = opened.model, opened.reader, fallback
        self._trains = training
        self._opset = opset_of(self._model)
        self._own = [Path(source).absolute()] if isinstance(source, str | os.PathLike) else []
        stem = self._own[0].stem if self._own else "model"
        self.name = name or self._model.graph.name or stem
        self.outputs = tuple(item.name for item in self._model.graph.output)
        self._nodes: list[OnnxNode] = []
        without = open_inputs(self._model) if fallback else {}
        self._inputs = model_inputs(self._model, without)
        self.signature = Signature(tuple(item.spec for item in self._inputs))
        known = {item.name for item in self._inputs} | set(without)
        names = (item.name for item in self._model.graph.input)
        self.arguments = tuple(name for name in names if name in known)

    @property
    def paths(self) -> tuple[Path, ...]:
        """The model's file, if it has one, and the files of external data that were read so far."""
        return (*self._own, *self._reader.paths)

    def graph(
        self,
        shapes: Shapes | None = None,
        values: Mapping[str, ArrayLike] | None = None,
        *,
        memory_limit: int | None = None,
    ) -> Graph:
        """Return the graph for some shapes; the arguments are those of :func:`import_model`.

        All graphs of a file share the weights that they take from it unchanged.

        Raises:
            UnknownValueError: the import needs values that are not given.
            UnsupportedError: the model uses something that is not supported.
            DependencyError: it needs ONNX Runtime, which is not installed.
            ModelError: the model is damaged.
            MemoryLimitError: the model needs more memory than it may have.
            InputError: ``shapes`` or ``values`` do not fit the inputs of the model.
        """
        make = self._importers(shapes, values, memory_limit)
        try:
            graph = self._split(make) if self._fallback else self._native(make(None))
        except GraphError as error:
            raise ModelError(str(error)) from error
        self._reader.forget()
        check_demand(f"model {graph.name!r}", memory_demand(graph), memory_limit)
        return graph

    def capability(
        self,
        shapes: Shapes | None = None,
        values: Mapping[str, ArrayLike] | None = None,
        *,
        memory_limit: int | None = None,
    ) -> Capability:
        """Return which nodes are native, and the reasons for the others.

        ONNX Runtime need not be installed. If it is, it gives the types of results of operators
        that only it knows.

        Raises:
            ModelError: the model is damaged; see :meth:`graph` for the kinds of it.
            InputError: ``shapes`` or ``values`` do not fit the inputs of the model.
        """
        make = self._importers(shapes, values, memory_limit)
        return Split(self._survey(make(None), lenient=True)).capability(self.name)

    def values(self, values: Mapping[str, ArrayLike]) -> dict[str, Array]:
        """Return values of inputs in their dtypes.

        Raises:
            InputError: a name is not one of an input, or a value does not fit it.
        """
        return given_values(self._inputs, values)

    def _importers(
        self,
        shapes: Shapes | None,
        values: Mapping[str, ArrayLike] | None,
        memory_limit: int | None,
    ) -> _MakeImporter:
        """Return a function that makes importers which know the inputs."""
        fixed = fixed_shapes(self.signature, shapes or {})
        given = self.values(values or {})

        def make(outputs: Sequence[str] | None) -> Importer:
            importer = Importer(self.name, self._model, self._reader, memory_limit, outputs)
            importer.trains = self._trains
            _declare_inputs(importer, self._inputs, fixed, given)
            return importer

        return make

    def _decoded(self) -> Iterator[OnnxNode]:
        """Yield the nodes. Each is decoded when it is reached, so that the first error counts."""
        for position, proto in enumerate(self._model.graph.node):
            if position == len(self._nodes):
                self._nodes.append(decode_node(proto, self._opset, self._reader))
            yield self._nodes[position]

    def _native(self, importer: Importer) -> Graph:
        """Return the graph of a model that needs no other runtime."""
        for node in self._decoded():
            import_node(importer, node)
        return importer.finish()

    def _survey(self, importer: Importer, *, lenient: bool = False) -> Survey:
        """Import as much as possible to find out which nodes are foreign."""
        types = ValueTypes(self._model, importer, lenient)
        survey = Survey(self._model, self._reader, importer, types)
        survey.run()
        return survey

    def _split(self, make: _MakeImporter) -> Graph:
        """Return the graph of a model with its foreign nodes in clusters and a tail."""
        survey = self._survey(make(None))
        if not survey.refusals and not survey.open:
            return survey.importer.finish()
        runtime.require(self.name, survey.foreign)
        split = Split(survey)
        return split.build(make(split.program_outputs()))


def _declare_inputs(
    importer: Importer,
    inputs: Sequence[ModelInput],
    shapes: Mapping[str, Sequence[int]],
    values: Mapping[str, Array],
) -> None:
    given = {name: data.shape for name, data in values.items()}
    resolved = resolve_shapes(inputs, {**shapes, **given})
    for item in inputs:
        if item.name in values:
            importer.add_value(item.name, values[item.name])
            continue
        shape = resolved[item.name]
        old = item.dims[0] if item.dims else ""
        if isinstance(old, int) and old != shape[0]:
            importer.rebatched.add((old, shape[0]))
        importer.add_input(item.name, TensorType(item.dtype, shape))
