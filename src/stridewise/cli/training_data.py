"""Data of ``stridewise train``: archives of arrays, and folders of images."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stridewise.errors import DependencyError, GraphError, InputError
from stridewise.graph import Graph

__all__ = ["Data", "batches", "check_classifier", "pixels", "read_data"]

Array = NDArray[Any]

_IMAGES = frozenset({".bmp", ".gif", ".jpeg", ".jpg", ".png", ".ppm", ".tif", ".tiff", ".webp"})


@dataclass(frozen=True, slots=True)
class Data:
    """Inputs and labels, along their first axis.

    Attributes:
        x: float32 [items, ...].
        labels: integers [items].
        classes: the names of the classes, where the data have names.
    """

    x: Array
    labels: Array
    classes: tuple[str, ...] = ()


def check_classifier(graph: Graph) -> None:
    """Check that a model computes a number for each class from one float32 input.

    Raises:
        GraphError: it does not.
    """
    found = [[graph.value(n) for n in names] for names in (graph.inputs, graph.outputs)]
    batch = {value.shape[:1] for side in found for value in side}
    ranks = [[len(value.shape) for value in side] for side in found]
    fits = len(graph.inputs) == 1 and min(ranks[0]) > 1 and ranks[1] == [2] and len(batch) == 1
    if not fits or found[0][0].dtype.name != "float32":
        sides = (("inputs", graph.inputs), ("outputs", graph.outputs))
        texts = [
            f"{side} {', '.join(f'{n!r} {graph.value(n).type}' for n in names) or 'none'}"
            for side, names in sides
        ]
        expected = "one float32 input [N, ...] and one output [N, classes]"
        raise GraphError.at(f"model {graph.name!r}", expected=expected, found=" and ".join(texts))


def _arrays(path: Path) -> Data:
    """Return the arrays ``x`` and ``labels`` of an archive."""
    where, expected = f"data {str(path)!r}", "an .npz file with arrays x and labels"
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as found:
            x, labels = found["x"], found["labels"]
    except (OSError, ValueError, TypeError, KeyError, EOFError, zipfile.BadZipFile) as error:
        reason = "one array" if isinstance(error, TypeError) else str(error)
        raise InputError.at(where, expected=expected, found=reason) from error
    if x.dtype.kind not in "biuf" or labels.dtype.kind not in "iu":
        expected, types = "numbers x and integers labels", f"{x.dtype} and {labels.dtype}"
        raise InputError.at(where, expected=expected, found=types)
    if x.ndim < 2 or labels.shape != x.shape[:1] or not len(labels):
        expected, sizes = "x [items, ...] and labels [items]", f"{x.shape} and {labels.shape}"
        raise InputError.at(where, expected=f"{expected}, at least one item", found=sizes)
    return Data(x.astype(np.float32), labels)


def _in_eight_bits(image: Any) -> Any:
    """Return an image whose numbers end at 255: Pillow's conversions cut larger ones off.

    Raises:
        ValueError: nothing says where they end.
    """
    if image.mode.startswith("I;16"):
        pixels = np.rint(np.asarray(image) / 257).astype(np.uint8)
        return import_module("PIL.Image").fromarray(pixels)
    if image.mode in ("I", "F"):
        raise ValueError(f"numbers of 32 bits (mode {image.mode}), whose range is not known")
    return image


def pixels(path: Path, shape: tuple[int, ...]) -> Array:
    """Return an image as an array [C, H, W] or [H, W, C] of numbers from -1 to 1.

    Raises:
        InputError: it cannot be read.
    """
    last = shape[0] not in (1, 3)
    channels, *size = (shape[2], *shape[:2]) if last else shape
    image_module = import_module("PIL.Image")
    try:
        with image_module.open(path) as image:
            mode = "L" if channels == 1 else "RGB"
            colors = _in_eight_bits(image).convert(mode)
            found = np.asarray(colors.resize(tuple(reversed(size))), np.float32)
    except MemoryError:
        raise
    except Exception as error:  # readers of damaged files raise errors of any type
        where = f"image {str(path)!r}"
        raise InputError.at(where, expected="a readable image", found=str(error)) from error
    found = found.reshape(*size, channels) / 127.5 - 1
    return found if last else found.transpose(2, 0, 1)


def _images(path: Path, shape: tuple[int, ...]) -> Data:
    """Return the images of a folder with one folder for each class, in the order of their names."""
    where = f"data {str(path)!r}"
    if find_spec("PIL") is None:
        fix = "run `pip install pillow`, or give an .npz file"
        raise DependencyError.at(where, expected="Pillow", found="none installed", fix=fix)
    folders = sorted(item for item in path.iterdir() if item.is_dir())
    files = [
        (file, number)
        for number, folder in enumerate(folders)
        for file in sorted(folder.iterdir())
        if file.suffix.lower() in _IMAGES
    ]
    is_image = len(shape) == 3 and (shape[0] in (1, 3) or shape[2] in (1, 3))
    if not files or not is_image:
        expected = "a folder of images for each class, and a model of images of 1 or 3 channels"
        found = f"{len(files)} images in {len(folders)} folders, an input of {shape}"
        raise InputError.at(where, expected=expected, found=found)
    x = np.stack([pixels(file, shape) for file, _ in files])
    names = tuple(folder.name for folder in folders)
    return Data(x, np.array([number for _, number in files]), names)


def read_data(path: Path, graph: Graph, like: Data | None = None) -> Data:
    """Return the data of a file or of a folder.

    Args:
        path: an ``.npz`` file, or a folder with a folder of images for each class.
        graph: what is trained, as :func:`check_classifier` wants it.
        like: other data; where both are folders, their classes must be the same.

    Raises:
        InputError: they cannot be read, or do not fit the graph.
        DependencyError: reading images needs Pillow.
    """
    shape = graph.value(graph.inputs[0]).shape[1:]
    count = graph.value(graph.outputs[0]).shape[1]
    found, where = _images(path, shape) if path.is_dir() else _arrays(path), f"data {str(path)!r}"
    if found.x.shape[1:] != shape:
        expected = f"inputs of shape {shape}"
        raise InputError.at(where, expected=expected, found=str(found.x.shape[1:]))
    if not np.isfinite(found.x).all():
        raise InputError.at(where, expected="finite numbers", found="NaN or infinities")
    low, high = int(found.labels.min()), int(found.labels.max())
    if low < 0 or high >= count:
        expected = f"labels from 0 to {count - 1}, as the model has {count} classes"
        raise InputError.at(where, expected=expected, found=f"from {low} to {high}")
    if like is not None and like.classes and found.classes and like.classes != found.classes:
        expected, given = (", ".join(item.classes) for item in (like, found))
        raise InputError.at(where, expected=f"the classes {expected}", found=given)
    return found


def batches(data: Data, size: int, seed: int) -> Iterator[tuple[Array, Array]]:
    """Yield batches of the data in another order, without the last one if it is smaller.

    Raises:
        InputError: there is no whole batch.
    """
    if len(data.x) < size:
        expected, fix = f"at least {size} items, a batch", "give --shape with a smaller batch"
        raise InputError.at("data", expected=expected, found=str(len(data.x)), fix=fix)
    order = np.random.default_rng(seed).permutation(len(data.x))
    for begin in range(0, len(data.x) - size + 1, size):
        chosen = order[begin : begin + size]
        yield data.x[chosen], data.labels[chosen]
