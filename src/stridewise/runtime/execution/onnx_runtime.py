"""Foreign nodes in ONNX Runtime: clusters as host steps of a program, and the tail behind it.

The only module that knows another runtime for inference. It is imported when a model first needs
it. Sessions use the threads of the model and do not spin: while they wait, the program's own
threads compute.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from threading import Lock
from typing import Any, cast
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from stridewise.errors import (
    DependencyError,
    ExecutionError,
    InputError,
    ModelError,
    PlanError,
    UnsupportedError,
    describe,
)
from stridewise.graph import Graph, Node, ResultType, Tail
from stridewise.ops.fallback import OP, RUNNER
from stridewise.ops.geometry import user_format
from stridewise.planning import Plan
from stridewise.runtime.binding.fallback_steps import HOST_FUNCTIONS, HostFunction

__all__ = [
    "INSTALL",
    "ClusterFunction",
    "OnnxRuntime",
    "TailRun",
    "is_installed",
    "open_session",
    "run_model",
]

Array = NDArray[Any]
Session = Any
"""An ``onnxruntime.InferenceSession``; the package has types with holes."""

INSTALL = "pip install 'stridewise[fallback]'"

_SESSIONS: WeakValueDictionary[tuple[bytes, int], Session] = WeakValueDictionary()
"""Sessions in use, by the digest of their model and their threads: plans of one graph share them,
as a session has no state of its own."""
_LOCK = Lock()

_QUIET = 4
"""Severity of ONNX Runtime's log: fatal errors only. Other errors are exceptions."""
_NAMED = 5
"""Number of nodes that a message names; further ones are counted."""


def _load() -> Any:
    import onnxruntime  # noqa: PLC0415 (takes time to load, and may not be there)

    return onnxruntime


def is_installed() -> bool:
    """Return whether ONNX Runtime can be imported."""
    try:
        _load()
    except ImportError:
        return False
    return True


def _absent(where: str, nodes: Sequence[tuple[str, str]]) -> DependencyError:
    """Return the error for nodes, by name and operator, that nothing can run."""
    named = [f"{name!r} ({what})" for name, what in nodes[:_NAMED]]
    more = [f"{len(nodes) - _NAMED} more"] if len(nodes) > _NAMED else []
    return DependencyError(
        describe(
            where,
            expected="operators that Stridewise has, or ONNX Runtime for the others",
            found=f"no onnxruntime, and nodes that need it: {', '.join(named + more)}",
            fix=INSTALL,
        )
    )


def _session(model: bytes, threads: int, where: str, nodes: Sequence[tuple[str, str]]) -> Session:
    """Return a session of a model.

    Raises:
        DependencyError: ONNX Runtime is not installed.
        ModelError: it refuses the model.
    """
    try:
        ort = _load()
    except ImportError as error:
        raise _absent(where, nodes) from error
    key = (hashlib.sha256(model).digest(), threads)
    with _LOCK:
        found = _SESSIONS.get(key)
        if found is None:
            found = _SESSIONS[key] = _new_session(ort, model, threads, where)
        return found


def _new_session(
    ort: Any, model: bytes | str | Path, threads: int, where: str, optimized: Path | None = None
) -> Session:
    options = ort.SessionOptions()
    if optimized is not None:
        options.optimized_model_filepath = str(optimized)
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = _QUIET
    for pool in ("intra_op", "inter_op"):
        options.add_session_config_entry(f"session.{pool}.allow_spinning", "0")
    try:
        # Its own fallback prints a message about a model that it refuses.
        return ort.InferenceSession(
            model, options, providers=["CPUExecutionProvider"], enable_fallback=0
        )
    except Exception as error:  # its exceptions have no common base but this
        found = " ".join(str(error).split())
        raise ModelError(
            describe(where, expected="nodes that ONNX Runtime takes", found=found)
        ) from error


class OnnxRuntime:
    """ONNX Runtime as the ``ForeignRuntime`` of ``frontends/onnx/fallback/foreign.py``.

    Args:
        lenient: to look at a model only: nothing is required, and what ONNX Runtime refuses has no
            type instead of raising.
    """

    def __init__(self, *, lenient: bool = False) -> None:
        """Remember whether it will be needed."""
        self._lenient = lenient

    def require(self, model: str, foreign: Sequence[tuple[str, str]]) -> None:
        """Check that ONNX Runtime is there for nodes, by name and operator.

        Raises:
            DependencyError: it is not; the message names the nodes that need it.
        """
        if not self._lenient and not is_installed():
            raise _absent(f"model {model!r}", foreign)

    def result_types(self, model: bytes, where: str) -> Mapping[str, ResultType]:
        """Return the types of a small model's outputs; none where ONNX Runtime is not there.

        Raises:
            UnsupportedError: ONNX Runtime refuses the model.
        """
        try:
            session = _session(model, 1, where, ())
        except DependencyError:
            return {}
        except ModelError as error:
            if self._lenient:
                return {}
            raise UnsupportedError(str(error)) from error
        found: dict[str, ResultType] = {}
        for item in session.get_outputs():
            shape = [dim if isinstance(dim, int) else None for dim in item.shape]
            # It says [] where it knows no rank, too.
            found[item.name] = ResultType(item.type, shape or None)
        return found


def _run(session: Session, feeds: Mapping[str, Any], where: str) -> list[Any]:
    try:
        return list(session.run(None, dict(feeds)))
    except Exception as error:  # its exceptions have no common base but this
        raise _failed(where, error) from error


_WHOLE = "the model in ONNX Runtime"


def open_session(model: bytes | str | Path, threads: int, optimized: Path | None = None) -> Session:
    """Return a session of a whole model.

    Args:
        model: its bytes, or the path of its file.
        threads: how many run it; idle ones do not spin.
        optimized: where ONNX Runtime writes the graph that it runs, with all its optimizations for
            this machine; None for nowhere.

    Raises:
        DependencyError: ONNX Runtime is not installed.
        ModelError: it refuses the model.
    """
    if not is_installed():
        expected, found = "ONNX Runtime, to compare with", "no onnxruntime"
        raise DependencyError(describe(_WHOLE, expected=expected, found=found, fix=INSTALL))
    return _new_session(_load(), model, threads, _WHOLE, optimized)


def run_model(model: bytes | str, inputs: Mapping[str, Any], threads: int) -> dict[str, Any]:
    """Return the outputs of a whole model by name, computed by ONNX Runtime alone.

    Args:
        model: its bytes, or the path of its file.
        inputs: arrays by name.
        threads: how many run it.

    Raises:
        DependencyError: ONNX Runtime is not installed.
        ModelError: it refuses the model.
        ExecutionError: it fails.
    """
    session = open_session(model, threads)
    names = [item.name for item in session.get_outputs()]
    return dict(zip(names, _run(session, inputs, _WHOLE), strict=True))


def _failed(where: str, error: Exception) -> ExecutionError:
    found = " ".join(str(error).split())
    return ExecutionError(describe(where, expected="a run in ONNX Runtime", found=found))


class ClusterFunction:
    """A cluster as a host step: its inputs are read, and its outputs written, where they are."""

    def __init__(self, node: Node, model: Array, threads: int) -> None:
        """Create a session.

        Raises:
            DependencyError: ONNX Runtime is not installed.
            ModelError: it refuses the cluster.
        """
        self._where = f"node {node.name!r} ({node.op})"
        nodes = _texts(node, "nodes"), _texts(node, "operators")
        pairs = list(zip(*nodes, strict=False))
        self._session = _session(model.tobytes(), threads, self._where, pairs)
        self._inputs = [item.name for item in self._session.get_inputs()]
        self._outputs = [item.name for item in self._session.get_outputs()]

    def __call__(self, operands: Sequence[Array | None]) -> Sequence[Array]:
        """Compute the outputs as new arrays; the last operand is the model."""
        feeds = dict(zip(self._inputs, operands[:-1], strict=True))
        return _run(self._session, feeds, self._where)

    def write(self, operands: Sequence[Array | None], results: Sequence[Array]) -> None:
        """Compute the outputs in arrays that are there.

        Raises:
            ExecutionError: ONNX Runtime fails, or gives other shapes than the graph says.
        """
        try:
            binding = self._session.io_binding()
            for name, operand in zip(self._inputs, operands[:-1], strict=True):
                _bind(binding.bind_input, name, _present(operand))
            for name, result in zip(self._outputs, results, strict=True):
                _bind(binding.bind_output, name, result)
            self._session.run_with_iobinding(binding)
        except Exception as error:  # its exceptions have no common base but this
            raise _failed(self._where, error) from error


def _present(operand: Array | None) -> Array:
    assert operand is not None  # a cluster has no optional inputs
    return operand


_BFLOAT16 = 16
"""ONNX's number of the one element type of ours that NumPy lacks."""


def _bind(bind: Callable[..., None], name: str, array: Array) -> None:
    dtype: Any = _BFLOAT16 if array.dtype.name == "bfloat16" else array.dtype.type
    bind(name, "cpu", 0, dtype, list(array.shape), array.ctypes.data)


def _texts(node: Node, key: str) -> tuple[str, ...]:
    found = node.get(key)
    return tuple(map(str, found)) if isinstance(found, tuple) else ()


def _cluster(node: Node, graph: Graph, threads: int) -> HostFunction:
    return ClusterFunction(node, graph.constants[node.inputs[-1]].array, threads)


HOST_FUNCTIONS[OP] = _cluster


def _run_once(model: Array, inputs: Sequence[Array], where: str) -> list[Array]:
    """Run a cluster without keeping its session; for the reference executor."""
    session = _session(model.tobytes(), 1, where, ())
    names = [item.name for item in session.get_inputs()]
    return _run(session, dict(zip(names, inputs, strict=True)), where)


RUNNER.run_with(_run_once)


class TailRun:
    """The tail of a graph, ready to run after its program."""

    def __init__(self, graph: Graph, tail: Tail, threads: int) -> None:
        """Create a session.

        Raises:
            DependencyError: ONNX Runtime is not installed.
            ModelError: it refuses the tail.
        """
        self._where = f"model {graph.name!r}, the nodes behind the program"
        self._tail = tail
        self._graph = graph.name
        self._tensors = frozenset(graph.inputs)
        self._session = None
        if tail.nodes:
            pairs = list(zip(tail.nodes, tail.operators, strict=True))
            content = tail.model.array.tobytes()
            self._session = _session(content, threads, self._where, pairs)

    @classmethod
    def of(cls, plan: Plan) -> TailRun | None:
        """Return the tail of a plan's graph, None where there is none.

        Raises:
            DependencyError: ONNX Runtime is not installed.
            ModelError: it refuses the tail.
            PlanError: the plan stores a tensor that the tail reads in a format of our own.
        """
        tail = plan.graph.tail
        if tail is None:
            return None
        for name in tail.inputs:
            formats = plan.input_formats if name in plan.input_formats else plan.output_formats
            value = plan.graph.values.get(name)
            if value is not None and name in formats and formats[name] != user_format(value):
                raise PlanError(
                    describe(
                        f"value {name!r}",
                        expected=f"format {user_format(value)}, in which ONNX Runtime reads it",
                        found=str(formats[name]),
                        fix="leave it out of input_formats and output_formats",
                    )
                )
        return cls(plan.graph, tail, plan.machine.threads)

    def tensors(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the inputs of the program among those of a call.

        Raises:
            InputError: one is missing, or none of the model.
        """
        if set(given) != set(self._tail.arguments):
            raise InputError(
                describe(
                    f"model {self._graph!r}",
                    expected=f"inputs {', '.join(self._tail.arguments)}",
                    found=", ".join(given) or "none",
                )
            )
        return {name: item for name, item in given.items() if name in self._tensors}

    def named(self, given: Sequence[Any]) -> dict[str, Any]:
        """Return the inputs of a call by name.

        Raises:
            InputError: there are more or fewer than the model has.
        """
        if len(given) != len(self._tail.arguments):
            raise InputError(
                describe(
                    f"model {self._graph!r}",
                    expected=f"{len(self._tail.arguments)} inputs "
                    f"({', '.join(self._tail.arguments)})",
                    found=f"{len(given)}",
                )
            )
        return dict(zip(self._tail.arguments, given, strict=True))

    def results(self, given: Mapping[str, Any], computed: Mapping[str, Any]) -> dict[str, Any]:
        """Return the outputs of a call by name, in order.

        Args:
            given: inputs of the call.
            computed: outputs of the program.

        Raises:
            ExecutionError: ONNX Runtime fails.
        """
        known = {**given, **computed}
        if self._session is not None:
            feeds = {name: _fed(known[name]) for name in self._tail.inputs}
            known |= dict(
                zip(self._tail.outputs, _run(self._session, feeds, self._where), strict=True)
            )
        return {name: known[name] for name in self._tail.results}


def _fed(item: Any) -> Any:
    """Return an input as ONNX Runtime takes it."""
    if isinstance(item, np.ndarray) or not hasattr(item, "__dlpack__"):
        return cast("Any", item)
    return np.from_dlpack(item)
