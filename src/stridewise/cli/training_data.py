"""Data of ``stridewise train``: archives of arrays, and folders of images."""

from __future__ import annotations

import zipfile
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stridewise.errors import DependencyError, GraphError, InputError
from stridewise.graph import Graph

__all__ = ["Data", "batches", "check_classifier", "epoch_steps", "pixels", "read_data"]

Array = NDArray[Any]

_IMAGES = frozenset({".bmp", ".gif", ".jpeg", ".jpg", ".png", ".ppm", ".tif", ".tiff", ".webp"})


@dataclass(frozen=True, slots=True)
class Images:
    """Images in files, which are read when they are needed: all of them may exceed the memory.

    Attributes:
        files: one for each image.
        shape: [C, H, W] or [H, W, C], to which images are resized.
    """

    files: tuple[Path, ...]
    shape: tuple[int, ...]

    def __len__(self) -> int:
        """Return the number of images."""
        return len(self.files)

    def __getitem__(self, chosen: Array) -> Array:
        """Return the images of some numbers, float32 [images, ...]."""
        return np.stack([pixels(self.files[int(index)], self.shape) for index in chosen])


@dataclass(frozen=True, slots=True)
class Data:
    """Inputs and labels, along their first axis.

    Attributes:
        x: float32 [items, ...].
        labels: integers [items].
        classes: the names of the classes, where the data have names.
    """

    x: Array | Images
    labels: Array
    classes: tuple[str, ...] = ()

    def part(self, chosen: Array) -> tuple[Array, Array]:
        """Return the inputs and the labels of the items of some numbers."""
        return self.x[chosen], self.labels[chosen]


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
        if not zipfile.is_zipfile(path):  # NumPy would advise to load it as code
            raise InputError.at(where, expected=expected, found="no archive")
        with path.open("rb") as file, np.load(file, allow_pickle=False) as found:
            x, labels = found["x"], found["labels"]
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise InputError.at(where, expected=expected, found=str(error)) from error
    if x.dtype.kind not in "biuf" or labels.dtype.kind not in "iu":
        expected, types = "numbers x and integers labels", f"{x.dtype} and {labels.dtype}"
        raise InputError.at(where, expected=expected, found=types)
    if x.ndim < 2 or labels.shape != x.shape[:1] or not len(labels):
        expected, sizes = "x [items, ...] and labels [items]", f"{x.shape} and {labels.shape}"
        raise InputError.at(where, expected=f"{expected}, at least one item", found=sizes)
    with np.errstate(over="ignore"):  # infinities are refused
        return Data(x.astype(np.float32, copy=False), labels)


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


def _visible(folder: Path) -> list[Path]:
    """Return what a folder has, by name, without what programs hide there."""
    return sorted(item for item in folder.iterdir() if not item.name.startswith("."))


def _images(path: Path, shape: tuple[int, ...]) -> Data:
    """Return the images of a folder with one folder for each class, in the order of their names."""
    where = f"data {str(path)!r}"
    if find_spec("PIL") is None:
        fix = "run `pip install pillow`, or give an .npz file"
        raise DependencyError.at(where, expected="Pillow", found="none installed", fix=fix)
    folders = [item for item in _visible(path) if item.is_dir()]
    files = [[f for f in _visible(item) if f.suffix.lower() in _IMAGES] for item in folders]
    is_image = len(shape) == 3 and (shape[0] in (1, 3) or shape[2] in (1, 3))
    if len(folders) < 2 or not all(files) or not is_image:
        expected = "folders of images for two classes or more, and a model of 1 or 3 channels"
        empty = [item.name for item, part in zip(folders, files, strict=True) if not part]
        found = f"{sum(map(len, files))} images in {len(folders)} folders"
        found += f", none in {', '.join(map(repr, empty[:3]))}" if empty else ""
        raise InputError.at(where, expected=expected, found=f"{found}, an input of {shape}")
    x = Images(tuple(file for part in files for file in part), shape)
    for file in x.files:  # a damaged one is found now, not hours later
        pixels(file, shape)
    labels = np.repeat(np.arange(len(files)), [len(part) for part in files])
    return Data(x, labels, tuple(folder.name for folder in folders))


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
    if not isinstance(found.x, Images):
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


def batches(
    data: Data, size: int, seed: int, begin: int, epochs: int
) -> Iterator[tuple[Array, Array]]:
    """Yield the batches of some epochs, from a step on; each is read while the one before is used.

    Raises:
        InputError: there is no whole batch.
    """
    with ThreadPoolExecutor(1) as reader:
        ahead = deque[Future[tuple[Array, Array]]]()
        for chosen in _chosen(data, size, seed, begin, epochs):
            ahead.append(reader.submit(data.part, chosen))
            if len(ahead) > 1:
                yield ahead.popleft().result()
        for last in ahead:
            yield last.result()


def _chosen(data: Data, size: int, seed: int, begin: int, epochs: int) -> Iterator[Array]:
    """Yield the numbers of the items of each batch.

    The order of an epoch depends on the seed and on the number of the epoch alone, so that a
    training that continues has the batches of one that was not interrupted. A smaller last batch
    is left out.
    """
    count = epoch_steps(data, size)
    for epoch in range(begin // count, epochs):
        order = np.random.default_rng([seed, epoch]).permutation(len(data.x))
        for batch in range(max(begin - epoch * count, 0), count):
            yield order[batch * size : (batch + 1) * size]


def epoch_steps(data: Data, size: int) -> int:
    """Return the number of whole batches of a size.

    Raises:
        InputError: there is none.
    """
    if len(data.x) < size:
        expected, fix = f"at least {size} items, a batch", "give --shape with a smaller batch"
        raise InputError.at("data", expected=expected, found=str(len(data.x)), fix=fix)
    return len(data.x) // size
