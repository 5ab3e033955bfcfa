"""Contenders of ``benchmarks/training.py race``: training steps, each in a process of its own."""

from __future__ import annotations

import argparse
import multiprocessing
import resource
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np

import stridewise as sw
from stridewise.graph import Graph

__all__ = ["NETWORKS", "Network", "Worker", "network"]

NETWORKS = (
    "resnet18", "resnet50", "vgg16", "mobilenet_v2", "densenet121", "resnext101_32x8d",
)  # fmt: skip
"""Networks of torchvision."""


def _torchvision() -> Any:
    """Return torchvision's networks, also where its own operators do not load."""
    library = import_module("torch").library
    register = library.register_fake
    try:
        return import_module("torchvision.models")
    except RuntimeError:
        library.register_fake = lambda *_args, **_options: lambda function: function
        return import_module("torchvision.models")
    finally:
        library.register_fake = register


@dataclass(frozen=True, slots=True)
class Network:
    """A network as a module of PyTorch and as a graph with its weights."""

    module: Any
    graph: Graph


def network(name: str, batch: int, size: int) -> Network:
    """Return a network in training with weights from a seed; dropout does nothing."""
    torch: Any = import_module("torch")
    models = _torchvision()
    torch.manual_seed(0)
    module = getattr(models, name)(weights=None).train()
    for layer in module.modules():
        if type(layer).__name__ in ("Dropout", "StochasticDepth"):
            layer.p = 0.0
    if name.startswith("vgg") and size == 224:
        # The pool keeps the 7 x 7 pixels that there are.
        module = torch.nn.Sequential(module.features, torch.nn.Flatten(), *module.classifier)
    reader: Any = import_module("tests.torch.module_graphs")
    return Network(module, reader.graph_of(module, (batch, 3, size, size)))


def _ours(found: Network, x: Any, labels: Any, options: Any, *, half: bool) -> Callable[[], Any]:
    given = {"threads": options.threads, "tune": options.tune}
    if options.dtype == "bfloat16":
        given["dtype"] = "bfloat16"
    rule = sw.SGD(lr=1e-3, momentum=0.9)
    trainer = sw.Trainer(found.graph, optimizer=rule, **given)
    if half:
        limit = trainer.nbytes // 2
        del trainer
        trainer = sw.Trainer(found.graph, optimizer=rule, memory_limit=limit, **given)
    return partial(trainer.step, x, labels)


def _pytorch(
    found: Network, x: Any, labels: Any, options: Any, *, backend: str
) -> Callable[[], Any]:
    torch: Any = import_module("torch")
    torch.set_num_threads(options.threads)
    module = found.module.to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(module.parameters(), 1e-3, momentum=0.9)
    images = torch.tensor(x).to(memory_format=torch.channels_last)
    classes = torch.tensor(labels)
    if backend == "stridewise":
        import_module("stridewise.torch")
    forward = torch.compile(module, backend=backend) if backend else module
    is_bf16 = options.dtype == "bfloat16"

    def step() -> float:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", torch.bfloat16, enabled=is_bf16):
            loss = torch.nn.functional.cross_entropy(forward(images), classes)
        loss.backward()
        optimizer.step()
        return float(loss.detach())

    return step


_STEPS: dict[str, Callable[..., Callable[[], Any]]] = {
    "ours": partial(_ours, half=False),
    "half": partial(_ours, half=True),
    "compiled": partial(_pytorch, backend="stridewise"),
    "eager": partial(_pytorch, backend=""),
    "inductor": partial(_pytorch, backend="inductor"),
}


def _serve(pipe: Any, contender: str, name: str, options: argparse.Namespace) -> None:
    """Do steps when asked to; runs in a process of its own."""
    try:
        found = network(name, options.batch, options.size)
        rng, shape = np.random.default_rng(0), (options.batch, 3, options.size, options.size)
        x, labels = rng.standard_normal(shape, np.float32), rng.integers(0, 1000, options.batch)
        step = _STEPS[contender](found, x, labels, options)
        del found
        step()
    except Exception as error:
        pipe.send(f"{type(error).__name__}: {error}".splitlines()[0])
        return
    pipe.send("")
    while pipe.recv() == "step":
        pipe.send(step())
    pipe.send(1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)


class Worker:
    """A process that does training steps of one contender.

    Attributes:
        error: why it cannot; "" if it can.
    """

    def __init__(self, contender: str, name: str, options: argparse.Namespace) -> None:
        """Start the process, and wait until it has done a step."""
        context = multiprocessing.get_context("spawn")
        self._pipe, other = context.Pipe()
        self._process = context.Process(target=_serve, args=(other, contender, name, options))
        self._process.start()
        other.close()
        try:
            self.error: str = self._pipe.recv()
        except EOFError:
            self.error = "the process ended"
        if self.error:
            self._process.join()

    def step(self) -> float:
        """Do a step, and return the loss."""
        self._pipe.send("step")
        return float(self._pipe.recv())

    def stop(self) -> int:
        """End the process, and return the peak of its memory in bytes."""
        self._pipe.send("stop")
        found = int(self._pipe.recv())
        self._process.join()
        return found
