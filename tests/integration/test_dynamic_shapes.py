"""Ranges, symbols and values that the plans of a model with open shapes depend on."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto

import stridewise as sw

from .onnx_nodes import make, node
from .open_shapes import F32, classifier, compiled, draw, reshaped, right, with_inputs

# --- ranges, symbols, choices ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "fits", "wrong", "spelled"),
    [
        (("1..4", 3, "H", "W"), (4, 3, 5, 6), (5, 3, 5, 6), "(N=1..4, 3, H, W)"),
        (((1, 4), 3, "S", "S"), (2, 3, 6, 6), (2, 3, 5, 6), "S = 5"),
        (("N", 3, range(8, 17), 8), (2, 3, 16, 8), (2, 3, 17, 8), "(N, 3, H=8..16, W=8)"),
        (("N", 3, "8|12", 8), (2, 3, 12, 8), (2, 3, 10, 8), "(N, 3, H=8|12, W=8)"),
        (("?", 3, "H=4..8", None), (2, 3, 4, 9), (2, 4, 4, 9), "(N, 3, H=4..8, W)"),
    ],
)
def test_only_shapes_within_limits(
    shape: Any, fits: tuple[int, ...], wrong: tuple[int, ...], spelled: str
) -> None:
    proto = classifier()
    model = compiled(proto, shapes={"x": shape})
    right(model, proto, {"x": draw(*fits)})
    with pytest.raises(sw.InputError) as caught:
        model(draw(*wrong))
    assert "input 'x': expected" in str(caught.value)
    assert spelled in str(caught.value)
    assert str(wrong) in str(caught.value)


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        (("4..1", 3, 8, 8), "expected a number, a symbol 'N', a range '1..16', a choice"),
        (("N", 3, 8), r"expected a shape of rank 4, like \(N, 3, H, W\)"),
        ((-1, 3, 8, 8), "extents of 0 or more"),
        ([(1, 3, 8, 8), (2, 3, 8)], "shapes of one rank"),
        ("N", "a tuple of extents, or a list of shapes"),
    ],
)
def test_shapes_that_are_none(shape: Any, message: str) -> None:
    for call in (sw.compile, sw.plan, sw.load):
        with pytest.raises(sw.InputError, match=message):
            call(classifier(), shapes={"x": shape})


def test_default_shapes_are_the_least() -> None:
    shapes = {"x": ("2|4", 3, "H=8..32", "16..64")}
    assert sw.load(classifier(), shapes=shapes).value("x").shape == (2, 3, 8, 16)
    with pytest.raises(sw.ModelError, match="every extent to be known"):
        sw.load(classifier(), shapes={"x": ("1..4", 3, "H", 8)})


def test_symbols_hold_for_all_inputs() -> None:
    proto = with_inputs(
        make(node("Add", "x", "z"), shape=("N", "C")), z=(TensorProto.FLOAT, ("N", "C"))
    )
    fixed = sw.compile(proto, shapes={"x": (2, 5)}, tune="model")
    assert type(fixed) is sw.CompiledModel
    model = compiled(proto, shapes={"x": ("1|4", 5)})
    right(model, proto, {"x": draw(4, 5), "z": draw(4, 5, seed=1)})
    found = model.run({"x": draw(3, 5), "z": draw(3, 5, seed=1)})["y"]
    np.testing.assert_allclose(found, draw(3, 5) + draw(3, 5, seed=1), rtol=1e-6)
    with pytest.raises(sw.InputError, match="N = 4 as in input 'x'"):
        model(draw(4, 5), draw(1, 5))


def test_a_batch_between_choices_is_padded_and_cut() -> None:
    proto = classifier()
    for shapes in (([1, 4, 8], 3, 8, 8), [(1, 3, 8, 8), (4, 3, 8, 8), (8, 3, 8, 8)]):
        model = compiled(proto, shapes={"x": shapes})
        for batch in (1, 2, 3, 4, 5, 8):
            right(model, proto, {"x": draw(batch, 3, 8, 8, seed=batch)})
        assert model.programs.misses == 3
        assert model(draw(2, 3, 8, 8)).flags.c_contiguous
        with pytest.raises(sw.InputError, match="or a smaller batch, found"):
            model(draw(9, 3, 8, 8))
        with pytest.raises(sw.InputError, match=r"found \(1, 3, 9, 8\)"):
            model(draw(1, 3, 9, 8))


@pytest.mark.parametrize(
    ("nodes", "reason"),
    [
        ([node("ReduceMean", axes=[0], keepdims=1)], "n: reduce_mean mixes items"),
        ([node("Softmax", axis=0)], "n: softmax mixes items"),
        ([node("Transpose", perm=[1, 0, 2, 3])], "n: transpose mixes items"),
        (
            [
                node("Shape", outputs=["s"], name="s"),
                node("Gather", "s", "zero", outputs=["b"], name="g"),
                node("Cast", "b", outputs=["f"], to=1, name="c"),
                node("Div", "x", "f"),
            ],
            "depends on the batch",
        ),
    ],
)
def test_a_batch_that_is_mixed_is_not_padded(nodes: Any, reason: str) -> None:
    proto = make(*nodes, shape=("N", 3, 4, 4), constants={"zero": np.int64(0)})
    model = compiled(proto, shapes={"x": ([2, 4], 3, 4, 4)})
    right(model, proto, {"x": draw(4, 3, 4, 4)})
    with pytest.raises(sw.InputError, match=f"the batch cannot be padded, found .*{reason}"):
        model(draw(3, 3, 4, 4))


# --- values that plans depend on ------------------------------------------------------------------


def test_a_shape_that_comes_with_the_call() -> None:
    proto = reshaped()
    model = compiled(proto)
    assert model.input_names == ("x", "shape")
    for batch, shape in ((1, (1, -1)), (2, (2, 3, 64)), (1, (1, -1)), (1, (3, 8, 8))):
        feeds = {"x": draw(batch, 3, 8, 8), "shape": np.array(shape, np.int64)}
        right(model, proto, feeds)
    assert (model.programs.misses, model.programs.hits) == (3, 1)
    assert {"shape": (2, 3, 64)} in [program.values for program in model.programs.ready]
    assert model.plan_for({"x": (1, 3, 8, 8)}, {"shape": [192]}).graph.value("y").shape == (192,)
    with pytest.raises(sw.UnknownValueError, match=r"values=\{'shape': \[...\]\}"):
        model.plan_for({"x": (1, 3, 8, 8), "shape": (2,)})
    with pytest.raises(sw.InputError, match="input 'shape': expected dtype int64, found int32"):
        model(draw(1, 3, 8, 8), np.array([192], np.int32))
    with pytest.raises(sw.ModelError, match="a new shape of 192 elements"):
        model(draw(1, 3, 8, 8), np.array([7]))


def test_a_plan_needs_the_value_and_takes_it() -> None:
    proto = reshaped()
    with pytest.raises(
        sw.UnknownValueError, match=r"node 'n' \(Reshape\).*value of input 'shape'.*--value shape="
    ) as caught:
        sw.plan(proto, shapes={"shape": (2,)}, tune="model")
    assert caught.value.inputs == ("shape",)
    plan = sw.plan(proto, values={"shape": [3, 64]}, tune="model")
    assert plan.graph.inputs == ("x",)
    assert plan.graph.value("y").shape == (3, 64)
    fixed = sw.compile(proto, shapes={"x": (1, 3, 8, 8)}, values={"shape": (3, 64)}, tune="model")
    assert type(fixed) is sw.CompiledModel
    assert fixed(draw(1, 3, 8, 8)).shape == (3, 64)
    for values, message in (
        ({"z": [1]}, r"values: expected names of inputs \('x', 'shape'\), found 'z'"),
        ({"shape": [1.5]}, "input 'shape': expected a value of int64"),
        ({"shape": [[1]]}, r"expected a value of shape \(rank\), found shape \(1, 1\)"),
        ({"shape": ["a"]}, "a value of int64"),
    ):
        with pytest.raises(sw.InputError, match=message):
            sw.plan(proto, values=values, tune="model")


def test_bounds_of_a_slice_that_come_with_the_call() -> None:
    one = (TensorProto.INT64, (1,))
    proto = with_inputs(
        make(node("Slice", "x", "starts", "ends", "axes"), constants={"axes": np.array([2])}),
        starts=one,
        ends=one,
    )
    model = compiled(proto)
    for bounds in ((0, 4), (2, -1), (0, 4)):
        starts, ends = (np.array([bound]) for bound in bounds)
        right(model, proto, {"x": draw(1, 3, 8, 8), "starts": starts, "ends": ends})
    assert model.programs.misses == 2


def test_sizes_of_a_resize_computed_from_an_input() -> None:
    proto = with_inputs(
        make(
            node("Mul", "size", "two", outputs=["larger"], name="double"),
            node("Concat", "head", "larger", outputs=["sizes"], axis=0, name="sizes"),
            node("Resize", "x", "", "", "sizes", mode="nearest"),
            constants={"two": np.array([2, 2]), "head": np.array([1, 3])},
        ),
        size=(TensorProto.INT64, (2,)),
    )
    model = compiled(proto)
    for size in ((4, 4), (8, 4)):
        right(model, proto, {"x": draw(1, 3, 8, 8), "size": np.array(size)})


def test_scales_of_a_resize_that_come_with_the_call() -> None:
    proto = with_inputs(
        make(node("Resize", "x", "", "scales", mode="nearest")),
        scales=(TensorProto.FLOAT, (4,)),
    )
    model = compiled(proto)
    right(model, proto, {"x": draw(1, 3, 8, 8), "scales": np.array([1, 1, 2, 3], F32)})


@pytest.mark.parametrize("dtype", ["int64", "float64", "bfloat16"])
def test_a_range_that_comes_with_the_call(dtype: str) -> None:
    code = {"int64": TensorProto.INT64, "float64": TensorProto.DOUBLE}.get(
        dtype, TensorProto.BFLOAT16
    )
    proto = make(node("Range", "start", "limit", "step"))
    del proto.graph.input[:]
    with_inputs(proto, start=(code, ()), limit=(code, ()), step=(code, ()))
    model = sw.compile(proto, tune="model", fallback=False)
    assert isinstance(model, sw.DynamicModel)
    for numbers in ((1, 9, 2), (4, 1, -1), (3, 3, 1)):
        found = model(*(np.array(number, sw.dtypes.dtype_of(dtype).numpy) for number in numbers))
        np.testing.assert_array_equal(found.astype(float), np.arange(*numbers))
        assert found.dtype.name == dtype
    assert {"start": (4.0,), "limit": (1.0,), "step": (-1.0,)} in [
        program.values for program in model.programs.ready
    ]


def test_images_are_no_values() -> None:
    proto = make(node("Relu", outputs=["s"]), node("Resize", "x", "", "s"), shape=(1, 3, 8, 8))
    with pytest.raises(sw.ModelError, match="the scales to be constant") as caught:
        sw.compile(proto, tune="model", fallback=False)
    assert not isinstance(caught.value, sw.UnknownValueError)
