"""Writing a model to disk atomically, with large weights in a second file."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO

from onnx import ModelProto

from stridewise.errors import InputError
from stridewise.frontends.onnx.writing.initializers import as_bytes, external, inline
from stridewise.ops.registry import Array
from stridewise.replacing import reason, replacing

__all__ = ["LARGEST_INLINE", "check_path", "write_model"]

LARGEST_INLINE = 2_000_000_000
"""Bytes of weights that a model file may hold. The whole protocol buffer is limited to 2**31 - 1
bytes."""

_SMALL = 1024
"""Bytes below which a tensor stays in the model: shapes and scalars, which tools read."""

_ALIGNMENT = 4096
"""The page size, so that each tensor can be mapped (as ONNX recommends for external data)."""


def check_path(path: Path) -> None:
    """Check that a model can be written to a path, before any work is done.

    Raises:
        InputError: the parent folder is missing, or the path is a folder.
    """
    try:
        folder, taken = path.parent.is_dir(), path.is_dir()
    except (OSError, ValueError) as error:
        raise _unwritable(path, error) from error
    if not folder:
        raise InputError.at(
            f"model {str(path)!r}",
            expected="a path in a folder that exists",
            found=f"no folder {str(path.parent)!r}",
            fix="make the folder first",
        )
    if taken:
        raise InputError.at(
            f"model {str(path)!r}",
            expected="the path of a file",
            found="a folder",
            fix="name a file in it, like model.onnx",
        )


def _unwritable(path: Path, error: Exception) -> InputError:
    text = reason(error) if isinstance(error, OSError | ValueError) else str(error)
    return InputError.at(f"model {str(path)!r}", expected="a file that can be written", found=text)


def write_model(
    path: Path, model: ModelProto, constants: Mapping[str, Array], external_above: int
) -> None:
    """Write a model and its constants.

    A reader finds the old file or the new one. A second file for weights is replaced first; a read
    between the two replacements gives the old model with the new weights. Existing mappings of a
    replaced file keep its content, so a graph may be saved over the file that it was loaded from.

    Args:
        path: the file; its folder must exist.
        model: without initializers; they are added to a copy.
        constants: the initializers, in the order in which they are written.
        external_above: bytes of constants above which they go to ``path`` + ``".data"``.

    Raises:
        InputError: the file cannot be written.
    """
    whole = ModelProto()
    whole.CopyFrom(model)
    total = sum(data.nbytes for data in constants.values())
    beside = path.with_name(f"{path.name}.data")
    try:
        with ExitStack() as files:
            # The context that is entered first exits last, so the model is replaced last.
            file = files.enter_context(replacing(path))
            if total > min(external_above, LARGEST_INLINE):
                _write_beside(files.enter_context(replacing(beside)), beside, whole, constants)
            else:
                whole.graph.initializer.extend(
                    inline(name, data) for name, data in constants.items()
                )
            file.write(whole.SerializeToString(deterministic=True))
    except (OSError, ValueError) as error:
        raise _unwritable(path, error) from error


def _write_beside(
    file: BinaryIO, path: Path, model: ModelProto, constants: Mapping[str, Array]
) -> None:
    """Write large constants to a second file, small ones into the model."""
    for name, data in constants.items():
        if data.nbytes < _SMALL:
            model.graph.initializer.append(inline(name, data))
            continue
        offset = -(-file.tell() // _ALIGNMENT) * _ALIGNMENT
        file.seek(offset)
        file.write(as_bytes(data).data)
        model.graph.initializer.append(external(name, data, path.name, offset))
