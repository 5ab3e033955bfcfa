"""Images at the places of a grid: the native kernel against the definition."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import stridewise as sw
from stridewise.ops.grid_sample import BORDERS, GRID_MODES
from stridewise.program import KernelStep
from stridewise.runtime.binding.library import load_core
from stridewise.runtime.simulation.reference import run_reference

from .core_cases import INPUTS, OUTPUTS

Array = np.ndarray[Any, np.dtype[np.float32]]


def sampled(x: Array, grid: Array, **attrs: Any) -> tuple[Array, Array]:
    """Return what a model computes by the kernel, and what the definition says."""
    b = sw.GraphBuilder("samples")
    y = b.op("grid_sample", [b.input("x", x.shape), b.input("grid", grid.shape)], attrs)
    graph, given = b.build([y]), {"x": x, "grid": grid}
    model = sw.compile(graph, tune="model", threads=2)
    steps = [step for step in model.program.steps if isinstance(step, KernelStep)]
    assert "grid_sample" in [step.spec.kind for step in steps]
    return model.run(given)[y], run_reference(graph, given)[y]


@given(st.data())
def test_any_image_at_any_place(data):
    axes = data.draw(st.integers(1, 3))
    sizes = st.lists(st.integers(1, 9), min_size=axes, max_size=axes)
    batch, channels = data.draw(st.integers(1, 2)), data.draw(st.integers(1, 40))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    x = rng.standard_normal((batch, channels, *data.draw(sizes))).astype(np.float32)
    grid = rng.uniform(-2, 2, (batch, *data.draw(sizes), axes)).astype(np.float32)
    special = np.array([0, 1, -1, 1e20, np.inf, -np.inf, np.nan], np.float32)
    places = rng.random(grid.shape) < 0.1
    grid[places] = rng.choice(special, places.sum())
    found, expected = sampled(
        x,
        grid,
        mode=data.draw(st.sampled_from(GRID_MODES)),
        border=data.draw(st.sampled_from(BORDERS)),
        align_corners=data.draw(st.integers(0, 1)),
    )
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("mode", GRID_MODES)
def test_pixels_outside_count_as_zero_whatever_is_at_the_edge(mode):
    x = np.full((1, 3, 2, 2), np.inf, np.float32)
    x[..., 1] = 1
    grid = np.array([[[[0.5, 3.0], [9.0, 0.0], [1.4, 0.1]]]], np.float32)
    found, expected = sampled(x, grid, mode=mode)
    np.testing.assert_array_equal(found[..., :2], 0)
    if mode != "cubic":  # which reads the infinite pixels as well
        assert np.isfinite(found).all()
    np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("tag", ["plain", "last", 8, 16])
def test_all_formats_agree(tag, threads):
    core, rng = load_core(), np.random.default_rng(0)
    dims, size = (2, 16, 5, 6), (2, 16, 7, 9)
    name = {"plain": "abcd", "last": "acdb"}.get(tag, f"aBcd{tag}b")
    x = rng.standard_normal(dims).astype(np.float32)
    grid = rng.uniform(-1.2, 1.2, (2, 7, 9, 2)).astype(np.float32)
    wanted, _ = sampled(x, grid, mode="linear")

    source, result = (core.MemoryDesc(extents, "f32", name) for extents in (dims, size))
    places = core.MemoryDesc(grid.shape, "f32", "abcd")
    kernel = core.GridSample("linear", "zeros", False, source, places, result, threads=threads)
    program = core.Program(0, [], [x.nbytes, grid.nbytes], [result.nbytes], threads)
    args = [
        (core.ARG_SRC, source, INPUTS, 0, 0),
        (core.ARG_WEIGHTS, places, INPUTS, 1, 0),
        (core.ARG_DST, result, OUTPUTS, 0, 0),
    ]
    program.add_primitive(kernel, args)
    program.freeze()
    block = {"plain": 1, "last": 16}.get(tag, tag)
    stored = np.ascontiguousarray(x.reshape(2, -1, block, 5, 6).transpose(0, 1, 3, 4, 2))
    y = np.full((2, 16 // block, 7, 9, block), np.nan, np.float32)
    flat = [array.reshape(-1).view(np.uint8) for array in (stored, grid, y)]
    program.run(flat[:2], flat[2:])
    np.testing.assert_allclose(y.transpose(0, 1, 4, 2, 3).reshape(size), wanted, rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"mode": "area"}, "expected linear, nearest or cubic"),
        ({"border": "wrap"}, "expected zeros, border or reflection"),
        ({"src": ((2, 3, 4, 4), "f32", "abcd")}, "the same batch and channels"),
        ({"src": ((1, 3, 4, 4), "f32", "abdc")}, "in one format"),
        ({"dst": ((1, 3, 5, 5), "f32", "acdb")}, "in one format"),
        ({"grid": ((1, 5, 5, 3), "f32", "abcd")}, "a dense grid"),
        ({"grid": ((1, 5, 5, 2), "f32", "abdc")}, "a dense grid"),
        ({"src": ((1, 3), "f32", "ab")}, "images of one to three axes"),
    ],
)
def test_the_core_refuses_what_it_cannot_read(changes, message):
    core = load_core()
    usual: dict[str, Any] = {
        "mode": "linear",
        "border": "zeros",
        "src": ((1, 3, 4, 4), "f32", "abcd"),
        "grid": ((1, 5, 5, 2), "f32", "abcd"),
        "dst": ((1, 3, 5, 5), "f32", "abcd"),
    }
    given = usual | changes
    tensors = [core.MemoryDesc(*given[role]) for role in ("src", "grid", "dst")]
    with pytest.raises(ValueError, match=message):
        core.GridSample(given["mode"], given["border"], False, *tensors, threads=1)
