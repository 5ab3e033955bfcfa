"""Importing a whole model: the loop over its nodes."""

from __future__ import annotations

import os
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from onnx import ModelProto

from stridewise.errors import GraphError, ModelError, StridewiseError, UnsupportedError, describe
from stridewise.frontends.onnx import fold
from stridewise.frontends.onnx.foreign import ForeignRuntime, Survey, open_inputs
from stridewise.frontends.onnx.importer import Importer
from stridewise.frontends.onnx.indices import DATA_DEPENDENT
from stridewise.frontends.onnx.inputs import ModelInput, model_inputs, resolve_shapes
from stridewise.frontends.onnx.legacy import modern
from stridewise.frontends.onnx.proto import OPSETS, OnnxNode, Undecoded, decode_node, opset_of
from stridewise.frontends.onnx.source import Source, folder_of, read_model
from stridewise.frontends.onnx.split import Split
from stridewise.frontends.onnx.table import HANDLERS
from stridewise.frontends.onnx.tensors import TensorReader
from stridewise.graph import Capability, Graph, TensorType
from stridewise.ops.demand import check_demand, memory_demand

__all__ = ["examine_model", "import_model"]

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
        name: the graph's name; by default that in the model, or the file's.
        memory_limit: bytes that the model may need; None for no limit. Constants are computed only
            as far as they stay small beside what the file holds.
        foreign: what computes nodes that are not supported; None refuses them.

    Raises:
        MemoryLimitError: the model needs more memory than it may have.
        ModelError: the model cannot be read, or is damaged.
        UnsupportedError: it uses something that is not supported.
        DependencyError: it needs the other runtime, which is not there.
        InputError: ``shapes`` does not fit the inputs of the model.
    """
    work = _Work.of(source, shapes or {}, name, memory_limit)
    try:
        graph = work.native() if foreign is None else work.split(foreign)
    except GraphError as error:
        raise ModelError(str(error)) from error
    check_demand(f"model {graph.name!r}", memory_demand(graph), memory_limit)
    return graph


def examine_model(
    source: Source,
    foreign: ForeignRuntime,
    *,
    shapes: Mapping[str, Sequence[int]] | None = None,
    memory_limit: int | None = None,
) -> Capability:
    """Return which nodes of an ONNX model are native, and which are not and why.

    Args:
        source: a path, the content of a file, or a loaded model.
        foreign: what would compute nodes that are not supported.
        shapes: as for :func:`import_model`.
        memory_limit: as for :func:`import_model`.

    Raises:
        MemoryLimitError: a value needs more memory than it may have.
        ModelError: the model cannot be read, or is damaged.
        InputError: ``shapes`` does not fit the inputs of the model.
    """
    work = _Work.of(source, shapes or {}, None, memory_limit)
    return Split(work.survey(foreign)).capability(work.name)


@dataclass(frozen=True, slots=True)
class _Work:
    """A model that was read, and how it is wanted."""

    model: ModelProto
    name: str
    shapes: Mapping[str, Sequence[int]]
    memory_limit: int | None
    reader: TensorReader

    @classmethod
    def of(
        cls,
        source: Source,
        shapes: Mapping[str, Sequence[int]],
        name: str | None,
        memory_limit: int | None,
    ) -> _Work:
        model = read_model(source)
        opset_of(model)
        stem = Path(source).stem if isinstance(source, str | os.PathLike) else "model"
        name = name or model.graph.name or stem
        return cls(model, name, shapes, memory_limit, TensorReader(folder_of(source)))

    def importer(
        self, outputs: Sequence[str] | None = None, without: Container[str] = ()
    ) -> Importer:
        """Return an importer that knows the inputs."""
        importer = Importer(self.name, self.model, self.reader, self.memory_limit, outputs)
        _declare_inputs(importer, model_inputs(self.model, without), self.shapes)
        return importer

    def native(self) -> Graph:
        """Return the graph of a model that needs no other runtime."""
        importer = self.importer()
        opset = opset_of(self.model)
        for proto in self.model.graph.node:
            _import_node(importer, decode_node(proto, opset, self.reader))
        return importer.finish()

    def survey(self, foreign: ForeignRuntime) -> Survey:
        """Find out which nodes are foreign."""
        importer = self.importer(without=open_inputs(self.model))
        survey = Survey(self.model, self.reader, importer, _import_node, foreign)
        survey.run()
        return survey

    def split(self, foreign: ForeignRuntime) -> Graph:
        """Return the graph of a model, foreign nodes in clusters and a tail."""
        survey = self.survey(foreign)
        if not survey.refusals and not survey.open:
            return survey.importer.finish()
        foreign.require(self.name, survey.foreign)
        split = Split(survey)
        return split.build(self.importer(split.program_outputs(), open_inputs(self.model)))


def _declare_inputs(
    importer: Importer, inputs: Sequence[ModelInput], shapes: Mapping[str, Sequence[int]]
) -> None:
    resolved = resolve_shapes(inputs, shapes)
    for item in inputs:
        shape = resolved[item.name]
        old = item.dims[0] if item.dims else ""
        if isinstance(old, int) and old != shape[0]:
            importer.rebatched.add((old, shape[0]))
        importer.add_input(item.name, TensorType(item.dtype, shape))


def _import_node(importer: Importer, node: OnnxNode) -> None:
    importer.check_inputs(node)
    try:
        # Constants are computed as ONNX does: what overflows is infinite, without a warning.
        with np.errstate(all="ignore"):
            _dispatch(importer, node)
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
    handler = HANDLERS.get(node.op_type) if node.domain == "" else None
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
