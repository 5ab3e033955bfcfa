"""Reading a model: from a path, bytes or a loaded model to a checked ``ModelProto``."""

from __future__ import annotations

import os
from collections import Counter
from contextlib import suppress
from pathlib import Path

import numpy as np
import onnx
from google.protobuf.message import DecodeError
from onnx import inliner

from stridewise.classes import dataclass
from stridewise.errors import ModelError
from stridewise.frontends.onnx.reading.order import in_order
from stridewise.frontends.onnx.reading.soundness import check_functions, check_model
from stridewise.frontends.onnx.reading.tensors import TensorReader
from stridewise.frontends.onnx.reading.wire import without_weights
from stridewise.graph.mapped import MappedFile

__all__ = ["OpenModel", "Source", "count_operators", "open_model", "read_model"]

Source = str | os.PathLike[str] | bytes | onnx.ModelProto
"""A path, the content of a file, or a model that is already loaded."""

_DAMAGED = "export or download the model again"
_LARGEST = 2**31 - 1
"""Greatest size of a protocol buffer in bytes; larger models need external data."""


@dataclass(frozen=True, slots=True)
class OpenModel:
    """A model whose large weights were not read yet.

    Attributes:
        model: its protocol buffer.
        reader: reads its tensors.
    """

    model: onnx.ModelProto
    reader: TensorReader


def open_model(source: Source) -> OpenModel:
    """Return the model with its local functions inlined, and without copying its weights.

    Raises:
        ModelError: as for :func:`read_model`.
    """
    if isinstance(source, onnx.ModelProto):
        return OpenModel(read_model(source), TensorReader(None))
    if isinstance(source, bytes):
        location, folder, where = "the model", None, "model"
        content: MappedFile | bytes = source
    else:
        path, where = Path(source), f"model {str(source)!r}"
        location, folder = path.name, path.parent
        content = _open_file(path, where)
    hollow = without_weights(memoryview(content), location)
    model = _checked(_parse(content[:] if hollow is None else hollow, where), where)
    if hollow is None:
        return OpenModel(model, TensorReader(folder))
    return OpenModel(model, TensorReader(folder, location, np.frombuffer(content, np.uint8)))


def read_model(source: Source) -> onnx.ModelProto:
    """Return the model, its local functions inlined.

    Raises:
        ModelError: there is no such file, it is not an ONNX model or damaged, or it has parts
            that are not supported.
    """
    if isinstance(source, onnx.ModelProto):
        model, where = source, "model"
    else:
        where = "model" if isinstance(source, bytes) else f"model {str(source)!r}"
        content = source if isinstance(source, bytes) else _open_file(Path(source), where)[:]
        model = _parse(content, where)
    return _checked(model, where)


def count_operators(path: Path) -> dict[str, int]:
    """Return how many nodes of each operator type a file has, in the order of their appearance.

    Subgraphs are not counted. The model is not checked, so that it may have operators of a runtime.

    >>> from onnx.helper import make_graph, make_model, make_node
    >>> nodes = [make_node("Relu", ["x"], ["y"]), make_node("Relu", ["y"], ["z"])]
    >>> path = Path(getfixture("tmp_path")) / "m.onnx"
    >>> onnx.save(make_model(make_graph(nodes, "g", [], [])), path)
    >>> count_operators(path)
    {'Relu': 2}
    """
    model = onnx.ModelProto.FromString(path.read_bytes())
    return dict(Counter(node.op_type for node in model.graph.node))


def _checked(model: onnx.ModelProto, where: str) -> onnx.ModelProto:
    """Return a sound model, its local functions inlined and its nodes sorted."""
    _check_graph(model, where)
    check_model(model, where)
    if model.functions:
        check_functions(model, where)
        model = _inline(model, where)
    return in_order(model)


def _open_file(path: Path, where: str) -> MappedFile | bytes:
    """Return a file, mapped if the file system supports it."""
    if "\0" in str(path):
        raise ModelError.at(where, expected="a path", found="a null character in it")
    if path.is_dir():
        raise ModelError.at(
            where, expected="a file", found="a directory", fix="name the .onnx file in it"
        )
    try:
        if path.exists() and not path.is_file():
            # Reading a pipe blocks, and a device may have no end.
            raise ModelError.at(where, expected="a file", found="a device, pipe or socket")
        size = path.stat().st_size
        if size > _LARGEST:
            raise ModelError.at(
                where,
                expected=f"at most {_LARGEST} bytes, what a protocol buffer can hold",
                found=f"{size} bytes",
                fix="save the model with external data",
            )
        with suppress(OSError, ValueError):
            return MappedFile(path)
        return path.read_bytes()
    except FileNotFoundError:
        raise ModelError.at(
            where, expected="an ONNX file", found="no such file", fix="check the path"
        ) from None
    except OSError as error:
        raise ModelError.at(where, expected="a readable file", found=str(error)) from error


def _parse(content: bytes, where: str) -> onnx.ModelProto:
    if not content:
        raise ModelError.at(where, expected="an ONNX model", found="an empty file", fix=_DAMAGED)
    model = onnx.ModelProto()
    try:
        model.ParseFromString(content)
    except DecodeError:
        raise ModelError.at(
            where,
            expected="an ONNX model",
            found=f"{_describe_content(content)} that do not parse as one",
            fix=f"the file is truncated or not ONNX; {_DAMAGED}",
        ) from None
    return model


def _describe_content(content: bytes) -> str:
    if content.startswith(b"version https://git-lfs"):
        return "a Git LFS pointer, lines of text"
    start = content[:256]
    text = all(32 <= byte < 127 or byte in b"\t\r\n" for byte in start)
    return "lines of text" if text else f"{len(content)} bytes"


def _check_graph(model: onnx.ModelProto, where: str) -> None:
    """Refuse files that parse but are not models; many short files parse."""
    if not model.HasField("graph") or not (model.graph.node or model.graph.output):
        raise ModelError.at(
            where,
            expected="an ONNX model with a graph",
            found="none",
            fix=f"the file is truncated or not ONNX; {_DAMAGED}",
        )


def _inline(model: onnx.ModelProto, where: str) -> onnx.ModelProto:
    """Return the model without local functions, except those of another opset or with defaults.

    The inliner ignores defaults of attributes; the importer, which reads what is left, does not.
    """
    plain, has_defaults = model, any(item.attribute_proto for item in model.functions)
    if has_defaults:
        plain = onnx.ModelProto()
        plain.CopyFrom(model)
        del plain.functions[:]
        plain.functions.extend(item for item in model.functions if not item.attribute_proto)
    try:
        result = inliner.inline_local_functions(plain)
    except Exception as error:  # the exceptions of the native inliner are not documented
        text = " ".join(str(error).split()) or type(error).__name__
        raise _not_inlined(model, where, text) from error
    if has_defaults:
        # Those that are left may call any of the others.
        del result.functions[:]
        result.functions.extend(model.functions)
    return result


def _not_inlined(model: onnx.ModelProto, where: str, reason: str) -> ModelError:
    functions = ", ".join(function.name for function in model.functions)
    return ModelError.at(
        where,
        expected="local functions that can be inlined",
        found=f"{functions} ({reason})",
        fix="inline the functions first, with onnx.inliner",
    )
