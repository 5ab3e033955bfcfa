"""Model files: reading them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from stridewise.errors import InputError, describe
from stridewise.graph import Graph
from stridewise.graph.verify import verify
from stridewise.ops import infer
from stridewise.ops.registry import check_data_format

if TYPE_CHECKING:
    from onnx import ModelProto

__all__ = ["ModelSource", "load"]

ModelSource: TypeAlias = "str | os.PathLike[str] | bytes | Graph | ModelProto"
"""Path of an ONNX file, its bytes, an ``onnx.ModelProto``, or a graph."""


def load(
    source: ModelSource,
    shapes: Mapping[str, Sequence[int]] | None = None,
) -> Graph:
    """Return the graph of a model, as the user wrote it.

    Args:
        source: path of an ONNX file, its bytes, an ``onnx.ModelProto``, or a graph.
        shapes: shapes of inputs, where the model leaves them open or others are wanted.

    Raises:
        ModelError: the model is damaged or uses something unsupported.
        InputError: ``shapes`` names no input of the model, or does not fit it.
        GraphError: a given graph breaks an invariant.
        FormatError: a given graph mixes data formats.
    """
    if isinstance(source, Graph):
        if shapes:
            raise InputError(
                describe(
                    "shapes",
                    expected="none for a graph, whose shapes are fixed",
                    found=", ".join(shapes),
                    fix="build the graph with those shapes",
                )
            )
        verify(source, infer)
        check_data_format(source)
        return source
    from stridewise.frontends.onnx import import_model  # noqa: PLC0415 (onnx takes time to load)

    if isinstance(source, os.PathLike):
        source = Path(source)
    return import_model(source, shapes=shapes)
