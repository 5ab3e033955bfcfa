"""Importing a whole model: the loop over its nodes."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from stridewise.errors import (
    GraphError,
    InputError,
    ModelError,
    StridewiseError,
    UnknownValueError,
    UnsupportedError,
    describe,
)
from stridewise.frontends.onnx.fallback.foreign import ForeignRuntime, Survey, open_inputs
from stridewise.frontends.onnx.fallback.split import Split
from stridewise.frontends.onnx.handlers.indices import DATA_DEPENDENT
from stridewise.frontends.onnx.reading import fold
from stridewise.frontends.onnx.reading.importer import Importer
from stridewise.frontends.onnx.reading.inputs import (
    ModelInput,
    given_values,
    model_inputs,
    resolve_shapes,
)
from stridewise.frontends.onnx.reading.legacy import modern
from stridewise.frontends.onnx.reading.proto import (
    OPSETS,
    OnnxNode,
    Undecoded,
    decode_node,
    opset_of,
)
from stridewise.frontends.onnx.reading.source import Source, open_model
from stridewise.frontends.onnx.table import HANDLERS
from stridewise.graph import Capability, Graph, Signature, TensorType
from stridewise.ops.demand import check_demand, memory_demand
from stridewise.ops.registry import Array

__all__ = ["ModelFile", "import_model"]

_CONTROL_FLOW = frozenset({"If", "Loop", "Scan", "SequenceMap"})
_NOT_A_FUNCTION = frozenset(
    {"Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform",
     "RandomUniformLike"}
)  # fmt: skip
"""Operators that give something else each time; they must not be folded."""


def import_model(
    source: Source,
    *,
    shapes: Mapping[str, Sequence[int]] | None = None,
    values: Mapping[str, ArrayLike] | None = None,
    name: str | None = None,
    memory_limit: int | None = None,
    foreign: ForeignRuntime | None = None,
) -> Graph:
    """Import an ONNX model of opset 6 to 28.

    Every shape is fixed at import, and whatever depends on shapes and constants only is computed.
    Inputs, outputs and results keep their ONNX names. Weights are not copied; external data are
    mapped from files in the model's folder.

    Where ``shapes`` gives a model of fixed batch another one, a ``Reshape`` to a constant shape
    follows: when its target starts with the old batch, its operand with the new one, and the
    element counts differ by just that ratio, the new batch takes the place of the old. It also does
    in the sizes of a ``Resize``.

    Args:
        source: a path, the content of a file, or a loaded model.
        shapes: shapes of inputs, for symbolic ones or to override fixed ones. An unknown first
            extent that is not given is 1; any other must be given.
        values: values of inputs that become constants and are inputs no longer: shapes, axes or
            pads that the model takes from its caller.
        name: the graph's name; by default that in the model, or the file's.
        memory_limit: bytes that the model may need; None for no limit. Constants are computed only
            as far as they stay small beside what the file holds.
        foreign: what computes nodes that are not supported; None refuses them.

    Raises:
        MemoryLimitError: the model needs more memory than it may have.
        ModelError: the model cannot be read, or is damaged.
        UnsupportedError: it uses something that is not supported.
        DependencyError: it needs the other runtime, which is not there.
        UnknownValueError: the import needs the value of an input, which ``values`` does not have.
        InputError: ``shapes`` or ``values`` do not fit the inputs of the model.
    """
    file = ModelFile(source, name, foreign)
    return file.graph(shapes, values, memory_limit=memory_limit)


class ModelFile:
    """A model that was read once, to be imported for any number of shapes.

    Attributes:
        name: the graph's.
        signature: the inputs that a graph can hold, and the shapes that the model takes them in.
        outputs: names of the outputs, in order.
        arguments: names of all inputs, in order, of those also that a graph cannot hold.
        opened: when reading began, in seconds since the epoch.
    """

    def __init__(
        self, source: Source, name: str | None = None, foreign: ForeignRuntime | None = None
    ) -> None:
        """Read a model; ``foreign`` computes nodes that are not supported, None refuses them.

        Raises:
            ModelError: it cannot be read or is damaged, or an input is of no supported type.
        """
        self.opened = time.time()
        opened = open_model(source)
        self._model, self._reader, self._foreign = opened.model, opened.reader, foreign
        self._opset = opset_of(self._model)
        stem = Path(source).stem if isinstance(source, str | os.PathLike) else "model"
        self.name = name or self._model.graph.name or stem
        self.outputs = tuple(item.name for item in self._model.graph.output)
        self._nodes: list[OnnxNode] = []
        without = open_inputs(self._model) if foreign is not None else {}
        self._inputs = model_inputs(self._model, without)
        self.signature = Signature(tuple(item.spec for item in self._inputs))
        known = {item.name for item in self._inputs} | set(without)
        names = (item.name for item in self._model.graph.input)
        self.arguments = tuple(name for name in names if name in known)

    @property
    def paths(self) -> tuple[Path, ...]:
        """Files of external data that were read so far."""
        return self._reader.paths

    def graph(
        self,
        shapes: Mapping[str, Sequence[int]] | None = None,
        values: Mapping[str, ArrayLike] | None = None,
        *,
        memory_limit: int | None = None,
    ) -> Graph:
        """Return the graph for some shapes; the arguments are those of :func:`import_model`.

        Weights that a graph takes from the file as they are, are those of all graphs of the file.

        Raises:
            UnknownValueError: the import needs values that are not given.
            UnsupportedError: the model uses something that is not supported.
            DependencyError: it needs the other runtime, which is not there.
            ModelError: the model is damaged.
            MemoryLimitError: the model needs more memory than it may have.
            InputError: ``shapes`` or ``values`` do not fit the inputs of the model.
        """
        work = _Work(self, shapes or {}, given_values(self._inputs, values or {}), memory_limit)
        try:
            graph = work.native() if self._foreign is None else work.split(self._foreign)
        except GraphError as error:
            raise ModelError(str(error)) from error
        self._reader.forget()
        check_demand(f"model {graph.name!r}", memory_demand(graph), memory_limit)
        return graph

    def capability(
        self,
        shapes: Mapping[str, Sequence[int]] | None = None,
        values: Mapping[str, ArrayLike] | None = None,
        *,
        memory_limit: int | None = None,
    ) -> Capability:
        """Return which nodes are native, and which are not and why.

        Raises:
            ModelError: the model is damaged; see :meth:`graph` for the kinds of it.
            InputError: ``shapes`` or ``values`` do not fit the inputs of the model, or the file was
                not read for another runtime.
        """
        if self._foreign is None:
            raise InputError(
                describe(f"model {self.name!r}", expected="another runtime", found="none")
            )
        work = _Work(self, shapes or {}, given_values(self._inputs, values or {}), memory_limit)
        return Split(work.survey(self._foreign)).capability(self.name)

    def values(self, values: Mapping[str, ArrayLike]) -> dict[str, Array]:
        """Return values of inputs in their dtypes.

        Raises:
            InputError: a name is not one of an input, or a value does not fit it.
        """
        return given_values(self._inputs, values)

    def importer(
        self,
        shapes: Mapping[str, Sequence[int]],
        values: Mapping[str, Array],
        memory_limit: int | None,
        outputs: Sequence[str] | None = None,
    ) -> Importer:
        """Return an importer that knows the inputs."""
        importer = Importer(self.name, self._model, self._reader, memory_limit, outputs)
        _declare_inputs(importer, self._inputs, shapes, values)
        return importer

    def nodes(self) -> Iterator[OnnxNode]:
        """Yield the nodes, decoded when first wanted: nodes after a wrong one need not be."""
        for position, proto in enumerate(self._model.graph.node):
            if position == len(self._nodes):
                self._nodes.append(decode_node(proto, self._opset, self._reader))
            yield self._nodes[position]

    def survey(self, importer: Importer, foreign: ForeignRuntime) -> Survey:
        """Find out which nodes are foreign, by importing as far as that works."""
        survey = Survey(self._model, self._reader, importer, _attempt, foreign)
        survey.run()
        return survey


@dataclass(frozen=True, slots=True)
class _Work:
    """One import of a model."""

    file: ModelFile
    shapes: Mapping[str, Sequence[int]]
    values: Mapping[str, Array]
    memory_limit: int | None

    def importer(self, outputs: Sequence[str] | None = None) -> Importer:
        return self.file.importer(self.shapes, self.values, self.memory_limit, outputs)

    def native(self) -> Graph:
        """Return the graph of a model that needs no other runtime."""
        importer = self.importer()
        for node in self.file.nodes():
            _import_node(importer, node)
        return importer.finish()

    def survey(self, foreign: ForeignRuntime) -> Survey:
        return self.file.survey(self.importer(), foreign)

    def split(self, foreign: ForeignRuntime) -> Graph:
        """Return the graph of a model, foreign nodes in clusters and a tail."""
        survey = self.survey(foreign)
        if not survey.refusals and not survey.open:
            return survey.importer.finish()
        foreign.require(self.file.name, survey.foreign)
        split = Split(survey)
        return split.build(self.importer(split.program_outputs()))


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


def _import_node(importer: Importer, node: OnnxNode) -> None:
    try:
        _import_checked(importer, node)
    except ModelError as error:
        _check_values(importer, node, error)
        raise


def _check_values(importer: Importer, node: OnnxNode, error: ModelError) -> None:
    """Ask for the values of inputs where a node that is refused may be computed from these."""
    # What is refused as a tensor may do as a constant: arithmetic on shapes, above all.
    inputs = importer.small_sources(node.inputs, "biu")
    if inputs and not isinstance(error, UnknownValueError):
        raise UnknownValueError(str(error), inputs) from error


def _attempt(importer: Importer, node: OnnxNode) -> None:
    """Import a node as :func:`_import_node`, where another runtime may do it instead.

    No value of an input helps where there is no operator at all.
    """
    try:
        _import_checked(importer, node)
    except UnsupportedError:
        raise
    except ModelError as error:
        _check_values(importer, node, error)
        raise


def _import_checked(importer: Importer, node: OnnxNode) -> None:
    importer.check_inputs(node)
    try:
        # Constants are computed as ONNX does: what overflows is infinite, without a warning.
        with np.errstate(all="ignore"):
            _dispatch(importer, node)
    except UnknownValueError:
        raise
    except ModelError as error:
        if node.where in str(error):
            raise
        raise type(error)(f"{node.where}: {error}") from error
    except StridewiseError as error:
        # Our own operators name the node too, in their own terms.
        _, own_name, rest = str(error).partition("): ")
        raise ModelError(f"{node.where}: {rest if own_name else error}") from error
    except (ArithmeticError, LookupError, TypeError, ValueError, MemoryError) as error:
        # What handlers and NumPy raise for attributes and data that make no sense.
        text = " ".join(str(error).split()) or type(error).__name__
        raise ModelError(
            describe(node.where, expected="inputs and attributes that fit it", found=text)
        ) from error


def _dispatch(importer: Importer, node: OnnxNode) -> None:
    if node.domain == "" and node.opset < OPSETS[0]:
        raise node.unsupported(
            f"an operator of opset {OPSETS[0]} to {OPSETS[1]}",
            f"opset {node.opset}",
            "export the model with another opset",
            f"it is of opset {node.opset}",
        )
    node = modern(importer, node)
    handler = HANDLERS.get(node.domain, {}).get(node.op_type)
    subgraph = any(isinstance(value, Undecoded) for value in node.attrs.values())
    if node.domain == "" and node.op_type in _CONTROL_FLOW:
        raise node.unsupported(
            "a model without control flow",
            f"operator {node.op_type}",
            "export it with fixed conditions, or simplify it before",
            "control flow",
        )
    constant = node.domain == "" and importer.all_constant(node) and not subgraph
    if constant and fold.fold(importer, node):
        return
    if handler is None and (not constant or node.op_type in _NOT_A_FUNCTION):
        raise _unsupported(node)
    if handler is None:
        fold.by_reference(importer, node)
        return
    try:
        handler(importer, node)
    except GraphError:
        # Our operators know fewer dtypes than ONNX's; that doesn't matter for constants.
        if not constant:
            raise
        fold.by_reference(importer, node)


def _unsupported(node: OnnxNode) -> UnsupportedError:
    domain = node.domain or "ai.onnx"
    count = "" if node.domain else DATA_DEPENDENT.get(node.op_type, "")
    reason = f", whose result has {count}, which no shape can tell" if count else ""
    return node.unsupported(
        "a supported operator",
        f"{node.op_type!r} of domain {domain!r} (opset {node.opset}){reason}",
        "export the model without it, replace it by supported operators, or fold it if its "
        "inputs are constants",
        "there is no operator for it",
    )
