"""ONNX's own tests of single operators, as far as the operators are ours."""

from __future__ import annotations

import warnings
from functools import cache
from importlib import import_module
from itertools import product

import numpy as np
import pytest
from onnx.backend.test.case import node as onnx_tests
from onnx.backend.test.case.test_case import TestCase

import stridewise as sw

from .models import F32, relative_error
from .onnx_nodes import make, node

MODULES = {"ConvTranspose": "convtranspose", "Resize": "resize", "Upsample": "upsample"}
"""The operators, and the modules of ONNX that have their tests."""


@cache
def cases() -> dict[str, TestCase]:
    """The tests of :data:`MODULES` by name, without those of functions that are written out."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in MODULES.values():
            # The tests register themselves; collecting them all would take seconds.
            import_module(f"onnx.backend.test.case.node.{name}")
    return {
        case.name: case
        for case in onnx_tests._NodeTestCases
        if case.model is not None and {n.op_type for n in case.model.graph.node} <= set(MODULES)
    }


@pytest.mark.parametrize("name", cases())
def test_what_onnx_expects_is_what_we_compute(name):
    case = cases()[name]
    constants = [item.name for item in case.model.graph.initializer]
    inputs = [item.name for item in case.model.graph.input if item.name not in constants]
    model = sw.compile(case.model, tune="model", threads=2)
    for feeds, outputs in case.data_sets:
        found = model.run(dict(zip(inputs, feeds, strict=True)))
        for array, wanted in zip(found.values(), outputs, strict=True):
            np.testing.assert_allclose(array, wanted, rtol=case.rtol, atol=case.atol)


def test_output_padding_beyond_the_stride():
    """Neither ONNX Runtime nor ONNX's reference takes it, though the formula allows it."""
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=(2, 3, 4, 5)).astype(F32), rng.normal(size=(3, 4, 3, 2)).astype(F32)
    attrs = {"dilations": [2, 3], "output_padding": [1, 5], "strides": [1, 2], "pads": [1, 0, 0, 2]}
    proto = make(
        node("ConvTranspose", "x", "w", group=1, **attrs), shape=x.shape, constants={"w": w}
    )
    # (size - 1) * stride + dilation * (window - 1) + 1 + output_padding
    whole = np.zeros((2, 4, 4 - 1 + 2 * 2 + 1 + 1, (5 - 1) * 2 + 3 + 1 + 5), F32)
    for i, j, r, s in product(range(4), range(5), range(3), range(2)):
        whole[:, :, i + 2 * r, 2 * j + 3 * s] += x[:, :, i, j] @ w[:, :, r, s]
    found = sw.compile(proto, tune="model", threads=2)(x)
    assert relative_error(found, whole[:, :, 1:, :-2]) < 1e-5
