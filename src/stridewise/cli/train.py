"""``stridewise train``: train the weights of a model on arrays or on a folder of images."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from math import cos, pi
from pathlib import Path
from typing import Any, Literal

import click
import numpy as np

from stridewise.api import models
from stridewise.api.trainer import Trainer
from stridewise.cli.console import (
    OUT,
    Callback,
    Request,
    measuring,
    save_text,
    training_options,
    with_options,
)
from stridewise.cli.outputs import Command, OutputFile
from stridewise.cli.training_data import Data, batches, check_classifier, epoch_steps, read_data
from stridewise.errors import InputError
from stridewise.graph import Graph
from stridewise.report.loss_curve import loss_curve
from stridewise.training import SGD, AdamW

__all__ = ["train"]


def _accuracy(request: Request, graph: Graph, data: Data) -> float:
    """Return the share of items whose class the model finds."""
    model = request.compile(quiet=True, source=graph)
    size = graph.value(graph.inputs[0]).shape[0]
    count = len(data.x)
    right = 0
    for begin in range(0, count, size):
        part, labels = data.part(np.arange(begin, min(begin + size, count)))
        whole = np.concatenate([part, np.zeros((size - len(part), *part.shape[1:]), np.float32)])
        (found,) = model.run({graph.inputs[0]: whole}).values()
        right += int((found[: len(part)].argmax(1) == labels).sum())
    return right / count


def _check_places(settings: _Settings) -> None:
    """Check that what is written at the end has a folder."""
    for path in (settings.checkpoint, settings.curve, settings.output):
        if path is not None and not path.absolute().parent.is_dir():
            found = f"none at {str(path.absolute().parent)!r}"
            raise InputError.at(f"file {str(path)!r}", expected="a folder for it", found=found)


def _train(
    trainer: Trainer, data: Data, size: int, settings: _Settings, advance: Callback | None
) -> None:
    """Do the steps of all epochs that are left, and write checkpoints."""
    count = epoch_steps(data, size)
    for x, labels in batches(data, size, settings.seed, trainer.steps, settings.epochs):
        loss = trainer.step(x, labels)
        if trainer.steps % settings.every == 0:
            mean = np.mean(trainer.losses[-settings.every :])
            OUT.print(f"step {trainer.steps}: loss {mean:.4f}")
        if advance is not None:
            advance(trainer.steps, settings.epochs * count, f"loss {loss:.4f}")
        if settings.checkpoint is not None and trainer.steps % count == 0:
            trainer.save(settings.checkpoint)


@dataclass(frozen=True, slots=True)
class _Settings:
    """The options of the command, besides those of compiling."""

    data: Path
    epochs: int
    optimizer: Literal["sgd", "adamw"]
    lr: float
    schedule: Literal["constant", "cosine"]
    momentum: float
    weight_decay: float
    clip_norm: float | None
    seed: int
    every: int
    checkpoint: Path | None
    test: Path | None
    curve: Path | None
    output: Path | None

    def rule(self, steps: int) -> SGD | AdamW:
        """Return the optimizer for a number of steps."""

        def cosine(step: int) -> float:
            return self.lr * (1 + cos(pi * min(step / steps, 1.0))) / 2

        rate = cosine if self.schedule == "cosine" else self.lr
        if self.optimizer == "adamw":
            return AdamW(rate, weight_decay=self.weight_decay)
        return SGD(rate, self.momentum, weight_decay=self.weight_decay)


_OPTIONS = (
    click.argument("data", type=click.Path(path_type=Path, exists=True)),
    click.option(
        "--epochs",
        type=click.IntRange(1),
        default=1,
        show_default=True,
        help="Number of passes over the data.",
    ),
    click.option(
        "--optimizer",
        type=click.Choice(["sgd", "adamw"]),
        default="sgd",
        show_default=True,
        help="Optimizer of the weights.",
    ),
    click.option(
        "--lr", type=click.FloatRange(0), default=0.01, show_default=True, help="Learning rate."
    ),
    click.option(
        "--schedule",
        type=click.Choice(["constant", "cosine"]),
        default="constant",
        show_default=True,
        help="cosine lets the learning rate fall to 0 along a cosine.",
    ),
    click.option(
        "--momentum",
        type=click.FloatRange(0, 1, max_open=True),
        default=0.9,
        show_default=True,
        help="Momentum of sgd; adamw ignores it.",
    ),
    click.option(
        "--weight-decay",
        type=click.FloatRange(0),
        default=0.0,
        show_default=True,
        help="Factor of weight decay: L2 for sgd, decoupled for adamw.",
    ),
    click.option(
        "--clip-norm",
        type=click.FloatRange(0, min_open=True),
        help="Scale all gradients down if their common norm is larger.",
    ),
    click.option(
        "--seed",
        type=click.IntRange(0, 2**48 - 1),
        default=0,
        show_default=True,
        help="Seed for the order of the data and for dropout.",
    ),
    click.option(
        "--every",
        type=click.IntRange(1),
        default=10,
        show_default=True,
        help="Number of steps between printed losses; each is the mean over these steps.",
    ),
    click.option(
        "--checkpoint",
        type=click.Path(path_type=Path),
        help="Continue from this file if it exists, and write it after each epoch. --epochs counts"
        " all epochs, including those before an interruption.",
    ),
    click.option(
        "--test",
        type=click.Path(path_type=Path, exists=True),
        help="Data on which the accuracy of the trained model is measured.",
    ),
    click.option(
        "--curve", type=OutputFile(path_type=Path), help="Write the losses as an SVG picture."
    ),
    click.option(
        "--output", "-o", type=OutputFile(path_type=Path), help="ONNX file for the trained model."
    ),
)


@click.command("train", cls=Command)
@training_options
@partial(with_options, _OPTIONS)
def train(request: Request, **given: Any) -> None:
    """Train the weights of MODEL to classify DATA.

    DATA is an .npz file or a folder. The file has two arrays: x, the inputs, items along the first
    axis; and labels, the classes as integers from 0 on. The folder has a folder of images for each
    class. The batch size is that of the model, or of --shape. Batch norms in training mode keep
    running statistics. In other batch norms, scales and shifts are trained, and statistics stay
    fixed. Dropout is active.

    With --checkpoint, an interrupted training continues after its last complete epoch, and gives
    the same weights as an uninterrupted one.
    """
    settings = _Settings(**given)
    _check_places(settings)
    graph = request.load(training=True)
    check_classifier(graph)
    data = read_data(settings.data, graph)
    test = None if settings.test is None else read_data(settings.test, graph, data)
    size = graph.value(graph.inputs[0]).shape[0]
    total = settings.epochs * epoch_steps(data, size)
    with measuring(quiet=False) as progress:
        trainer = Trainer(
            graph,
            optimizer=settings.rule(total),
            clip_norm=settings.clip_norm,
            seed=settings.seed,
            **request.options(progress),
        )
    checkpoint = settings.checkpoint
    if checkpoint is not None and checkpoint.exists():
        trainer.load(checkpoint)
        done = f"{trainer.steps} of {total} steps are done"
        OUT.print(f"continued from {checkpoint}: {done}")
    with measuring(title="training") as advance:
        _train(trainer, data, size, settings, advance)
    found = trainer.graph()
    if settings.curve is not None and trainer.losses:
        save_text(settings.curve, loss_curve(trainer.losses), "--curve")
    if settings.output is not None:
        models.save(found, settings.output)
    if test is not None:
        OUT.print(f"accuracy {_accuracy(request, found, test):.4f}")
