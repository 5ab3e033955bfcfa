"""What tests of the pages share: their blocks, and small models in place of the files they name."""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx

import stridewise as sw

from .integration.mixed_models import detector

__all__ = ["ROOT", "Block", "blocks", "commands", "execute", "sources", "write_files"]

ROOT = Path(__file__).parents[1]
F32 = np.float32


@dataclass(frozen=True)
class Block:
    """A block of code of a page.

    Attributes:
        page: the page, relative to the checkout.
        line: the line of the page where the code begins.
        language: ``"python"``, or ``""`` for commands and output.
        text: the code.
    """

    page: str
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def blocks(page: str) -> Iterator[Block]:
    """Yield the blocks of code of a page."""
    text = (ROOT / page).read_text(encoding="utf-8")
    for found in re.finditer(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        yield Block(page, text.count("\n", 0, found.start(2)) + 1, found[1], found[2])


def commands(text: str) -> Iterator[list[str]]:
    """Yield the arguments of the commands of ``stridewise`` in a text, one a line.

    >>> list(commands("$ stridewise plan m.onnx --dot - | dot -Tsvg  # a picture"))
    [['plan', 'm.onnx', '--dot', '-']]
    """
    for line in text.splitlines():
        words = line.removeprefix("$ ").split(" | ")[0].split(" > ")[0]
        if words.startswith("stridewise "):
            yield shlex.split(words, comments=True)[1:]


def execute(block: Block, names: dict[str, Any]) -> None:
    """Run a block of Python, also one that awaits; its names are added to ``names``."""
    source = "\n" * (block.line - 1) + block.text
    code = compile(source, block.page, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    found = eval(code, names)
    if inspect.iscoroutine(found):
        asyncio.run(found)


def network() -> sw.Graph:
    """Return a classifier of images ``x``: conv1, relu1, conv2, relu2, conv3, relu3, a mean."""
    rng = np.random.default_rng(0)
    b = sw.GraphBuilder("resnet50")
    x = b.input("x", (1, 3, 224, 224))
    extents = ((16, 3, 4), (16, 16, 2), (10, 16, 2))
    for number, (filters, channels, stride) in enumerate(extents, 1):
        weights = rng.standard_normal((filters, channels, 3, 3)).astype(F32) / channels
        w = b.constant(weights, f"w{number}")
        x = b.op("conv", [x, w], {"strides": (stride, stride)}, name=f"conv{number}")
        x = b.op("relu", [x], output=f"relu{number}")
    return b.build([b.op("reduce_mean", [x], {"axes": (2, 3), "keepdims": 0})])


def write_files(folder: Path) -> None:
    """Write the files that the pages name."""
    for name in ("resnet50", "m", "model"):
        sw.save(network(), folder / f"{name}.onnx")
    proto = onnx.load(folder / "model.onnx")
    for value, extents in ((proto.graph.input[0], "N HW"), (proto.graph.output[0], "N")):
        for dim, extent in zip(value.type.tensor_type.shape.dim, extents, strict=False):
            if extent != " ":
                dim.dim_param = extent
    onnx.save(proto, folder / "any_size.onnx")
    b = sw.GraphBuilder("elementwise")
    x = b.input("image", (1, 8, 8, 3))
    sw.save(b.build([b.relu(x)]), folder / "elementwise.onnx")
    onnx.save(detector()[0], folder / "detector.onnx")
    rng = np.random.default_rng(1)
    images = rng.standard_normal((12, 3, 224, 224)).astype(F32)
    np.savez(folder / "samples.npz", x=images)
    sw.quantize(
        folder / "resnet50.onnx", [{"x": x[None]} for x in images], folder / "resnet50.int8.onnx"
    )
    np.savez(folder / "data.npz", x=images, labels=rng.integers(0, 10, 12))
    plan = sw.plan(folder / "m.onnx", tune="model")
    for name in ("before.json", "after.json", "m.plan.json"):
        plan.save(folder / name)


def trained(*, batch: int = 16, size: int = 32) -> dict[str, Any]:
    """Return a graph to train, and batches for it."""
    b = sw.GraphBuilder("trained", training=True)
    y = b.input("x", (batch, 3, size, size))
    for number in range(8):
        name = "conv" if number == 0 else f"conv{number}"
        y = b.relu(b.batch_norm(b.conv2d(y, 16, 3, padding=1, bias=False, name=name)))
    graph = b.build([b.dense(b.flatten(b.global_avg_pool(y)), 10)])
    rng = np.random.default_rng(3)
    images = rng.standard_normal((batch, 3, size, size)).astype(F32)
    labels = rng.integers(0, 10, batch)
    batches = [(images, labels)]
    return {"graph": graph, "images": images, "labels": labels, "batches": batches}


def loss() -> sw.Graph:
    """Return a graph of a ``loss`` with a parameter ``w``."""
    b = sw.GraphBuilder("loss")
    w = b.parameter(np.ones((4, 1), F32), "w")
    y = b.op("matmul", [b.input("x", (2, 4)), w])
    return b.build([b.op("reduce_sum", [b.mul(y, y)], {"axes": (0, 1)}, output="loss")])


def sources(block: Block) -> dict[str, Any]:
    """Return what a block without PyTorch takes as given."""
    rng = np.random.default_rng(2)
    image = rng.standard_normal((1, 3, 224, 224)).astype(F32)
    names: dict[str, Any] = {"np": np, "sw": sw, "asyncio": asyncio, "x": image, "image": image}
    names["samples"] = [{"x": image * (0.5 + 0.1 * n)} for n in range(8)]
    names["images"] = [image, -image]
    if "sw.Trainer(" in block.text:
        names |= trained()
    if "sw.grad(" in block.text:
        names["graph"] = loss()
    if "keep_parameters" in block.text:
        names |= {"graph": trained()["graph"], "array": np.ones((16, 3, 3, 3), F32)}
    if block.page == "docs/plans.md":
        names["plan"] = sw.plan("m.onnx", tune="model")
    if "model.plan\n" in block.text or "sw.verify(model)" in block.text:
        names["model"] = sw.compile("resnet50.onnx")
    return names
