"""Other runtimes, to compare with. Each is imported only when it is asked for.

All get the same model, the same number of threads and float32 arithmetic. Idle threads do not
spin, so that they do not take the processor from whoever runs next; those of PyTorch's OpenMP do
for some milliseconds, which a pause between the runs has to cover.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

from numpy.typing import NDArray

from stridewise.api.models import load
from stridewise.cli.torch_module import channels_last, to_torch
from stridewise.errors import DependencyError, ExecutionError, InputError, describe
from stridewise.frontends.registry import WRITER
from stridewise.graph import Graph

__all__ = [
    "MOVING",
    "PEERS",
    "Peer",
    "check_peers",
    "guarded",
    "installed",
    "moves_of_onnxruntime",
    "onnxruntime_session",
    "open_peer",
    "openvino_config",
    "openvino_positions",
]

Array = NDArray[Any]
Model = Path | bytes
Runner = Callable[[], list[Array]]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Peer:
    """A runtime that is ready to run one model on one set of inputs."""

    name: str
    version: str
    run: Runner


def onnxruntime_session(model: Model, threads: int) -> tuple[Any, str]:
    """Return a session of ONNX Runtime whose idle threads do not spin, and its version."""
    module: Any = importlib.import_module("onnxruntime")
    options = module.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    session = module.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return session, module.__version__


def _onnxruntime(model: Model, inputs: Mapping[str, Array], threads: int) -> Peer:
    session, version = onnxruntime_session(model, threads)
    feeds = dict(inputs)
    return Peer("onnxruntime", version, lambda: list(session.run(None, feeds)))


def openvino_config(threads: int, streams: int = 1) -> dict[str, Any]:
    """Return what OpenVINO is told: float32 arithmetic, so many requests at a time."""
    return {
        "INFERENCE_NUM_THREADS": threads,
        "INFERENCE_PRECISION_HINT": "f32",
        "NUM_STREAMS": streams,
        "PERFORMANCE_HINT": "LATENCY" if streams == 1 else "THROUGHPUT",
    }


def openvino_positions(compiled: Any, inputs: Mapping[str, Array]) -> dict[int, Array]:
    """Return inputs by their places in a model that OpenVINO has compiled."""
    return {
        index: inputs[name]
        for index, port in enumerate(compiled.inputs)
        for name in port.names
        if name in inputs
    }


def _openvino(model: Model, inputs: Mapping[str, Array], threads: int) -> Peer:
    module: Any = importlib.import_module("openvino")
    core = module.Core()
    compiled = core.compile_model(core.read_model(model=model), "CPU", openvino_config(threads))
    request = compiled.create_infer_request()
    positions = openvino_positions(compiled, inputs)

    def run() -> list[Array]:
        results = request.infer(positions, share_inputs=True)
        return [results[port] for port in compiled.outputs]

    return Peer("openvino", module.__version__.split("-")[0], run)


def _tensors(torch: Any, graph: Graph, inputs: Mapping[str, Array]) -> list[Any]:
    """Return the inputs in their order, over the memory of the arrays.

    Users have them row-major, so that every run pays for making them channels-last.
    """
    return [torch.from_numpy(inputs[name]) for name in graph.inputs]


def _torch(model: Model, inputs: Mapping[str, Array], threads: int) -> Peer:
    torch: Any = importlib.import_module("torch")
    torch.set_num_threads(threads)
    graph = load(model)
    module, tensors = to_torch(graph), _tensors(torch, graph, inputs)

    def run() -> list[Array]:
        with torch.inference_mode():
            return [found.numpy() for found in module(*map(channels_last, tensors))]

    return Peer("torch", torch.__version__, run)


def _inductor(model: Model, inputs: Mapping[str, Array], threads: int) -> Peer:
    torch: Any = importlib.import_module("torch")
    config: Any = importlib.import_module("torch._inductor.config")
    torch.set_num_threads(threads)
    graph = load(model)
    tensors = _tensors(torch, graph, inputs)
    # Processes that compile would outlive the compilation, and take time from whoever runs next.
    with config.patch(freezing=True, compile_threads=1), torch.no_grad():
        compiled = torch.compile(to_torch(graph), fullgraph=True, dynamic=False)
        compiled(*map(channels_last, tensors))

    def run() -> list[Array]:
        with torch.no_grad():
            return [found.numpy() for found in compiled(*map(channels_last, tensors))]

    return Peer("inductor", torch.__version__, run)


def guarded(name: str, load: Callable[[], T]) -> T:
    """Do what loads a model into another runtime, and give its errors our own types.

    Raises:
        DependencyError: the runtime is not installed.
        ExecutionError: it cannot load the model.
    """
    try:
        return load()
    except ImportError as error:
        raise DependencyError(
            describe(
                f"peer {name!r}",
                expected="the package to be installed",
                found=str(error),
                fix=f"run `pip install 'stridewise[{_EXTRAS.get(name, 'bench')}]'`",
            )
        ) from error
    except Exception as error:  # every runtime has exceptions of its own, most of them RuntimeError
        raise ExecutionError(
            describe(
                f"peer {name!r}",
                expected="to load the model",
                found=str(error).strip().split("\n")[0],
                fix="leave it out of --vs",
            )
        ) from error


MOVING = ("ReorderInput", "ReorderOutput", "Transpose", "Concat", "Split", "Slice")
"""Operators of ONNX Runtime's optimized graphs that only move bytes. Its Reshapes move none."""


def moves_of_onnxruntime(model: Model, threads: int) -> dict[str, int]:
    """Return how many steps of each kind only move bytes in the graph that ONNX Runtime runs.

    The graph is the one that it writes itself when a session is made, with all its optimizations
    for this machine.

    Raises:
        DependencyError: it is not installed.
        ExecutionError: it cannot load the model.
    """
    with TemporaryDirectory() as folder:
        path = Path(folder) / "optimized.onnx"

        def load() -> None:
            module: Any = importlib.import_module("onnxruntime")
            options = module.SessionOptions()
            options.intra_op_num_threads = threads
            options.log_severity_level = 3
            options.optimized_model_filepath = str(path)
            source = str(model) if isinstance(model, Path) else model
            module.InferenceSession(source, options, providers=["CPUExecutionProvider"])

        guarded("onnxruntime", load)
        counts = WRITER.operators(path)
    return {op: counts[op] for op in MOVING if op in counts}


PEERS: dict[str, Callable[[Model, Mapping[str, Array], int], Peer]] = {
    "onnxruntime": _onnxruntime,
    "openvino": _openvino,
    "torch": _torch,
    "inductor": _inductor,
}

_EXTRAS = {"torch": "torch", "inductor": "torch"}
"""What brings a peer, where it is not the extra ``bench``."""

_BY_NAME = frozenset(_EXTRAS)
"""Peers that know only some operators, or compile for minutes: they run where they are named."""


def installed() -> tuple[str, ...]:
    """Return the names of the peers that can be imported and take every model at once."""
    names = (name for name in PEERS if name not in _BY_NAME)
    return tuple(name for name in names if importlib.util.find_spec(name) is not None)


def check_peers(names: Sequence[str], known: Collection[str] | None = None) -> None:
    """Check that there are peers of these names, before any work is done for them.

    Args:
        names: what a user asked for.
        known: the names that there are; by default those of all peers.

    Raises:
        InputError: there is no peer of some name, or a name comes twice.
    """
    known = PEERS if known is None else known
    for name in names:
        if name not in known or names.count(name) > 1:
            raise InputError(
                describe(
                    "--vs", expected=f"some of {', '.join(known)}, each once", found=repr(name)
                )
            )


def open_peer(name: str, model: Model, inputs: Mapping[str, Array], threads: int) -> Peer:
    """Load a model into another runtime.

    Raises:
        KeyError: there is no peer of that name.
        DependencyError: it is not installed.
        ExecutionError: it cannot load the model.
    """
    return guarded(name, lambda: PEERS[name](model, inputs, threads))
