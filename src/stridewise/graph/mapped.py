"""Arrays that stay in a file until their elements are needed.

A file is mapped to look at it: importing a model touches a few pages of it. Elements of weights are
read into memory of their own, and not through the mapping, for three reasons: what is read through
a mapping stays resident until the kernel wants it back, protocol buffers do not align tensors, and
a file that was cut off meanwhile ends in an error instead of a signal.
"""

from __future__ import annotations

import mmap
import os
import weakref
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stridewise.classes import dataclass
from stridewise.errors import ModelError

__all__ = ["MappedFile", "Place", "forget", "is_mapped", "place_of"]

Array = NDArray[Any]


def _version(descriptor: int) -> tuple[int, int]:
    status = os.fstat(descriptor)
    return status.st_size, status.st_mtime_ns


class MappedFile(mmap.mmap):
    """A file, mapped to be looked at; arrays over its bytes keep it open.

    Replacing the file by another one, as editors and :func:`stridewise.save` do, does not change
    these arrays. Writing into it makes :meth:`fetch` fail.

    Attributes:
        path: where the file was.
    """

    path: str
    _descriptor: int
    _version: tuple[int, int]

    def __new__(cls, path: str | os.PathLike[str]) -> MappedFile:
        """Map a file.

        Raises:
            OSError: it cannot be opened or mapped.
            ValueError: it is empty.
        """
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            self = super().__new__(cls, descriptor, 0, access=mmap.ACCESS_READ)
        except BaseException:
            os.close(descriptor)
            raise
        # The mapping has a descriptor of its own, which it does not show.
        weakref.finalize(self, os.close, descriptor).atexit = False
        self.path = os.fspath(path)
        self._descriptor, self._version = descriptor, _version(descriptor)
        return self

    def content(self) -> NDArray[np.uint8]:
        """Return the bytes as a read-only array over the mapping."""
        return np.frombuffer(self, np.uint8)

    def fetch(self, offset: int, nbytes: int) -> NDArray[np.uint8]:
        """Return bytes in memory of their own, which is aligned for any element type.

        Raises:
            ModelError: the file was modified since it was mapped.
        """
        data = np.empty(nbytes, np.uint8)
        view, done = data.data, 0
        while done < nbytes:
            count = os.preadv(self._descriptor, [view[done:]], offset + done)
            if count == 0:
                break
            done += count
        if done < nbytes or _version(self._descriptor) != self._version:
            raise ModelError.at(
                f"file {self.path!r}",
                expected="what was in it when the model was loaded",
                found="other content",
                fix="load the model again; to replace a file in use, rename a new one over it",
            )
        return data


@dataclass(frozen=True, slots=True, eq=False)
class Place:
    """Where an array lies in a file.

    Attributes:
        file: the file.
        start: of the bytes that the array covers, without gaps.
        nbytes: how many these are.
        first: bytes from the start to the first element, which lies further back where a stride
            is negative.
        dtype: element type.
        shape: extents.
        strides: in bytes.
    """

    file: MappedFile
    start: int
    nbytes: int
    first: int
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def is_row_major(self) -> bool:
        """Whether the elements follow each other as the last index counts fastest."""
        return self.first == 0 and self.strides == _row_major(self.shape, self.dtype.itemsize)

    def rows(self, begin: int, end: int) -> Place:
        """Return where a part along the first axis lies; of a place that is row-major."""
        row = self.strides[0]
        return replace(
            self,
            start=self.start + begin * row,
            nbytes=(end - begin) * row,
            shape=(end - begin, *self.shape[1:]),
        )

    def read(self) -> Array:
        """Return the array in memory of its own.

        Raises:
            ModelError: as for :meth:`MappedFile.fetch`.
        """
        data = self.file.fetch(self.start, self.nbytes)
        return np.ndarray(self.shape, self.dtype, data, self.first, self.strides)


def _row_major(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    strides: list[int] = []
    for extent in reversed(shape):
        strides.insert(0, itemsize)
        itemsize *= extent
    return tuple(strides)


def _owner(array: Array) -> object:
    """Return whose memory an array shows."""
    owner: object = array
    while True:
        # A view names the array, the memoryview or the file behind it.
        inner = getattr(owner, "base", None)
        if inner is None:
            inner = getattr(owner, "obj", None)
        if inner is None:
            return owner
        owner = inner


def _address(array: Array) -> int:
    return int(array.__array_interface__["data"][0])


def is_mapped(array: Array) -> bool:
    """Return whether an array is a view of a mapped file."""
    return isinstance(_owner(array), MappedFile)


def forget(content: Array) -> None:
    """Give back the pages of a mapped file that were looked at; they are read again where needed.

    Arrays over other memory are left alone.
    """
    file = _owner(content)
    if isinstance(file, MappedFile):
        file.madvise(mmap.MADV_DONTNEED)


def place_of(array: Array) -> Place | None:
    """Return where a view of a mapped file lies in it; None for any other array.

    A view that has gaps, or shows bytes twice, is no place: reading it means to copy it.
    """
    file = _owner(array)
    if not isinstance(file, MappedFile) or array.size == 0:
        return None
    reaches = [(n - 1) * step for n, step in zip(array.shape, array.strides, strict=True)]
    low = sum(reach for reach in reaches if reach < 0)
    high = sum(reach for reach in reaches if reach > 0) + array.itemsize
    if high - low != array.nbytes:
        return None
    start = _address(array) + low - _address(file.content())
    return Place(file, start, array.nbytes, -low, array.dtype, array.shape, array.strides)
