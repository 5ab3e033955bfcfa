"""The memory formats of tensors, and the lines of a user's program that operators come from."""

from __future__ import annotations

import inspect
import linecache
import sysconfig
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from stridewise.frontends.torch.library import submodule, torch
from stridewise.ops.geometry import row_major

__all__ = [
    "Place",
    "channels_last_strides",
    "format_of",
    "is_image",
    "is_last",
    "is_plain",
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
        return row_major(shape)
    found = row_major((shape[0], *shape[2:], shape[1]))
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


def is_last(tensor: Any) -> bool:
    """Return whether PyTorch takes a tensor for channels-last, also one with gaps."""
    if not is_image(tensor) or tensor.is_contiguous():
        return False
    if tensor.is_contiguous(memory_format=_channels_last(tensor)):
        return True  # whatever the stride of a batch of one
    found = submodule("torch._prims_common").suggest_memory_format(tensor)
    return found != torch.contiguous_format


def is_plain(tensor: Any) -> bool:
    """Return whether a tensor is an image that PyTorch takes for NCHW.

    Repeated elements have no order of their own, nor have images of one pixel or channel.
    """
    if not is_image(tensor) or is_last(tensor) or format_of(tensor) == "either":
        return False
    return all(n < 2 or step for n, step in zip(tensor.shape, tensor.stride(), strict=True))


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


_TYPED = ("<ipython-input", "<python-input", "<stdin>")
"""How names of files begin that stand for what a user types."""


@cache
def _package_of(file: str) -> str:
    """Return the installed package of a file: "" for files of the user, "-" for PyTorch's."""
    folders = (Path(submodule("torch").__file__).parent, Path(__file__).parents[1])
    parents = Path(file).parents
    if any(folder in parents for folder in folders):
        return "-"
    if file.startswith("<"):
        return "" if file.startswith(_TYPED) else "-"
    names = [part for part in ("site-packages", "dist-packages") if part in Path(file).parts]
    if names:
        return Path(file).parts[Path(file).parts.index(names[0]) + 1].removesuffix(".py")
    return "-" if Path(sysconfig.get_path("stdlib")) in parents else ""


def _chosen(places: Sequence[Place], packages: Collection[str]) -> Place:
    """Return the innermost line of the user or of packages, without those of other libraries."""
    outside = [place for place in places if _package_of(place.file) != "-"]
    own = [place for place in outside if _package_of(place.file) in ("", *packages)]
    return next(iter([*own, *outside]), Place("", 0))


def place_now(packages: Collection[str] = ()) -> Place:
    """Return the innermost line that runs now, outside of PyTorch and of libraries.

    Args:
        packages: of the modules that run, whose lines count.
    """
    frame, found = inspect.currentframe(), list[Place]()
    while frame is not None:
        found.append(Place(frame.f_code.co_filename, frame.f_lineno))
        frame = frame.f_back
    return _chosen(found, packages)


def place_of_error(error: BaseException, packages: Collection[str] = ()) -> Place:
    """Return the innermost line that an error went through, as :func:`place_now`."""
    trace, found = error.__traceback__, list[Place]()
    while trace is not None:
        found.insert(0, Place(trace.tb_frame.f_code.co_filename, trace.tb_lineno))
        trace = trace.tb_next
    return _chosen(found, packages)
