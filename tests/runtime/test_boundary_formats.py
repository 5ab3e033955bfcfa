"""Models that take and give tensors in the formats that their caller prefers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import stridewise as sw
from stridewise.runtime.reference import run_reference

from .graphs import THREADS, Net, error, inputs_of

Array = np.ndarray[Any, np.dtype[Any]]


def graph() -> sw.Graph:
    b = Net(2, 16, 6, 5)
    y = b.op("relu", [b.conv(b.conv(b.x, 32, 3), 16)], output="y")
    return b.build([y])


def compiled(**formats: Any) -> sw.CompiledModel:
    return sw.compile(graph(), tune="model", threads=THREADS, **formats)


X = inputs_of(graph())["x"]
Y = run_reference(graph(), {"x": X})["y"]


def test_by_default_everything_is_in_the_models_own_order() -> None:
    model = compiled()
    assert {name: str(fmt) for name, fmt in model.plan.input_formats.items()} == {"x": "NCHW"}
    assert {name: str(fmt) for name, fmt in model.plan.output_formats.items()} == {"y": "NCHW"}
    assert error(model(X), Y) < 1e-5


@pytest.mark.parametrize("fmt", ["NHWC", "NCHW", "CHWN", "nChw16c", "nChw8c"])
def test_one_other_format_on_each_side(fmt: str) -> None:
    model = compiled(input_formats={"x": fmt}, output_formats={"y": fmt})
    stored = sw.reorder(X, "NCHW", fmt)
    found = model(stored)
    assert isinstance(found, np.ndarray)
    assert found.shape == sw.Format.parse(fmt).storage_shape(Y.shape)
    assert (
        error(sw.reorder(found, sw.TensorDesc(Y.shape, "float32", "NCHW", fmt), "NCHW"), Y) < 1e-5
    )
    by_name = model.run({"x": stored})
    np.testing.assert_array_equal(by_name["y"], found)


def test_of_several_formats_the_cheapest_is_picked_and_saves_reorders() -> None:
    own = compiled()
    both = compiled(
        input_formats={"x": ["NCHW", "NHWC"]}, output_formats={"y": ["NCHW", "NHWC", "nChw8c"]}
    )
    assert both.plan.cost_ns < own.plan.cost_ns
    assert len(both.plan.reorders) < len(own.plan.reorders)
    assert both.plan.gap == 0
    chosen = both.plan.input_formats["x"]
    assert str(chosen) == "NHWC"
    found = both(np.ascontiguousarray(X.transpose(0, 2, 3, 1)))
    desc = sw.TensorDesc(Y.shape, "float32", "NCHW", both.plan.output_formats["y"])
    assert error(sw.reorder(found, desc, "NCHW"), Y) < 1e-5


def test_arrays_of_the_users_shape_are_transposed_and_only_where_bytes_differ() -> None:
    model = compiled(input_formats={"x": "NHWC"})
    expected = model(np.ascontiguousarray(X.transpose(0, 2, 3, 1)))
    np.testing.assert_array_equal(model(X), expected)
    channels_last = np.ascontiguousarray(X.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)
    np.testing.assert_array_equal(model(channels_last), expected)
    assert np.shares_memory(model._checked([channels_last])[0], channels_last)


def test_arrays_of_another_shape_are_refused_with_the_shape_wanted() -> None:
    model = compiled(input_formats={"x": "nChw16c"})
    with pytest.raises(sw.InputError) as caught:
        model(X)
    assert str(caught.value) == (
        "input 'x': expected shape (2, 1, 6, 5, 16), which is (2, 16, 6, 5) stored as nChw16c, "
        "found (2, 16, 6, 5); store it with stridewise.reorder, or compile without input_formats"
    )


def test_tuned_models_take_them_too(tmp_path: Any) -> None:
    formats = {"x": ["NCHW", "NHWC"]}
    model = sw.compile(graph(), threads=THREADS, cache_dir=tmp_path, input_formats=formats)
    fmt = str(model.plan.input_formats["x"])
    assert error(model(sw.reorder(X, "NCHW", fmt)), Y) < 1e-5
    planned = sw.plan(graph(), threads=THREADS, cache_dir=tmp_path, input_formats=formats)
    assert planned.cost_ns == model.plan.cost_ns


def test_a_graph_that_hands_an_input_through_reorders_it() -> None:
    b = Net(1, 16, 4, 4)
    b.conv(b.x, 16)
    y = b.conv(b.x, 16)
    own = b.build([y, "x"])
    model = sw.compile(
        own, tune="model", threads=THREADS,
        input_formats={"x": "NHWC"}, output_formats={"x": "NCHW"},
    )  # fmt: skip
    x = inputs_of(own)["x"]
    found = model.run({"x": np.ascontiguousarray(x.transpose(0, 2, 3, 1))})
    np.testing.assert_array_equal(found["x"], x)
    assert error(found[y], run_reference(own, {"x": x})[y]) < 1e-5
