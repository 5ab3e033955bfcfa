"""The memory formats of tensors, and the lines of a user's program that operators come from."""

from __future__ import annotations

import inspect
import linecache
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

from stridewise.frontends.torch.graphs import dense_strides
from stridewise.frontends.torch.library import submodule, torch

__all__ = [
    "Place",
    "channels_last_strides",
    "format_of",
    "is_image",
    "place_now",
    "place_of_error",
    "to_channels_last",
]

_RANKS = (4, 5)
"""Axes of images and of volumes."""


def is_image(tensor: Any) -> bool:
    """Return whether a tensor has the axes of images or volumes."""
    return tensor.dim() in _RANKS


def _channels_last(tensor: Any) -> Any:
    return torch.channels_last if tensor.dim() == 4 else torch.channels_last_3d


def to_channels_last(tensor: Any) -> Any:
    """Return an image or volume stored channels-last; other tensors as they are."""
    return tensor.contiguous(memory_format=_channels_last(tensor)) if is_image(tensor) else tensor


def channels_last_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Return strides, in elements, with the second axis innermost.

    >>> channels_last_strides((2, 8, 3, 4))
    (96, 1, 32, 8)
    """
    if len(shape) < 2:
        return dense_strides(shape)
    found = dense_strides((shape[0], *shape[2:], shape[1]))
    return (found[0], found[-1], *found[1:-1])


def format_of(tensor: Any) -> str:
    """Return the memory format of a tensor.

    It is ``"channels_last"`` or ``"contiguous"``; ``"either"`` for strides that are both, such as
    those of images of one pixel; ``"strided"`` for none of them; and ``"-"`` for a tensor without
    the axes of an image.
    """
    if not is_image(tensor):
        return "-"
    last = tensor.is_contiguous(memory_format=_channels_last(tensor))
    plain = tensor.is_contiguous()
    if last and plain:
        return "either"
    return "channels_last" if last else "contiguous" if plain else "strided"


@dataclass(frozen=True, slots=True)
class Place:
    """A line of the user's program.

    Attributes:
        file: its path.
        line: its number.
    """

    file: str
    line: int

    @property
    def text(self) -> str:
        """The line itself, without spaces around it; "" if the file cannot be read."""
        return linecache.getline(self.file, self.line).strip()

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@cache
def _is_inside(file: str) -> bool:
    """Return whether a file belongs to PyTorch or to this package."""
    folders = (Path(submodule("torch").__file__).parent, Path(__file__).parents[1])
    return file.startswith("<") or any(folder in Path(file).parents for folder in folders)


def place_now() -> Place:
    """Return the innermost line outside of PyTorch that runs now."""
    frame: FrameType | None = inspect.currentframe()
    while frame is not None and _is_inside(frame.f_code.co_filename):
        frame = frame.f_back
    return Place("", 0) if frame is None else Place(frame.f_code.co_filename, frame.f_lineno)


def place_of_error(error: BaseException) -> Place:
    """Return the innermost line outside of PyTorch that an error went through."""
    found, trace = Place("", 0), error.__traceback__
    while isinstance(trace, TracebackType):
        file = trace.tb_frame.f_code.co_filename
        if not _is_inside(file):
            found = Place(file, trace.tb_lineno)
        trace = trace.tb_next
    return found
