"""ONNX's own backend tests, without and with the fallback, and with ONNX Runtime alone.

``python -m tests.conformance --update`` rewrites what is compared with here.
"""

from __future__ import annotations

from functools import cache

import onnx
import onnxruntime
import pytest
from onnx.backend import base

from .reasons import KNOWN
from .results import PATH, collect, read, render, unexplained
from .suite import Fallback, Native, OnnxRuntime, Outcome, run

_VERSIONS = {"onnx": onnx.__version__, "onnxruntime": onnxruntime.__version__}


@cache
def outcomes(backend: type[base.Backend]) -> dict[str, Outcome]:
    return run(backend, native=outcomes(Native) if backend is Fallback else {})


def passing(backend: type[base.Backend]) -> set[str]:
    return {name for name, item in outcomes(backend).items() if not item.error}


def test_conformance():
    """Compare all outcomes in one test: the processes of a parallel run would repeat them."""
    assert unexplained(outcomes(Native).values()) == {}
    native = passing(Native)
    others = run(OnnxRuntime, outcomes(Native).keys() - native)
    wanted = native | {name for name, item in others.items() if not item.error}
    missing = wanted - passing(Fallback) - set(KNOWN)
    assert {name: outcomes(Fallback)[name].error for name in missing} == {}
    if dict(read().versions) != _VERSIONS:
        pytest.skip("the numbers are those of other versions; python -m tests.conformance --update")
    found = render(collect(outcomes(Native), outcomes(Fallback)))
    assert found == PATH.read_text(encoding="utf-8"), "run python -m tests.conformance --update"
