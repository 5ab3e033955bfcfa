"""Runtimes with several requests at once: ours, and others as their own documentation advises.

OpenVINO gets its throughput mode and the queue that it has for it. ONNX Runtime has neither: it
gets one session for each request at a time, with that share of the threads, called from a pool of
Python's threads, which its runs do not keep from each other.
"""

from __future__ import annotations

import importlib
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from stridewise import __version__
from stridewise.cli.peers import (
    guarded,
    onnxruntime_session,
    openvino_config,
    openvino_positions,
)
from stridewise.runtime.execution.model import Model

__all__ = ["SERVERS", "Server", "open_server", "our_server"]

Array = NDArray[Any]
Source = Path | bytes


@dataclass(frozen=True, slots=True)
class Server:
    """A runtime that answers the same request again and again, several at once.

    Attributes:
        name: of the runtime.
        version: of the runtime.
        run: answers so many requests, one at least, and returns the outputs of one.
    """

    name: str
    version: str
    run: Callable[[int], list[Array]]


def our_server(model: Model, inputs: Mapping[str, Array]) -> Server:
    """Return a compiled model with as many requests at once as it has streams.

    One at a time is what :meth:`Model.run` does, which needs no other thread.
    """

    def run(count: int) -> list[Array]:
        if model.streams == 1:
            answers = map(model.run, repeat(inputs, count))
        else:
            answers = model.map(repeat(inputs, count))
        (last,) = deque(answers, 1)
        return list(last.values())

    return Server("stridewise", __version__, run)


def _onnxruntime(source: Source, inputs: Mapping[str, Array], threads: int, streams: int) -> Server:
    opened = [onnxruntime_session(source, threads // streams) for _ in range(streams)]
    feeds = dict(inputs)
    pool = ThreadPoolExecutor(streams)

    def share(session: Any, count: int) -> list[Array]:
        found: list[Array] = []
        for _ in range(count):
            found = list(session.run(None, feeds))
        return found

    def run(count: int) -> list[Array]:
        shares = [count // streams + (index < count % streams) for index in range(streams)]
        if streams == 1:
            return share(opened[0][0], count)
        first, *_ = pool.map(share, (session for session, _ in opened), shares)
        return first

    return Server("onnxruntime", opened[0][1], run)


def _openvino(source: Source, inputs: Mapping[str, Array], threads: int, streams: int) -> Server:
    module: Any = importlib.import_module("openvino")
    core = module.Core()
    config = openvino_config(threads, streams)
    compiled = core.compile_model(core.read_model(model=source), "CPU", config)
    positions = openvino_positions(compiled, inputs)
    request = compiled.create_infer_request()
    # By default it has as many requests as the plugin finds best.
    queue = module.AsyncInferQueue(compiled)

    def one_by_one(count: int) -> list[Array]:
        results: Any = {}
        for _ in range(count):
            results = request.infer(positions, share_inputs=True)
        return [results[port] for port in compiled.outputs]

    def queued(count: int) -> list[Array]:
        for _ in range(count):
            queue.start_async(positions, share_inputs=True)
        queue.wait_all()
        results = queue[0].results
        return [results[port] for port in compiled.outputs]

    version = module.__version__.split("-")[0]
    return Server("openvino", version, one_by_one if streams == 1 else queued)


SERVERS: dict[str, Callable[[Source, Mapping[str, Array], int, int], Server]] = {
    "onnxruntime": _onnxruntime,
    "openvino": _openvino,
}
"""Peers that know how to run several requests at once."""


def open_server(
    name: str, source: Source, inputs: Mapping[str, Array], threads: int, streams: int
) -> Server:
    """Load a model into another runtime, for several requests at once.

    Args:
        name: one of :data:`SERVERS`.
        source: the model file, or its bytes.
        inputs: of every request.
        threads: of all requests together.
        streams: how many there are at once.

    Raises:
        KeyError: there is no peer of that name.
        DependencyError: it is not installed.
        ExecutionError: it cannot load the model.
    """
    return guarded(name, lambda: SERVERS[name](source, inputs, threads, streams))
