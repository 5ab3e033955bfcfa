"""Laws of the operators that move data, and what they say about indices that lead nowhere."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stridewise.errors import ExecutionError
from stridewise.graph import Attr, Node
from stridewise.ops import evaluate
from stridewise.ops.interpolation import COORDINATES, MODES, Interpolation

Array = np.ndarray[Any, np.dtype[Any]]


def run(op: str, *arrays: Array, **attrs: Attr) -> Array:
    inputs = tuple(f"x{index}" for index in range(len(arrays)))
    return evaluate(Node("n", op, inputs, ("y",), tuple(sorted(attrs.items()))), arrays)[0]


@given(st.data())
def test_what_was_scattered_is_gathered_again(data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=3)))
    axis = data.draw(st.integers(0, len(shape) - 1))
    rng = np.random.default_rng(data.draw(st.integers(0, 1000)))
    places = rng.permuted(np.indices(shape)[axis], axis=axis)
    places = np.where(rng.integers(0, 2, shape), places, places - shape[axis])
    updates = rng.integers(0, 100, shape)
    scattered = run("scatter_elements", np.zeros(shape, int), places, updates, axis=axis)
    np.testing.assert_array_equal(run("gather_elements", scattered, places, axis=axis), updates)


@given(st.integers(1, 4), st.sampled_from(["DCR", "CRD"]), st.integers(1, 3))
def test_pixels_become_channels_and_back(size: int, mode: str, channels: int) -> None:
    x = np.random.default_rng(0).integers(0, 100, (2, channels * size**2, 2, 3))
    wide = run("depth_to_space", x, block=size, mode=mode)
    np.testing.assert_array_equal(run("space_to_depth", wide, block=size, mode=mode), x)


@given(st.lists(st.integers(0, 3), min_size=1, max_size=8), st.data())
def test_the_greatest_elements_come_first(values: list[int], data: st.DataObject) -> None:
    k = data.draw(st.integers(0, len(values)))
    largest = data.draw(st.integers(0, 1))
    node = Node("n", "top_k", ("x",), ("v", "i"), (("axis", 0), ("k", k), ("largest", largest)))
    found, places = evaluate(node, [np.array(values, np.uint8)])
    expected = sorted(enumerate(values), key=lambda item: (-item[1] if largest else item[1], item))
    assert places.tolist() == [index for index, _ in expected[:k]]
    assert found.tolist() == [value for _, value in expected[:k]]


@settings(max_examples=200)
@given(
    st.integers(1, 9), st.integers(1, 9), st.sampled_from(MODES), st.sampled_from(COORDINATES),
    st.booleans(), st.booleans(),
)  # fmt: skip
def test_weights_of_a_resize_add_up_to_one(
    size: int, count: int, mode: str, coordinates: str, antialias: bool, exclude: bool
) -> None:
    antialias = antialias and mode != "nearest"
    how = Interpolation(
        size, count, mode, coordinates, antialias=antialias, exclude_outside=exclude
    )
    totals = how.matrix().sum(1)
    np.testing.assert_allclose(totals, np.where(how.outside(), 0, 1), atol=1e-9)


IMAGE = np.zeros((2, 3, 4, 5), np.float32)
ROI = np.zeros((1, 4), np.float32)


@pytest.mark.parametrize(
    ("op", "arrays", "attrs", "expected", "found"),
    [
        ("gather", [IMAGE, np.array([0, 3])], {"axis": 1}, "indices from -3 to 2", "3"),
        ("gather", [IMAGE, np.array(-5)], {"axis": 2}, "indices from -4 to 3", "-5"),
        ("gather_elements", [IMAGE, np.full(IMAGE.shape, 9)], {"axis": 1}, "from -3 to 2", "9"),
        ("gather_nd", [IMAGE, np.array([[0, 3]])], {}, "indices from -3 to 2", "3"),
        ("gather_nd", [IMAGE, np.array([[3], [0]])], {"batch_dims": 1}, "from -3 to 2", "3"),
        ("scatter_nd", [IMAGE, np.array([[2]]), IMAGE[:1]], {}, "indices from -2 to 1", "2"),
        ("scatter_elements", [IMAGE, np.full(IMAGE.shape, -3), IMAGE], {"axis": 0},
         "indices from -2 to 1", "-3"),
        ("reverse_sequence", [IMAGE, np.array([1, 2, 3])], {}, "lengths from 0 to 2", "[1, 2, 3]"),
        ("roi_align", [IMAGE, ROI, np.array([-1])], {"size": (1, 1)}, "images from 0 to 1", "-1"),
        ("roi_align", [IMAGE, ROI + np.inf, np.array([0])], {"size": (1, 1)}, "corners below",
         "inf"),
        ("max_roi_pool", [IMAGE, np.full((1, 5), 2, np.float32)], {"size": (1, 1)},
         "images from 0 to 1", "2"),
    ],
)  # fmt: skip
def test_indices_that_lead_nowhere_are_an_error_of_the_run(
    op: str, arrays: list[Array], attrs: dict[str, Attr], expected: str, found: str
) -> None:
    with pytest.raises(ExecutionError) as caught:
        run(op, *arrays, **attrs)
    message = str(caught.value)
    assert message.startswith(f"node 'n' ({op}): expected ")
    assert expected in message
    assert f"found {found}" in message


def test_places_of_a_grid_that_are_no_numbers_read_nothing() -> None:
    grid = np.full((2, 1, 1, 2), np.nan, np.float32)
    for mode in ("linear", "nearest", "cubic"):
        result = run("grid_sample", IMAGE + 1, grid, mode=mode)
        assert np.isnan(result).all() or (result == 0).all()


def test_regions_of_any_size_take_memory_of_the_image_only() -> None:
    rois = np.array([[-1e9, -1e9, 1e9, 1e9]], np.float32)
    for mode in ("avg", "max"):
        result = run("roi_align", IMAGE + 1, rois, np.array([0]), size=(2, 2), mode=mode)
        assert np.isfinite(result).all()


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_long_axes_are_resized_tap_by_tap(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.random.default_rng(0).normal(size=(2, 3, 40)).astype(np.float32)
    smooth = int(mode != "nearest")
    attrs: dict[str, Attr] = {"mode": mode, "shape": (2, 3, 27), "antialias": smooth}
    node = Node("r", "resize", ("x",), ("y",), tuple(attrs.items()))
    (wanted,) = evaluate(node, (x,))
    monkeypatch.setattr("stridewise.ops.resize.MOST_ENTRIES", 0)
    (found,) = evaluate(node, (x,))
    np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-6)
