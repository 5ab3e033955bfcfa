"""Element types: every spelling, and bfloat16, which NumPy lacks."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import stridewise as sw
from stridewise.dtypes import DTYPES, DType, dtype_of
from stridewise.graph import Constant, from_text, to_text


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=str)
def test_every_spelling_means_the_same(dtype: DType):
    assert dtype_of(dtype.name) is dtype
    assert dtype_of(dtype.short) is dtype
    assert dtype_of(dtype) is dtype
    assert dtype_of(dtype.numpy) is dtype
    assert dtype_of(dtype.numpy.type) is dtype
    assert dtype.numpy.itemsize == dtype.itemsize


def test_bfloat16_is_that_of_ml_dtypes():
    found = dtype_of("bf16")
    assert (found.name, found.itemsize) == ("bfloat16", 2)
    assert found.numpy == ml_dtypes.bfloat16
    assert dtype_of(np.zeros(3, ml_dtypes.bfloat16).dtype) is found


def test_ml_dtypes_is_not_loaded_before_it_is_needed():
    code = (
        "import sys, stridewise.dtypes as d; d.dtype_of('f32').numpy; d.dtype_of('bf16'); "
        "assert 'ml_dtypes' not in sys.modules; d.dtype_of('bf16').numpy"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_constants_of_bfloat16_keep_their_bits():
    bits = np.array([0x3F80, 0x8000, 0x7FC1, 0xFF80], np.uint16)  # 1, -0, a NaN, -inf
    constant = Constant(bits.view(ml_dtypes.bfloat16))
    assert constant.dtype.short == "bf16"
    b = sw.GraphBuilder("g")
    graph = b.build([b.op("add", [b.input("x", (4,), "bf16"), b.constant(constant.array)])])
    text = to_text(graph)
    assert f"sha {constant.digest}" in text
    assert from_text(text, graph.constants) == graph


def test_an_unknown_dtype_is_refused():
    with pytest.raises(
        sw.ModelError, match=r"^dtype: expected one of float64, .*, found complex64"
    ):
        dtype_of("complex64")


@pytest.mark.parametrize("given", [None, 5, object])
def test_what_is_no_dtype_is_refused(given: Any):
    with pytest.raises(sw.DTypeError, match="expected one of float64"):
        dtype_of(given)
