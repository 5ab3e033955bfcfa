"""The list of front ends, and the choice of the one for a source."""

from __future__ import annotations

from typing import TypeAlias

from stridewise.errors import InputError
from stridewise.frontends.graph import GraphFrontEnd
from stridewise.frontends.onnx.front_end import OnnxFrontEnd, OnnxSource
from stridewise.frontends.source import FrontEnd, ModelReader
from stridewise.frontends.torch.front_end import TorchFrontEnd, TorchSource
from stridewise.graph import Graph

__all__ = [
    "FRONT_ENDS",
    "TORCH",
    "WRITER",
    "ArraySource",
    "ModelSource",
    "TorchSource",
    "front_end_of",
    "open_model",
]

ArraySource: TypeAlias = "Graph | OnnxSource"
"""Models that take and give arrays."""

ModelSource: TypeAlias = "ArraySource | TorchSource"
"""What the front ends take."""

WRITER = OnnxFrontEnd()
"""The front end whose format graphs and annotated plans are saved in."""

TORCH = TorchFrontEnd()
"""The front end of modules with example inputs."""

FRONT_ENDS: tuple[FrontEnd, ...] = (GraphFrontEnd(WRITER), WRITER, TORCH)
"""All front ends. The first one that takes a source opens it."""


def front_end_of(source: object) -> FrontEnd:
    """Return the front end for a source.

    Raises:
        InputError: none takes it.

    >>> front_end_of(b"").accepts
    'the path of an ONNX file, its bytes, or an onnx.ModelProto'
    """
    for front_end in FRONT_ENDS:
        if front_end.takes(source):
            return front_end
    expected = "; or ".join(front_end.accepts for front_end in FRONT_ENDS)
    raise InputError.at("model", expected=expected, found=type(source).__name__)


def open_model(
    source: ModelSource, *, fallback: bool = True, training: bool = False
) -> ModelReader:
    """Open a model in the front end for it.

    Args:
        source: the path of a model file, its content, a model in memory, or a graph.
        fallback: whether another runtime may compute nodes that Stridewise has no operator for.
        training: whether graphs of it are to be trained.

    Raises:
        InputError: no front end takes the source, or it does not read such models for training.
        ModelError: the model cannot be read or is damaged.
        GraphError: a given graph breaks an invariant.
        FormatError: a given graph mixes data formats.
        UnsupportedError: a given graph has a foreign part, and ``fallback`` is False.
    """
    front_end = front_end_of(source)
    if training:
        return front_end.open(source, fallback=fallback, training=True)
    return front_end.open(source, fallback=fallback)  # others need not know of training
