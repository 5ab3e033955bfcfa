"""Calibration data: what a caller gives, and files on disk, as checked samples."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from stridewise.errors import InputError
from stridewise.graph import Graph, Value
from stridewise.runtime.execution.inputs import as_array, require_finite, sample_by_name

__all__ = ["CalibrationSource", "checked_samples"]

Array = NDArray[Any]
Sample = dict[str, Array]
CalibrationSource = str | os.PathLike[str] | Iterable[Any]
"""A path, or samples: mappings from input names to arrays, tuples of arrays, or single arrays."""

_FILES = (".npz", ".npy")
_IMAGES = (".bmp", ".gif", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp")


def checked_samples(source: CalibrationSource, graph: Graph) -> Iterator[Sample]:
    """Yield one mapping from input names to arrays for each sample.

    Args:
        source: a path or samples.
        graph: the model; its inputs give the expected names, shapes and dtypes.

    Raises:
        InputError: there is no sample, a file cannot be read, or a sample does not fit the model
            or is not finite; the message names the sample and the input.
    """
    given: Any = _files(Path(source), graph) if isinstance(source, str | os.PathLike) else source
    if not isinstance(given, Iterable) or isinstance(given, Mapping | bytes):
        kind: type[Any] = type(cast("object", given))
        expected = "an iterable of samples, or the path of a folder, .npz or .npy file"
        fix = "for one sample, a list with it" if isinstance(given, Mapping) else ""
        raise InputError.at("calibration", expected=expected, found=kind.__name__, fix=fix)
    number = -1
    for number, sample in enumerate(cast("Iterable[Any]", given)):
        yield _checked(f"calibration, sample {number}", sample, graph)
    if number < 0:
        raise InputError.at("calibration", expected="at least one sample", found="none")


def _checked(where: str, sample: Any, graph: Graph) -> Sample:
    named = sample_by_name(where, graph.inputs, sample)
    found: Sample = {}
    for name in graph.inputs:
        try:
            found[name] = as_array(graph.values[name], named[name])
        except InputError as error:
            text = str(error).replace("compile with shapes=", "quantize with shapes=")
            raise InputError(f"{where}: {text}") from error
        require_finite(where, name, found[name])
    return found


# --- files ----------------------------------------------------------------------------------------


def _files(path: Path, graph: Graph) -> Iterator[Sample]:
    """Yield the samples of a file, or of the files of a folder in the order of their names."""
    where = f"calibration {str(path)!r}"
    if not path.is_dir():
        yield from _file(path, graph)
        return
    names = sorted(item for item in path.iterdir() if item.suffix.lower() in (*_FILES, *_IMAGES))
    if not names:
        inner = any(item.is_dir() for item in path.iterdir())
        found = "folders only" if inner else "none"
        raise InputError.at(where, expected="a folder with .npz or .npy files", found=found)
    for item in names:
        yield from _file(item, graph)


def _file(path: Path, graph: Graph) -> Iterator[Sample]:
    where = f"calibration {str(path)!r}"
    if path.suffix.lower() in _IMAGES:
        fix = "store what the model reads, scaled and cropped, with numpy.save"
        raise InputError.at(where, expected="a .npz or .npy file", found="an image", fix=fix)
    try:
        with path.open("rb") as file:
            loaded: Any = np.load(file, allow_pickle=False)
            is_one = isinstance(loaded, np.ndarray)
            arrays: dict[str, Array] = {"": loaded} if is_one else dict(loaded)
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        reason = "no such file" if isinstance(error, FileNotFoundError) else str(error)
        expected = "a folder, or a .npz or .npy file"
        raise InputError.at(where, expected=expected, found=reason) from error
    if list(arrays) == [""] and len(graph.inputs) == 1:
        arrays = {graph.inputs[0]: arrays[""]}
    if set(arrays) != set(graph.inputs):
        expected = f"arrays with the names of the inputs: {', '.join(graph.inputs)}"
        found = ", ".join(arrays) if list(arrays) != [""] else "one array without a name"
        names = ", ".join(f"{name}=..." for name in graph.inputs if name.isidentifier())
        fix = f"numpy.savez(file, {names})" if "arr_0" in arrays and names else ""
        raise InputError.at(where, expected=expected, found=found, fix=fix)
    stacks = {name: _stack(where, graph.values[name], array) for name, array in arrays.items()}
    counts = {name: len(stack) for name, stack in stacks.items()}
    if len(set(counts.values())) > 1:
        expected = "as many samples of each input"
        raise InputError.at(where, expected=expected, found=str(counts))
    for index in range(min(counts.values(), default=0)):
        yield {name: stack[index] for name, stack in stacks.items()}


def _stack(where: str, value: Value, array: Array) -> Array:
    """Return an array with one more axis, the first, of samples.

    A batch along the first axis of the input is a batch of samples in the file, too.
    """
    shape = value.shape
    if array.shape[1:] == shape:
        return array
    batch = shape[0] if shape else 0
    if batch and array.shape[1:] == shape[1:] and array.ndim and array.shape[0] % batch == 0:
        return array.reshape(-1, *shape)
    expected = f"samples of shape {shape} along a first axis"
    at = f"{where}, input {value.name!r}"
    raise InputError.at(at, expected=expected, found=f"shape {array.shape}")
