"""ONNX's own backend tests, run as its runner runs them, and what became of each.

Tests are named as ONNX names them, without the device. Those that would download a model are no
part of the suite; the light models lie in the ``onnx`` package.
"""

from __future__ import annotations

import os
import tempfile
import warnings
from collections.abc import Callable, Container, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Any, ClassVar
from unittest import mock
from unittest.case import SkipTest

import numpy as np
import onnxruntime
from onnx import ModelProto
from onnx.backend import base
from onnx.backend.test.runner import Runner

from stridewise.errors import StridewiseError
from stridewise.frontends.registry import open_model
from stridewise.onnx_backend import Backend, BackendRep

__all__ = ["Fallback", "Native", "OnnxRuntime", "Outcome", "run"]

_DEVICE = "_cpu"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a test.

    Attributes:
        name: of the test.
        model: what it runs.
        error: why it failed, on one line; ``""`` where it passed.
        ops: the operators of Stridewise that the test was imported to, if it passed.
    """

    name: str
    model: ModelProto
    error: str
    ops: frozenset[str] = frozenset()


class Native(Backend):
    """Stridewise by itself."""

    options: ClassVar[Mapping[str, Any]] = MappingProxyType(
        {"tune": "model", "threads": 2, "fallback": False}
    )

    @classmethod
    def is_compatible(cls, model: ModelProto, device: str = "CPU", **kwargs: Any) -> bool:
        """Return True: what does not compile is no success."""
        del model, device, kwargs
        return True


class Fallback(Native):
    """Stridewise with ONNX Runtime for what it does not do itself."""

    options: ClassVar[Mapping[str, Any]] = MappingProxyType({**Native.options, "fallback": True})


class _Session(base.BackendRep):
    def __init__(self, model: ModelProto) -> None:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        options.intra_op_num_threads = 1  # a pool of threads would spin between runs
        self._session = onnxruntime.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        del kwargs
        names = [item.name for item in self._session.get_inputs()]
        # ONNX gives scalars as those of NumPy, which the session refuses.
        given = [np.asarray(item) if np.isscalar(item) else item for item in inputs]
        return tuple(self._session.run(None, dict(zip(names, given, strict=True))))


class OnnxRuntime(base.Backend):
    """ONNX Runtime by itself."""

    @classmethod
    def prepare(cls, model: ModelProto, device: str = "CPU", **kwargs: Any) -> base.BackendRep:
        """Load a model."""
        del device, kwargs
        return _Session(model)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Return whether it is the CPU."""
        return device == "CPU"


_NOTHING: Mapping[str, Outcome] = MappingProxyType({})


@contextmanager
def _quiet() -> Generator[None]:
    """Silence all warnings except those of Stridewise, which are errors.

    ONNX makes its tests while they are collected, with overflows and divisions by zero.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.filterwarnings("error", module=r"stridewise\.")
        yield


class _Chosen(base.Backend):
    """The backend that :func:`run` runs: making the tests takes seconds, so it is done once."""

    backend: ClassVar[type[base.Backend]] = base.Backend
    models: ClassVar[list[ModelProto]] = []
    ready: ClassVar[list[base.BackendRep]] = []

    @classmethod
    def prepare(cls, model: ModelProto, device: str = "CPU", **kwargs: Any) -> base.BackendRep:
        """Load a model."""
        cls.models.append(model)
        cls.ready.append(cls.backend.prepare(model, device, **kwargs))
        return cls.ready[-1]

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Return whether it is the CPU."""
        return device == "CPU"


@cache
def _tests() -> Mapping[str, Callable[[], None]]:
    """The tests of ONNX by name."""
    with _quiet():
        classes = Runner(_Chosen).test_cases.values()
    return {
        method.removesuffix(_DEVICE): getattr(case(method), method)
        for case in classes
        for method in vars(case)
        if method.startswith("test_") and method.endswith(_DEVICE)
    }


def run(
    backend: type[base.Backend],
    only: Container[str] | None = None,
    native: Mapping[str, Outcome] = _NOTHING,
) -> dict[str, Outcome]:
    """Run tests and return what became of each, by name.

    Args:
        backend: what runs them.
        only: names of tests; None for the whole suite.
        native: outcomes of :class:`Native`, for :class:`Fallback`. Tests that pass there are not
            run again if the fallback changes nothing about their models.
    """
    models, ready = _Chosen.models, _Chosen.ready
    found: dict[str, Outcome] = {}
    with (
        tempfile.TemporaryDirectory() as folder,
        mock.patch.dict(os.environ, ONNX_MODELS=folder),
        mock.patch.object(_Chosen, "backend", backend),
        _quiet(),
    ):
        for name, test in _tests().items():
            if only is not None and name not in only:
                continue
            if name in native and not native[name].error and _is_native(native[name].model):
                found[name] = native[name]
                continue
            error = _error_of(test)
            found[name] = Outcome(name, models.pop(), error, _ops(ready) if not error else _NONE)
            ready.clear()
    return found


_NONE = frozenset[str]()


def _is_native(model: ModelProto) -> bool:
    """Return whether a model is imported to the same graph with and without the fallback.

    Compiling a model of fixed shapes depends on the option in nothing else.
    """
    try:
        readers = [open_model(model, fallback=fallback) for fallback in (False, True)]
        without, within = (reader.graph() for reader in readers)
    except StridewiseError:
        return False
    return all(reader.signature.is_fixed for reader in readers) and without == within


def _ops(ready: Sequence[base.BackendRep]) -> frozenset[str]:
    graphs = [rep.model.plan.graph for rep in ready if isinstance(rep, BackendRep)]
    return frozenset(node.op for graph in graphs for node in graph.nodes)


def _error_of(test: Callable[[], None]) -> str:
    try:
        test()
    except SkipTest as error:
        raise AssertionError(f"a test of ONNX is skipped: {error}") from error
    except Exception as error:  # any failure is an outcome
        text = " ".join(str(error).split())
        return f"{type(error).__name__}: {text}"
    return ""
