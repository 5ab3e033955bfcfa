"""ONNX's Slice with any bounds, and steps in both directions, against ONNX Runtime."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from tests.integration.models import run_onnxruntime
from tests.integration.onnx_nodes import make, node

import stridewise as sw

I64 = np.iinfo(np.int64)
_FAR = (-(2**31), I64.min)
_EXTENTS = (5, 1, 4)


@st.composite
def _bounds(draw: st.DrawFn, extent: int) -> tuple[int, int, int]:
    near = st.integers(-extent - 2, extent + 2)
    step = draw(st.sampled_from((1, 2, 7, -1, -2, -7)))
    # ONNX Runtime takes a greatest number as the end of a slice backward, ONNX as the last element.
    ends = near | st.sampled_from((2**31 - 1, I64.max) if step > 0 else _FAR)
    return draw(near | st.sampled_from(_FAR)), draw(ends), step


@given(st.data())
def test_bounds_are_clamped_as_onnx_says(data: st.DataObject) -> None:
    axes = data.draw(st.lists(st.integers(-3, 2), unique_by=lambda axis: axis % 3, min_size=1))
    found = [data.draw(_bounds(_EXTENTS[axis])) for axis in axes]
    starts, ends, steps = (np.array(part, np.int64) for part in zip(*found, strict=True))
    model = make(
        node("Slice", "x", "starts", "ends", "axes", "steps"),
        shape=_EXTENTS,
        constants={"starts": starts, "ends": ends, "axes": axes, "steps": steps},
    )
    x = np.arange(20, dtype=np.float32).reshape(_EXTENTS)
    expected = run_onnxruntime(model, {"x": x}, joins=False)["y"]
    compiled = sw.compile(model, tune="model", fallback=False)
    np.testing.assert_array_equal(compiled.run({"x": x})["y"], expected)
