"""The stages for one fuzz input, each in a process: only Stridewise's errors may be raised."""

from __future__ import annotations

import resource
import time
import traceback
import warnings
from contextlib import suppress
from math import prod
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
from onnx import ModelProto, TensorProto, numpy_helper
from tests.fuzz.seeds import content_of
from tests.simplified import simplify

import stridewise as sw
from stridewise.errors import ModelError, StridewiseError
from stridewise.graph import Graph
from stridewise.ops.demand import memory_demand
from stridewise.runtime.execution.loading import load, lower_plan

__all__ = ["MEMORY_LIMIT", "check", "limit_address_space", "work"]

MEMORY_LIMIT = 128 << 20
_HEADROOM = 2 << 30
_ROUNDS = 1 << 16
"""Of a loop that ONNX Runtime runs."""
_SMALL_WORK = 1 << 24
"""Elements times nodes up to which a model is run, too."""


def limit_address_space() -> None:
    """Let this process have what it has and a few gigabytes more."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + _HEADROOM, used + _HEADROOM))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _loops_for_long(content: bytes) -> bool:
    """Return whether a model has a loop with too many iterations to run."""
    graph = ModelProto.FromString(content).graph
    asked = {node.input[0] for node in graph.node if node.op_type == "Loop" and node.input}
    for tensor in graph.initializer:
        if tensor.name in asked and tensor.data_type == TensorProto.INT64:
            with suppress(ValueError):  # of a damaged tensor, which the import has not needed
                if numpy_helper.to_array(tensor).max(initial=0) > _ROUNDS:
                    return True
    return False


def _run(graph: Graph, plan: sw.Plan, content: bytes) -> str:
    values = graph.values
    work = sum(prod(value.shape) for value in values.values())
    if memory_demand(graph).total > MEMORY_LIMIT // 4 or work > _SMALL_WORK:
        return "planned"
    if not set(graph.arguments) <= set(graph.inputs):
        return "planned"
    if any(node.op == "fallback" for node in graph.nodes) and _loops_for_long(content):
        return "planned"
    model = load(lower_plan(plan))
    inputs = {name: np.zeros(values[name].shape, values[name].dtype.numpy) for name in graph.inputs}
    for name, result in model.run(inputs).items():
        if name in graph.outputs:
            assert result.shape == values[name].shape, (name, result.shape)
    return "ran"


def check(content: bytes, path: Path | None = None, *, fallback: bool = False) -> tuple[str, str]:
    """Take an input through all stages.

    Args:
        content: of a model file.
        path: of the same content, where the model is to be read from a file.
        fallback: whether ONNX Runtime computes what is not native. Then a part of what is tried is
            its code, and what it refuses must be an error of Stridewise.

    Returns:
        The outcome (``"ran"``, ``"planned"``, the name of an error of Stridewise, or ``"crash"``),
        and the message or traceback.
    """
    start = time.perf_counter()
    stage = "import"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            graph = sw.load(path or content, memory_limit=MEMORY_LIMIT, fallback=fallback)
            stage = "plan"
            simplified = simplify(graph, check=True).graph
            plan = sw.plan(simplified, tune="model", threads=1, memory_limit=MEMORY_LIMIT)
            return _run(graph, plan, content), ""
    except StridewiseError as error:
        message = str(error)
        if "\n" in message or len(message) > 8000:
            return "crash", f"a message that is not one short line: {message[:9000]!r}"
        if stage == "import" and not isinstance(error, ModelError):
            return "crash", f"not a ModelError: {traceback.format_exc()}"
        return type(error).__name__, message
    except Exception:  # whatever it is, it is a finding
        text = traceback.format_exc()
        return "crash", f"{text}after {time.perf_counter() - start:.1f} s"


def work(pipe: Connection, seed: int, first: int, last: int, fallback: bool) -> None:
    """Check inputs one after the other and report each; runs in a process of its own."""
    limit_address_space()
    for number in range(first, last):
        pipe.send((number, "begin", ""))
        try:
            content = content_of(seed, number, fallback=fallback)
        except (ValueError, TypeError) as error:  # the mutation makes no sense to protobuf
            pipe.send((number, "no input", str(error)))
            continue
        pipe.send((number, "made", ""))
        pipe.send((number, *check(content, fallback=fallback)))
    pipe.send((last, "end", ""))
