"""The ONNX front end as the other parts of Stridewise see it; it imports ``onnx`` at first use."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from numpy.typing import NDArray

from stridewise.graph import Graph

if TYPE_CHECKING:
    from onnx import ModelProto

    from stridewise.frontends.onnx.reading.model import ModelFile
    from stridewise.frontends.onnx.writing.annotate import Notes

__all__ = ["OnnxFrontEnd", "OnnxSource"]

Array = NDArray[Any]
OnnxSource: TypeAlias = "str | os.PathLike[str] | bytes | ModelProto"
"""Path of an ONNX file, its bytes, or an ``onnx.ModelProto``."""


class OnnxFrontEnd:
    """Takes ONNX models: files, bytes and ``ModelProto``.

    Attributes:
        runtime: ``"onnxruntime"``.
        accepts: what it takes, for messages.
    """

    runtime = "onnxruntime"
    accepts = "the path of an ONNX file, its bytes, or an onnx.ModelProto"

    def takes(self, source: object) -> bool:
        """Return whether a source is a path, bytes or a ``ModelProto``."""
        # Without the package loaded, no object can be of its type.
        onnx = sys.modules.get("onnx")
        is_proto = onnx is not None and isinstance(source, onnx.ModelProto)
        return is_proto or isinstance(source, str | os.PathLike | bytes)

    def open(self, source: OnnxSource, *, fallback: bool, training: bool = False) -> ModelFile:
        """Read a model.

        Raises:
            ModelError: it cannot be read or is damaged.
        """
        from stridewise.frontends.onnx.reading.model import ModelFile

        is_path = isinstance(source, os.PathLike)
        given = Path(source) if is_path else source
        return ModelFile(given, fallback=fallback, training=training)

    def run(self, source: OnnxSource, inputs: Mapping[str, Any], threads: int) -> dict[str, Array]:
        """Return the outputs of a model by name, computed by ONNX Runtime alone.

        Raises:
            DependencyError: ONNX Runtime is not installed.
            ModelError: it refuses the model.
            ExecutionError: it fails.
        """
        from stridewise.frontends.onnx.fallback import runtime

        if isinstance(source, str | os.PathLike):
            return runtime.run_model(os.fspath(source), inputs, threads)
        content = source if isinstance(source, bytes) else source.SerializeToString()
        return runtime.run_model(content, inputs, threads)

    def session(self, source: Path | bytes, threads: int, optimized: Path | None = None) -> Any:
        """Return an ``onnxruntime.InferenceSession`` of a whole model.

        Args:
            source: the path of a model file, or its bytes.
            threads: how many threads run it; idle ones do not spin.
            optimized: file for the graph that ONNX Runtime runs; None for none.

        Raises:
            DependencyError: ONNX Runtime is not installed.
            ModelError: it refuses the model.
        """
        from stridewise.frontends.onnx.fallback import runtime

        model = source if isinstance(source, bytes) else str(source)
        return runtime.open_session(model, threads, optimized)

    def save(
        self, graph: Graph, path: str | os.PathLike[str], *, external_above: int = 2_000_000_000
    ) -> None:
        """Write a graph as an ONNX model; see :func:`stridewise.save`."""
        from stridewise.frontends.onnx.writing.export import save_model

        save_model(graph, path, version=_version(), external_above=external_above)

    def annotate(
        self, graph: Graph, notes: Notes, path: str | os.PathLike[str], *, weights: bool
    ) -> None:
        """Write a graph with notes as an ONNX model; see :func:`stridewise.annotate`."""
        from stridewise.frontends.onnx.writing.annotate import annotate_model

        annotate_model(graph, notes, path, version=_version(), weights=weights)

    def changed(self, path: Path, *, batch: int | None, random_weights: bool) -> bytes:
        """Return a copy of a model file.

        Args:
            path: the file.
            batch: another batch size; None for that of the file.
            random_weights: whether seeded random numbers replace the weights.

        Raises:
            ModelError: the model cannot be read, or has no batch.
        """
        from stridewise.frontends.onnx.reading.source import read_model
        from stridewise.frontends.onnx.writing.edit import randomize, rebatch

        model = read_model(path)
        if batch is not None:
            model = rebatch(model, batch)
        return (randomize(model) if random_weights else model).SerializeToString()

    def operators(self, path: Path) -> dict[str, int]:
        """Return how many nodes of each operator a model file has; it is not checked."""
        from stridewise.frontends.onnx.reading.source import count_operators

        return count_operators(path)


def _version() -> str:
    from importlib.metadata import version

    return version("stridewise")
