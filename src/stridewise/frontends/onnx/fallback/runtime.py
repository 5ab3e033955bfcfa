"""ONNX Runtime, which computes the nodes that Stridewise has no operator for.

This is the only module that imports ``onnxruntime``, at its first use. Sessions use the threads of
the model and do not spin: while they wait, the program's own threads compute.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from threading import Lock
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto, TypeProto

from stridewise.errors import (
    DependencyError,
    ExecutionError,
    ModelError,
    UnsupportedError,
)
from stridewise.graph import ForeignFunction, ForeignPart

__all__ = [
    "OnnxPart",
    "is_installed",
    "open_session",
    "parse_type",
    "require",
    "result_types",
    "run_model",
]

Array = NDArray[Any]
Session = Any
"""An ``onnxruntime.InferenceSession``; the package has incomplete types."""

_WHOLE = "the model in ONNX Runtime"
_INSTALL = "pip install 'stridewise[fallback]'"

_SESSIONS: WeakValueDictionary[tuple[bytes, int], Session] = WeakValueDictionary()
"""Sessions in use, by the hash of their model and their threads. Programs share them, as a session
has no state of its own."""
_LOCK = Lock()

_FATAL = 4
"""The log level of ONNX Runtime for fatal errors. All other errors are raised as exceptions."""
_NAMED = 5
"""Number of nodes that a message names; it counts the others."""

_CODES: dict[str, int] = {
    "float": TensorProto.FLOAT,
    "double": TensorProto.DOUBLE,
    **{
        name.lower(): code
        for name, code in TensorProto.DataType.items()
        if name not in ("UNDEFINED", "FLOAT", "DOUBLE")
    },
}
"""ONNX's numbers of element types by ONNX Runtime's names."""


def _load() -> Any:
    import onnxruntime  # noqa: PLC0415 (takes time to load, and may not be installed)

    return onnxruntime


def parse_type(text: str, shape: Sequence[int | None] | None = None) -> TypeProto:
    """Return a type from ONNX Runtime's text for it, without a value if it is unknown.

    Args:
        text: like ``tensor(float)``, ``seq(tensor(int64))`` or ``optional(tensor(string))``.
        shape: of a tensor; None for an unknown extent, or as a whole for an unknown rank.

    >>> parse_type("tensor(float)", (2, 3)).tensor_type.shape.dim[1].dim_value
    3
    >>> parse_type("seq(tensor(string))").sequence_type.elem_type.WhichOneof("value")
    'tensor_type'
    """
    kind, _, rest = text.partition("(")
    inner = rest.removesuffix(")")
    found = TypeProto()
    if kind == "tensor" and inner in _CODES:
        found.tensor_type.elem_type = _CODES[inner]
        if shape is not None:
            found.tensor_type.shape.SetInParent()
            for extent in shape:
                dim = found.tensor_type.shape.dim.add()
                if extent is not None:
                    dim.dim_value = extent
    elif kind == "seq":
        found.sequence_type.elem_type.CopyFrom(parse_type(inner))
    elif kind == "optional":
        found.optional_type.elem_type.CopyFrom(parse_type(inner))
    return found


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
    return DependencyError.at(
        where,
        expected="operators that Stridewise has, or ONNX Runtime for the others",
        found=f"no onnxruntime, and nodes that need it: {', '.join(named + more)}",
        fix=_INSTALL,
    )


def require(model: str, nodes: Sequence[tuple[str, str]]) -> None:
    """Check that ONNX Runtime is installed.

    Args:
        model: name of the model, for the message.
        nodes: names and operators of the nodes that need it.

    Raises:
        DependencyError: it is not installed; the message names the nodes.
    """
    if not is_installed():
        raise _absent(f"model {model!r}", nodes)


def _new_session(
    model: bytes | str, threads: int, where: str, optimized: Path | None = None
) -> Session:
    ort = _load()
    options = ort.SessionOptions()
    if optimized is not None:
        options.optimized_model_filepath = str(optimized)
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = _FATAL
    for pool in ("intra_op", "inter_op"):
        options.add_session_config_entry(f"session.{pool}.allow_spinning", "0")
    try:
        # Its own fallback would print a message about each model that it refuses.
        return ort.InferenceSession(
            model, options, providers=["CPUExecutionProvider"], enable_fallback=0
        )
    except Exception as error:  # the exceptions of ONNX Runtime have no other common base
        found = " ".join(str(error).split())
        raise ModelError.at(where, expected="nodes that ONNX Runtime takes", found=found) from error


def _run(session: Session, feeds: Mapping[str, Any], where: str) -> list[Any]:
    try:
        # NumPy turns arrays without axes into numbers, which ONNX Runtime does not take.
        given: dict[str, Any] = {
            name: np.array(feed) if np.isscalar(feed) else feed for name, feed in feeds.items()
        }
        return list(session.run(None, given))
    except Exception as error:  # as above
        raise _failed(where, error) from error


def _failed(where: str, error: Exception) -> ExecutionError:
    found = " ".join(str(error).split())
    return ExecutionError.at(where, expected="a run in ONNX Runtime", found=found)


def result_types(model: bytes, where: str) -> dict[str, TypeProto]:
    """Return the types of a small model's outputs; none if ONNX Runtime is not installed.

    Args:
        model: the serialized model.
        where: what the model is, for messages.

    Raises:
        UnsupportedError: ONNX Runtime refuses the model.
    """
    if not is_installed():
        return {}
    try:
        session = _new_session(model, 1, where)
    except ModelError as error:
        raise UnsupportedError(str(error)) from error
    found: dict[str, TypeProto] = {}
    for item in session.get_outputs():
        shape = [dim if isinstance(dim, int) else None for dim in item.shape]
        # ONNX Runtime gives [] for an unknown rank, too.
        found[item.name] = parse_type(item.type, shape or None)
    return found


def open_session(model: bytes | str, threads: int, optimized: Path | None = None) -> Session:
    """Return a session of a whole model.

    Args:
        model: its bytes, or the path of its file.
        threads: how many threads run it; idle ones do not spin.
        optimized: file for the graph that ONNX Runtime runs, with all its optimizations for this
            machine; None for none.

    Raises:
        DependencyError: ONNX Runtime is not installed.
        ModelError: it refuses the model.
    """
    if not is_installed():
        expected, found = "ONNX Runtime, to compare with", "no onnxruntime"
        raise DependencyError.at(_WHOLE, expected=expected, found=found, fix=_INSTALL)
    return _new_session(model, threads, _WHOLE, optimized)


def run_model(model: bytes | str, inputs: Mapping[str, Any], threads: int) -> dict[str, Any]:
    """Return the outputs of a whole model by name, computed by ONNX Runtime alone.

    Args:
        model: its bytes, or the path of its file.
        inputs: arrays by name.
        threads: how many threads run it.

    Raises:
        DependencyError: ONNX Runtime is not installed.
        ModelError: it refuses the model.
        ExecutionError: it fails.
    """
    session = open_session(model, threads)
    names = [item.name for item in session.get_outputs()]
    return dict(zip(names, _run(session, inputs, _WHOLE), strict=True))


class OnnxPart(ForeignPart):
    """A part of an ONNX model."""

    def __init__(self, model: bytes, nodes: Sequence[tuple[str, str]]) -> None:
        """Keep a serialized model.

        Args:
            model: the part as a model, with the constants that it reads.
            nodes: names and operators of its nodes, for messages.
        """
        self._model, self._nodes = model, tuple(nodes)
        self._hash = hashlib.sha256(model).digest()

    @property
    def runtime(self) -> str:
        """``"onnxruntime"``."""
        return "onnxruntime"

    @property
    def nbytes(self) -> int:
        """Bytes of the serialized model."""
        return len(self._model)

    @property
    def digest(self) -> str:
        """The first 16 hexadecimal digits of the SHA-256 of the serialized model."""
        return self._hash.hex()[:16]

    def prepare(self, threads: int, where: str) -> OnnxFunction:
        """Return the part with a session, which all users of this part and thread count share.

        Args:
            threads: how many threads the session has.
            where: the node or tail, for messages.

        Raises:
            DependencyError: ONNX Runtime is not installed.
            ModelError: it refuses the part.
        """
        if not is_installed():
            raise _absent(where, self._nodes)
        key = (self._hash, threads)
        with _LOCK:
            found = _SESSIONS.get(key)
            if found is None:
                found = _SESSIONS[key] = _new_session(self._model, threads, where)
        return OnnxFunction(found, where)


class OnnxFunction(ForeignFunction):
    """A session as a function of arrays in order."""

    def __init__(self, session: Session, where: str) -> None:
        """Wrap a session; ``where`` is the node or tail, for messages."""
        self._session, self._where = session, where
        self._inputs = [item.name for item in session.get_inputs()]
        self._outputs = [item.name for item in session.get_outputs()]

    def __call__(self, operands: Sequence[Any]) -> list[Any]:
        """Return the outputs as new objects.

        Raises:
            ExecutionError: ONNX Runtime fails.
        """
        return _run(self._session, dict(zip(self._inputs, operands, strict=True)), self._where)

    def write(self, operands: Sequence[Array | None], results: Sequence[Array]) -> None:
        """Compute the outputs in the given arrays.

        Raises:
            ExecutionError: ONNX Runtime fails, or gives other shapes than the graph says.
        """
        try:
            binding = self._session.io_binding()
            for name, operand in zip(self._inputs, operands, strict=True):
                assert operand is not None  # a part has no optional inputs
                _bind(binding.bind_input, name, operand)
            for name, result in zip(self._outputs, results, strict=True):
                _bind(binding.bind_output, name, result)
            self._session.run_with_iobinding(binding)
        except Exception as error:  # as above
            raise _failed(self._where, error) from error


def _bind(bind: Callable[..., None], name: str, array: Array) -> None:
    # NumPy has no bfloat16, so that ONNX Runtime takes ONNX's number of this type.
    is_bfloat16 = array.dtype.name == "bfloat16"
    dtype: Any = TensorProto.BFLOAT16 if is_bfloat16 else array.dtype.type
    bind(name, "cpu", 0, dtype, list(array.shape), array.ctypes.data)
