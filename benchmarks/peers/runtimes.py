"""OpenVINO and PyTorch beside ONNX Runtime, which Stridewise's own ``bench`` knows.

All get the same model, the same number of threads and float32 arithmetic. Idle threads do not
spin, so that they take no time from the next runtime. Those of PyTorch's OpenMP do spin for some
milliseconds, which a pause between the runs has to cover.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any

from numpy.typing import NDArray

import stridewise as sw
from stridewise.cli.bench import Open, Peer, Source, open_onnxruntime
from stridewise.errors import DependencyError, ExecutionError, InputError, StridewiseError, describe

from .torch_module import channels_last, to_torch

__all__ = ["PEERS", "USUAL", "openvino_config"]

Array = NDArray[Any]
Inputs = Mapping[str, Array]


def openvino_config(threads: int, streams: int = 1) -> dict[str, Any]:
    """Return the settings of OpenVINO: float32 arithmetic, and this many simultaneous requests."""
    return {
        "INFERENCE_NUM_THREADS": threads,
        "INFERENCE_PRECISION_HINT": "f32",
        "NUM_STREAMS": streams,
        "PERFORMANCE_HINT": "LATENCY" if streams == 1 else "THROUGHPUT",
    }


def _openvino(source: Source, inputs: Inputs, threads: int, streams: int) -> Peer:
    """Load a model into OpenVINO; several requests go through its own queue."""
    module: Any = importlib.import_module("openvino")
    core = module.Core()
    config = openvino_config(threads, streams)
    compiled = core.compile_model(core.read_model(model=source), "CPU", config)
    positions = {
        index: inputs[name]
        for index, port in enumerate(compiled.inputs)
        for name in port.names
        if name in inputs
    }
    request = compiled.create_infer_request()
    # By default it has as many requests as the plugin finds best.
    queue = module.AsyncInferQueue(compiled)

    def run(count: int) -> list[Array]:
        results: Any = {}
        if streams == 1:
            for _ in range(count):
                results = request.infer(positions, share_inputs=True)
        else:
            for _ in range(count):
                queue.start_async(positions, share_inputs=True)
            queue.wait_all()
            results = queue[0].results
        return [results[port] for port in compiled.outputs]

    return Peer("openvino", module.__version__.split("-")[0], run)


def _torch_peer(
    name: str,
    source: Source,
    inputs: Inputs,
    threads: int,
    compiled: Callable[[Any, list[Any]], Any] | None = None,
) -> Peer:
    """Load a model into PyTorch as a module, and compile it if ``compiled`` is given.

    The arrays of the inputs are row-major, so every run includes the conversion to channels-last.
    """
    torch: Any = importlib.import_module("torch")
    torch.set_num_threads(threads)
    graph = sw.load(source)
    tensors = [torch.from_numpy(inputs[name]) for name in graph.inputs]
    module, mode = to_torch(graph), torch.inference_mode
    if compiled is not None:
        module, mode = compiled(module, tensors), torch.no_grad

    def run(count: int) -> list[Array]:
        found: Any = ()
        with mode():
            for _ in range(count):
                found = module(*map(channels_last, tensors))
        return [tensor.numpy() for tensor in found]

    return Peer(name, torch.__version__, run)


def _one_stream(name: str, streams: int) -> None:
    if streams > 1:
        expected = f"some of {', '.join(USUAL)}, as PyTorch computes one request at a time"
        raise InputError(describe("--vs", expected=expected, found=repr(name)))


def _torch(source: Source, inputs: Inputs, threads: int, streams: int) -> Peer:
    _one_stream("torch", streams)
    return _torch_peer("torch", source, inputs, threads)


def _inductor(source: Source, inputs: Inputs, threads: int, streams: int) -> Peer:
    _one_stream("inductor", streams)
    torch: Any = importlib.import_module("torch")
    config: Any = importlib.import_module("torch._inductor.config")

    def compiled(module: Any, tensors: list[Any]) -> Any:
        # Processes that compile would outlive the compilation, and take time from later runs.
        with config.patch(freezing=True, compile_threads=1), torch.no_grad():
            found = torch.compile(module, fullgraph=True, dynamic=False)
            found(*map(channels_last, tensors))
        return found

    return _torch_peer("inductor", source, inputs, threads, compiled)


def _guarded(name: str, load: Open, extra: str) -> Open:
    """Return a function that loads a model, with errors of Stridewise's own types."""

    def guarded(source: Source, inputs: Inputs, threads: int, streams: int) -> Peer:
        try:
            return load(source, inputs, threads, streams)
        except StridewiseError:
            raise
        except ImportError as error:
            raise DependencyError(
                describe(
                    f"peer {name!r}",
                    expected="the package to be installed",
                    found=str(error),
                    fix=f"run `pip install 'stridewise[{extra}]'`",
                )
            ) from error
        except Exception as error:  # each runtime has exceptions of its own, mostly RuntimeError
            found = str(error).strip().split("\n")[0]
            expected, fix = "to load the model", "leave it out of --vs"
            raise ExecutionError(
                describe(f"peer {name!r}", expected=expected, found=found, fix=fix)
            ) from error

    return guarded


PEERS: Mapping[str, Open] = {
    "onnxruntime": open_onnxruntime,
    "openvino": _guarded("openvino", _openvino, "bench"),
    "torch": _guarded("torch", _torch, "torch"),
    "inductor": _guarded("inductor", _inductor, "torch"),
}

USUAL = ("onnxruntime", "openvino")
"""Peers that take every model, and several requests at once.

PyTorch gets a module that is made of the graph, which knows only the operators of the zoo.
"""
