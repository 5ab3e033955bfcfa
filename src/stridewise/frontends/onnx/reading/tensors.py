"""Tensors of a model: from ``TensorProto`` to arrays, without unnecessary copies.

Raw bytes are wrapped. External data and large tensors of the model file are mapped into memory.
Only values in typed fields are converted.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from pathlib import Path
from typing import cast

import numpy as np
from onnx import SparseTensorProto, TensorProto

from stridewise.classes import dataclass
from stridewise.dtypes import DType, dtype_of
from stridewise.errors import ModelError, UnsupportedError
from stridewise.graph.mapped import MappedFile, forget
from stridewise.ops.registry import Array

__all__ = ["SparseTensor", "TensorReader", "dtype_of_code", "is_known"]

_DTYPES = {
    TensorProto.FLOAT: "float32",
    TensorProto.DOUBLE: "float64",
    TensorProto.FLOAT16: "float16",
    TensorProto.BFLOAT16: "bfloat16",
    TensorProto.INT8: "int8",
    TensorProto.INT16: "int16",
    TensorProto.INT32: "int32",
    TensorProto.INT64: "int64",
    TensorProto.UINT8: "uint8",
    TensorProto.UINT16: "uint16",
    TensorProto.UINT32: "uint32",
    TensorProto.UINT64: "uint64",
    TensorProto.BOOL: "bool",
}
_FIELDS = {
    "float32": "float_data",
    "float64": "double_data",
    "int64": "int64_data",
    "uint32": "uint64_data",
    "uint64": "uint64_data",
}
_AS_BITS = ("float16", "bfloat16")
"""Types whose elements are stored in typed fields as integers of the same bits."""
_MOST_PLACES = 2**62
"""Most elements of a sparse tensor, whose places are numbers of 64 bits."""
_MAX_RANK = 32
"""Axes of an array, the limit of all versions of NumPy."""

_CODES: dict[int, str] = {code: name for name, code in TensorProto.DataType.items()}


def is_known(code: int) -> bool:
    """Return whether arrays can hold ONNX's element type of that number."""
    return code in _DTYPES


def dtype_of_code(code: int, where: str) -> DType:
    """Return the dtype for ONNX's number of an element type.

    Raises:
        UnsupportedError: it is not supported; the message has its ONNX name.
    """
    name = _DTYPES.get(cast("TensorProto.DataType", code))
    if name is None:
        found = _CODES.get(code, f"element type {code}").lower()
        raise UnsupportedError.at(
            where,
            expected=f"an element type of {', '.join(_DTYPES.values())}",
            found=found,
            fix="convert the model to float32",
        )
    return dtype_of(name)


@dataclass(frozen=True, slots=True)
class SparseTensor:
    """Elements of a tensor that is 0 elsewhere.

    Attributes:
        shape: the shape of the whole tensor.
        places: positions of the elements in row-major order, of type int64.
        values: the elements.
    """

    shape: tuple[int, ...]
    places: Array
    values: Array

    def dense(self) -> Array:
        """Return the whole tensor."""
        found = np.zeros(prod(self.shape), self.values.dtype)
        found[self.places] = self.values
        return found.reshape(self.shape)


class TensorReader:
    """Reads the tensors of one model.

    Args:
        folder: the folder of external data; None for a model that was not read from a file.
        location: the location that marks tensors in the model's own file.
        content: the bytes of that file.
    """

    def __init__(
        self, folder: Path | None, location: str | None = None, content: Array | None = None
    ) -> None:
        """Remember the folder; files are opened when a tensor needs them."""
        self._folder = folder
        self._location = location
        self._content = np.zeros(0, np.uint8) if content is None else content
        self._files: dict[Path, Array] = {}
        self._initializers: dict[str, Array] = {}

    @property
    def paths(self) -> tuple[Path, ...]:
        """Files of external data that were read so far."""
        return tuple(self._files)

    def initializer(self, tensor: TensorProto) -> Array:
        """Return the elements of an initializer, the same array for each call.

        Raises:
            ModelError: as for :meth:`read`.
        """
        found = self._initializers.get(tensor.name)
        if found is None:
            found = self.read(tensor, f"initializer {tensor.name!r}")
            self._initializers[tensor.name] = found
        return found

    def read(self, tensor: TensorProto, where: str) -> Array:
        """Return the elements of a tensor; the array is read-only unless it is a copy.

        Raises:
            ModelError: the element type is not supported, the data do not fit the shape, or a
                file of external data is missing, too short or outside of the model's folder.
        """
        dtype = dtype_of_code(tensor.data_type, where)
        shape = tuple(int(extent) for extent in tensor.dims)
        if any(extent < 0 for extent in shape):
            raise ModelError.at(
                where, expected="extents of 0 or more", found=f"shape {list(shape)}"
            )
        if len(shape) > _MAX_RANK:
            found = f"{len(shape)} axes"
            raise ModelError.at(where, expected=f"at most {_MAX_RANK} axes", found=found)
        if tensor.HasField("segment"):
            raise ModelError.at(where, expected="a whole tensor", found="a segment of one")
        little_endian = dtype.numpy.newbyteorder("<")
        if tensor.data_location == TensorProto.EXTERNAL:
            data = self._external(tensor, prod(shape) * dtype.itemsize, where).view(little_endian)
        elif tensor.HasField("raw_data"):
            data = _raw(tensor.raw_data, prod(shape) * dtype.itemsize, where).view(little_endian)
        else:
            data = _listed(tensor, dtype, prod(shape), where)
        if dtype.name == "bool":
            data = data.view(np.uint8) != 0  # files may have any byte for True
        try:
            return data.astype(dtype.numpy, copy=False).reshape(shape)
        except ValueError:  # no elements, but the product of other extents is too large
            found = f"shape {list(shape)}"
            raise ModelError.at(where, expected="extents that fit an array", found=found) from None

    def sparse(self, tensor: SparseTensorProto, where: str) -> SparseTensor:
        """Return the elements of a sparse tensor (source: ONNX, SparseTensorProto).

        Indices are places in row-major order, or one row of indices for each element.

        Raises:
            ModelError: as for :meth:`read`; or indices do not fit the shape, or occur twice.
        """
        shape = tuple(int(extent) for extent in tensor.dims)
        values, indices = self.read(tensor.values, where), self.read(tensor.indices, where)
        if not shape or min(shape) < 1 or prod(shape) > _MOST_PLACES:
            expected = f"extents of 1 or more, at most {_MOST_PLACES} elements"
            raise ModelError.at(where, expected=expected, found=f"shape {list(shape)}")
        forms = ((values.size,), (values.size, len(shape)))
        if values.ndim != 1 or indices.dtype != np.int64 or indices.shape not in forms:
            expected = f"indices of int64 of shape {' or '.join(map(str, forms))}"
            found = f"{indices.dtype} of {indices.shape}"
            raise ModelError.at(where, expected=expected, found=found)
        limits = (prod(shape),) if indices.ndim == 1 else shape
        columns = indices.reshape(values.size, len(limits))
        if values.size and ((columns < 0).any() or (columns >= np.array(limits)).any()):
            found = f"one outside of shape {list(shape)}"
            raise ModelError.at(where, expected="indices within the tensor", found=found)
        places = indices if indices.ndim == 1 else np.ravel_multi_index(tuple(columns.T), shape)
        if np.unique(places).size != places.size:
            raise ModelError.at(where, expected="one value for each index", found="an index twice")
        return SparseTensor(shape, places, values)

    def forget(self) -> None:
        """Release the resident pages of mapped files."""
        for content in (self._content, *self._files.values()):
            forget(content)

    def _external(self, tensor: TensorProto, nbytes: int, where: str) -> Array:
        entries = {entry.key: entry.value for entry in tensor.external_data}
        location = entries.get("location", "")
        # The model's own path may be a link to another folder, and a model in bytes has no path.
        path = None if location == self._location else self._locate(location, where)
        try:
            offset = int(entries.get("offset", "0"))
            length = int(entries.get("length", nbytes))
        except ValueError:
            raise ModelError.at(
                where, expected="numbers as offset and length", found=str(entries)
            ) from None
        if length != nbytes:
            raise _short(where, nbytes, f"external data of {length} bytes" if path else str(length))
        content = self._content if path is None else self._map(path, where)
        if offset < 0 or offset + length > content.size:
            name = location if path is None else path.name
            found = f"{content.size} bytes in {name!r}, read from byte {offset} on"
            raise _short(where, nbytes, found)
        return content[offset : offset + length]

    def _locate(self, location: str, where: str) -> Path:
        """Return the file at a location, with symbolic links resolved."""
        if self._folder is None:
            raise ModelError.at(
                where,
                expected="data inside of the model",
                found=f"external data in {location!r}",
                fix="import the model by its path, or load it with its external data",
            )
        folder = self._folder.resolve()
        usable = location and "\0" not in location and not Path(location).is_absolute()
        path = _resolved(folder / location) if usable else None
        if path is None or not path.is_relative_to(folder):
            raise ModelError.at(
                where,
                expected="external data inside of the model's folder",
                found=repr(location),
                fix="move the data beside the model",
            )
        return path

    def _map(self, path: Path, where: str) -> Array:
        if path not in self._files:
            try:
                if not path.is_file():
                    raise ModelError.at(
                        where,
                        expected=f"external data in {path.name!r}",
                        found="no such file",
                        fix="put the data file beside the model",
                    )
                empty = path.stat().st_size == 0
                mapped = np.zeros(0, np.uint8) if empty else MappedFile(path).content()
            except OSError as error:
                raise ModelError.at(
                    where, expected=f"a readable {path.name!r}", found=error.strerror or "none"
                ) from error
            self._files[path] = mapped
        return self._files[path]


def _resolved(path: Path) -> Path | None:
    try:
        return path.resolve()
    except (OSError, RuntimeError):  # a circle of links, or a name that is too long
        return None


def _short(where: str, nbytes: int, found: str) -> ModelError:
    return ModelError.at(
        where,
        expected=f"{nbytes} bytes of data",
        found=found,
        fix="the model is damaged; export or download it again",
    )


def _raw(content: bytes, nbytes: int, where: str) -> Array:
    if len(content) != nbytes:
        raise _short(where, nbytes, str(len(content)))
    return np.frombuffer(content, np.uint8)


def _listed(tensor: TensorProto, dtype: DType, count: int, where: str) -> Array:
    """Return the elements in a typed field; ONNX defines the field of each type."""
    field = _FIELDS.get(dtype.name, "int32_data")
    items = cast("Iterable[float]", getattr(tensor, field))
    try:
        if dtype.name in _AS_BITS:
            data = np.array(items, dtype=np.uint16).view(dtype.numpy).reshape(-1)
        else:
            data = np.array(items, dtype=dtype.numpy).reshape(-1)
    except OverflowError as error:
        raise ModelError.at(where, expected=f"values of {dtype}", found=str(error)) from error
    if data.size != count:
        raise _short(where, count * dtype.itemsize, f"{data.size} elements")
    return data
