"""``stridewise train``: train the weights of a model on arrays or on a folder of images."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import click
import numpy as np
from numpy.typing import NDArray

from stridewise.api import models
from stridewise.api.trainer import Trainer
from stridewise.cli.console import OUT, Request, compile_options, measuring, save_text
from stridewise.errors import DependencyError, InputError
from stridewise.graph import Graph
from stridewise.report.loss_curve import loss_curve
from stridewise.training import SGD, AdamW

__all__ = ["train"]

Array = NDArray[Any]
Data = tuple[Array, Array]
"""Inputs and labels, along their first axis."""

_IMAGES = frozenset({".bmp", ".gif", ".jpeg", ".jpg", ".png", ".ppm", ".tif", ".tiff", ".webp"})


def _arrays(path: Path) -> Data:
    """Return the arrays ``x`` and ``labels`` of an archive."""
    where, expected = f"data {str(path)!r}", "an .npz file with arrays x and labels"
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as found:
            x, labels = found["x"], found["labels"]
    except (OSError, ValueError, TypeError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise InputError.at(where, expected=expected, found=str(error)) from error
    if not len(x) or len(x) != len(labels):
        sizes = f"{x.shape} and {labels.shape}"
        expected = "as many labels as inputs, at least one"
        raise InputError.at(where, expected=expected, found=sizes)
    return x.astype(np.float32), labels


def _pixels(path: Path, shape: tuple[int, ...]) -> Array:
    """Return an image as an array [C, H, W] or [H, W, C] of numbers from -1 to 1."""
    last = shape[0] not in (1, 3)
    channels, *size = (shape[2], *shape[:2]) if last else shape
    image_module = import_module("PIL.Image")
    try:
        with image_module.open(path) as image:
            mode = "L" if channels == 1 else "RGB"
            pixels = np.asarray(image.convert(mode).resize(tuple(reversed(size))), np.float32)
    except OSError as error:
        where = f"image {str(path)!r}"
        raise InputError.at(where, expected="a readable image", found=str(error)) from error
    pixels = pixels.reshape(*size, channels) / 127.5 - 1
    return pixels if last else pixels.transpose(2, 0, 1)


def _images(path: Path, shape: tuple[int, ...]) -> Data:
    """Return the images of a folder with one folder for each class, in the order of their names."""
    where = f"data {str(path)!r}"
    if find_spec("PIL") is None:
        fix = "run `pip install pillow`, or give an .npz file"
        raise DependencyError.at(where, expected="Pillow", found="none installed", fix=fix)
    classes = sorted(item for item in path.iterdir() if item.is_dir())
    files = [
        (file, number)
        for number, folder in enumerate(classes)
        for file in sorted(folder.iterdir())
        if file.suffix.lower() in _IMAGES
    ]
    if not files or len(shape) != 3:
        expected = "a folder of images for each class, and a model of images"
        found = f"{len(files)} images in {len(classes)} folders, an input of {shape}"
        raise InputError.at(where, expected=expected, found=found)
    x = np.stack([_pixels(file, shape) for file, _ in files])
    return x, np.array([number for _, number in files])


def _data(path: Path, graph: Graph) -> Data:
    shape = graph.value(graph.inputs[0]).shape[1:]
    x, labels = _images(path, shape) if path.is_dir() else _arrays(path)
    if x.shape[1:] != shape:
        where, found = f"data {str(path)!r}", str(x.shape[1:])
        raise InputError.at(where, expected=f"inputs of shape {shape}", found=found)
    return x, labels


def _batches(data: Data, size: int, seed: int) -> Iterator[Data]:
    """Yield batches of the data in another order, without the last one if it is smaller."""
    x, labels = data
    if len(x) < size:
        expected, fix = f"at least {size} items, a batch", "give --shape with a smaller batch"
        raise InputError.at("data", expected=expected, found=str(len(x)), fix=fix)
    order = np.random.default_rng(seed).permutation(len(x))
    for begin in range(0, len(x) - size + 1, size):
        chosen = order[begin : begin + size]
        yield x[chosen], labels[chosen]


def _accuracy(request: Request, graph: Graph, data: Data) -> float:
    """Return the share of items whose class the model finds."""
    model = request.compile(quiet=True, source=graph)
    size = graph.value(graph.inputs[0]).shape[0]
    x, labels = data
    right = 0
    for begin in range(0, len(x), size):
        part = x[begin : begin + size]
        whole = np.concatenate([part, np.zeros((size - len(part), *x.shape[1:]), np.float32)])
        (found,) = model.run({graph.inputs[0]: whole}).values()
        right += int((found[: len(part)].argmax(1) == labels[begin : begin + size]).sum())
    return right / len(x)


def _report(losses: Sequence[float], every: int) -> None:
    if len(losses) % every == 0:
        OUT.print(f"step {len(losses)}: loss {np.mean(losses[-every:]):.4f}")


@dataclass(frozen=True, slots=True)
class _Settings:
    """The options of the command, besides those of compiling."""

    data: Path
    epochs: int
    optimizer: Literal["sgd", "adamw"]
    lr: float
    momentum: float
    weight_decay: float
    clip_norm: float | None
    seed: int
    every: int
    checkpoint: Path | None
    test: Path | None
    curve: Path | None
    output: Path | None

    def rule(self) -> SGD | AdamW:
        """Return the optimizer."""
        if self.optimizer == "adamw":
            return AdamW(self.lr, weight_decay=self.weight_decay)
        return SGD(self.lr, self.momentum, weight_decay=self.weight_decay)


_OPTIONS = (
    click.argument("data", type=click.Path(path_type=Path, exists=True)),
    click.option(
        "--epochs",
        type=click.IntRange(1),
        default=1,
        show_default=True,
        help="How often all data are used.",
    ),
    click.option(
        "--optimizer",
        type=click.Choice(["sgd", "adamw"]),
        default="sgd",
        show_default=True,
        help="How gradients change the weights.",
    ),
    click.option(
        "--lr", type=click.FloatRange(0), default=0.01, show_default=True, help="Learning rate."
    ),
    click.option(
        "--momentum",
        type=click.FloatRange(0, 1, max_open=True),
        default=0.9,
        show_default=True,
        help="Only for sgd.",
    ),
    click.option(
        "--weight-decay",
        type=click.FloatRange(0),
        default=0.0,
        show_default=True,
        help="Share of the weights that steps take away.",
    ),
    click.option(
        "--clip-norm",
        type=click.FloatRange(0, min_open=True),
        help="Largest norm of all gradients together.",
    ),
    click.option(
        "--seed", type=int, default=0, show_default=True, help="Of the order of the data."
    ),
    click.option(
        "--every",
        type=click.IntRange(1),
        default=10,
        show_default=True,
        help="Print the mean loss after so many steps.",
    ),
    click.option(
        "--checkpoint",
        type=click.Path(path_type=Path),
        help="Continue from this file if it exists, and write it after each epoch.",
    ),
    click.option(
        "--test",
        type=click.Path(path_type=Path, exists=True),
        help="Data on which the accuracy of the trained model is measured.",
    ),
    click.option(
        "--curve", type=click.Path(path_type=Path), help="Write the losses as an SVG picture."
    ),
    click.option(
        "--output", "-o", type=click.Path(path_type=Path), help="Write the trained model."
    ),
)


def _with_options(command: Callable[..., None]) -> Callable[..., None]:
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


@click.command("train")
@compile_options
@_with_options
def train(request: Request, **given: Any) -> None:
    """Train the weights of MODEL to classify DATA: an .npz file, or a folder of images.

    The file has arrays x, like the model's input with any number of items, and labels, integers
    from 0 on. The folder has a folder of images for each class. The batch is that of the model,
    or of --shape. Scales and shifts of batch norms are trained, their statistics are not.
    """
    settings = _Settings(**given)
    graph = request.load()
    arrays = _data(settings.data, graph)
    size = graph.value(graph.inputs[0]).shape[0]
    with measuring(quiet=False) as progress:
        trainer = Trainer(
            graph,
            optimizer=settings.rule(),
            clip_norm=settings.clip_norm,
            **request.options(progress),
        )
    checkpoint = settings.checkpoint
    if checkpoint is not None and checkpoint.exists():
        trainer.load(checkpoint)
        OUT.print(f"continued from {checkpoint} after {trainer.steps} steps")
    total = settings.epochs * (len(arrays[0]) // size)
    with measuring(title="training") as advance:
        for _ in range(settings.epochs):
            for x, labels in _batches(arrays, size, settings.seed + trainer.steps):
                trainer.step(x, labels)
                _report(trainer.losses, settings.every)
                if advance is not None:
                    advance(len(trainer.losses), total, f"loss {trainer.losses[-1]:.4f}")
            if checkpoint is not None:
                trainer.save(checkpoint)
    found = trainer.graph()
    if settings.curve is not None:
        save_text(settings.curve, loss_curve(trainer.losses), "--curve")
    if settings.output is not None:
        models.save(found, settings.output)
    if settings.test is not None:
        OUT.print(f"accuracy {_accuracy(request, found, _data(settings.test, graph)):.4f}")
