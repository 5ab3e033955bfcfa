"""ONNX's own tests of single operators, for the operators of Stridewise."""

from __future__ import annotations

import warnings
from functools import cache
from importlib import import_module
from itertools import product

import numpy as np
import pytest
from onnx import ModelProto, numpy_helper
from onnx.backend.test.case import node as onnx_tests
from onnx.backend.test.case.test_case import TestCase

import stridewise as sw

from .models import F32, relative_error, run_onnxruntime
from .onnx_nodes import make, node

MODULES = {"ConvTranspose": "convtranspose", "Resize": "resize", "Upsample": "upsample"}
"""The operators, and the modules of ONNX that have their tests."""


UNROUNDED = tuple(
    f"test_resize_downsample_scales_{mode}_align_corners" for mode in ("linear", "cubic")
)
"""Corners of an image with an unrounded extent; ONNX Runtime, PyTorch and Stridewise round it."""


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


def frozen(case: TestCase) -> tuple[ModelProto, dict[str, np.ndarray], np.ndarray]:
    """Return the model with scales and sizes as constants, its inputs, and what it should give."""
    (feeds, (wanted,)) = case.data_sets[0]
    model = ModelProto()
    model.CopyFrom(case.model)
    arrays = dict(zip((item.name for item in model.graph.input), feeds, strict=True))
    for name in ("scales", "sizes", "roi"):
        if name in arrays:
            model.graph.initializer.append(numpy_helper.from_array(arrays.pop(name), name))
    return model, arrays, wanted


@pytest.mark.parametrize("name", cases())
def test_what_onnx_expects_is_what_we_compute(name):
    case = cases()[name]
    proto, feeds, wanted = frozen(case)
    (found,) = sw.compile(proto, tune="model", threads=2).run(feeds).values()
    if name in UNROUNDED:
        (wanted,) = run_onnxruntime(proto, feeds).values()
    np.testing.assert_allclose(found, wanted, rtol=case.rtol, atol=case.atol)


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
