"""Normalizations that exporters write as several nodes, and what is left of the transposes."""

from __future__ import annotations

from types import MappingProxyType

import numpy as np
import pytest
from tests.networks import F32, Net, rng
from tests.simplified import simplify

from stridewise.dtypes import dtype_of
from stridewise.graph import Constant, Graph, Node, TensorType, Value
from stridewise.ops import GraphBuilder
from stridewise.passes.fold_scale import fold_scale
from stridewise.passes.recognize_activations import recognize_activations
from stridewise.passes.recognize_norms import recognize_norms
from stridewise.planner import derive
from stridewise.runtime.simulation.reference import run_reference


def agree(before: Graph, after: Graph) -> None:
    draw = rng()
    feeds = {name: draw.normal(size=before.value(name).shape).astype(F32) for name in before.inputs}
    expected, found = run_reference(before, feeds), run_reference(after, feeds)
    for name, array in expected.items():
        np.testing.assert_allclose(found[name], array, rtol=0, atol=1e-5 * np.abs(array).max())


def data(b: Net, *shape: int) -> str:
    return b.constant(rng(7).normal(size=shape).astype(F32), "c")


def by_hand(
    b: Net, x: str, axes: tuple[int, ...], *, twice: bool = False, inverse: bool = False
) -> str:
    """Return a layer norm in single steps; ``twice`` centers the squares by nodes of their own."""

    def centered() -> str:
        return b.op("sub", [x, b.op("reduce_mean", [x], {"axes": axes})])

    c = centered()
    d = centered() if twice else c
    variance = b.op("reduce_mean", [b.op("mul", [d, d])], {"axes": axes})
    root = b.op("sqrt", [b.op("add", [b.const(1e-3, shape=()), variance])])
    return b.op("mul", [b.op("reciprocal", [root]), c]) if inverse else b.op("div", [c, root])


@pytest.mark.parametrize("axes", [(3,), (1,), (2, 3), (1, 2, 3)])
@pytest.mark.parametrize("form", [{}, {"twice": True}, {"inverse": True}])
def test_a_layer_norm_in_steps_becomes_one(axes, form):
    b = Net("g")
    x = b.input("x", (2, 3, 4, 5))
    graph = b.build([by_hand(b, x, axes, **form)])
    after, refusals = recognize_norms(graph)
    (node,) = after.nodes
    assert (node.op, node.ints_attr("axes"), refusals) == ("layer_norm", axes, ())
    assert node.float_attr("epsilon") == pytest.approx(1e-3)
    agree(graph, after)


def test_steps_that_are_no_layer_norm_stay():
    b = Net("g")
    x, other = b.input("x", (2, 3, 4)), b.input("other", (2, 3, 4))
    mean = b.op("reduce_mean", [x], {"axes": (2,)})
    c = b.op("sub", [x, mean])
    squares = b.op("mul", [c, c])
    variance = b.op("reduce_mean", [squares], {"axes": (2,)})
    epsilon = b.const(1e-3, shape=())
    root = b.op("sqrt", [b.op("add", [variance, epsilon])])
    across = b.op("reduce_mean", [squares], {"axes": (1,)})
    results = [
        b.op("div", [b.op("sub", [other, mean]), root]),
        b.op("div", [c, b.op("sqrt", [b.op("add", [across, epsilon])])]),
        b.op("div", [c, b.op("sqrt", [b.op("add", [variance, other])])]),
        b.op("div", [c, b.op("sqrt", [variance])]),
    ]
    after, _ = recognize_norms(b.build(results))
    assert "layer_norm" not in {node.op for node in after.nodes}


def narrow(b: Net, x: str, groups: int, shape: tuple[int, ...]) -> str:
    y = b.op("reshape", [x], {"shape": (shape[0], groups, int(np.prod(shape[1:])) // groups)})
    pair = [data(b, groups), data(b, groups)]
    y = b.op("group_norm", [y, *pair], {"groups": groups, "epsilon": 1e-2})
    return b.op("reshape", [y], {"shape": shape})


@pytest.mark.parametrize("groups", [1, 2, 6])
def test_a_group_norm_as_pytorch_exports_it_becomes_one(groups):
    b = Net("g")
    x = b.input("x", (2, 6, 4, 5))
    y = narrow(b, x, groups, (2, 6, 4, 5))
    y = b.op("add", [b.op("mul", [y, data(b, 6, 1, 1)]), data(b, 6, 1, 1)])
    graph = b.build([y])
    after, _ = fold_scale(recognize_norms(graph)[0])
    (node,) = after.nodes
    assert (node.op, node.int_attr("groups")) == ("group_norm", groups)
    agree(graph, after)


def test_groups_that_do_not_come_back_to_their_image_stay():
    b = Net("g")
    x = b.input("x", (2, 6, 4, 5))
    y = narrow(b, x, 3, (2, 6, 4, 5))
    (reshaped,) = (node for node in b.build([y]).nodes if node.outputs == (y,))
    flat = b.op("reshape", [reshaped.inputs[0]], {"shape": (2, 6, 20)})
    after, _ = recognize_norms(b.build([flat]))
    assert [node.op for node in after.nodes] == ["reshape", "group_norm", "reshape"]


@pytest.mark.parametrize(
    ("op", "attrs", "count"), [("layer_norm", {"axes": (1,)}, 3), ("group_norm", {"groups": 3}, 3)]
)
@pytest.mark.parametrize("given", [0, 1, 2])
def test_scales_behind_a_norm_fold_into_it(op, attrs, count, given):
    b = Net("g")
    x = b.input("x", (2, count, 4, 5))
    y = b.op(op, [x, *(data(b, count) for _ in range(given))], attrs)
    y = b.scale(b.op("sub", [b.op("mul", [y, data(b, count, 1, 1)]), data(b, 1)]))
    graph = b.build([y])
    after, refusals = fold_scale(graph)
    assert ([node.op for node in after.nodes], refusals) == ([op], ())
    agree(graph, after)


def test_scales_of_other_axes_than_the_norm_has_stay():
    b = Net("g")
    x = b.input("x", (2, 3, 4, 5))
    y = b.op("mul", [b.op("layer_norm", [x], {"axes": (3,)}), data(b, 3, 1, 1)])
    z = b.op("mul", [b.op("layer_norm", [x], {"axes": (2, 3)}), data(b, 5)])
    after, _ = fold_scale(b.build([y, z]))
    assert [node.op for node in after.nodes] == ["layer_norm", "mul"] * 2


def test_transposes_around_a_layer_norm_cancel():
    b = Net("g")
    x = b.input("x", (1, 4, 5, 6))
    y = b.op("transpose", [b.conv(x, 3)], {"perm": (0, 2, 3, 1)})
    y = b.op("layer_norm", [y, data(b, 3), data(b, 3)], {"axes": (3,)})
    y = b.op("transpose", [y], {"perm": (0, 3, 1, 2)})
    graph = b.build([b.conv(y, 2)])
    after = simplify(graph, check=True).graph
    assert [node.op for node in after.nodes] == ["conv", "layer_norm", "conv"]
    assert after.nodes[1].ints_attr("axes") == (1,)
    agree(graph, after)
    origins = [str(derive(after).graph.value(node.outputs[0]).origin) for node in after.nodes]
    assert origins == ["NCHW"] * 3


def test_parameters_of_a_layer_norm_do_not_take_part_in_the_axes():
    b = Net("g")
    x, scale = b.input("x", (3, 4, 5, 6)), b.input("scale", (3, 4, 5, 6))
    y = b.op("layer_norm", [b.conv(x, 4), scale], {"axes": (0, 1, 2, 3)})
    derived = derive(b.build([b.op("relu", [y])])).graph
    assert str(derived.value(y).origin) == "NCHW"
    assert derived.value("scale").origin is None


# --- activations ----------------------------------------------------------------------------------


def test_mish_in_steps_becomes_one():
    b = Net("g")
    x = b.input("x", (2, 3))
    graph = b.build([b.op("mul", [b.op("tanh", [b.op("softplus", [x])]), x])])
    after, _ = recognize_activations(graph)
    assert [node.op for node in after.nodes] == ["mish"]
    agree(graph, after)


def gelu_in_steps(order: tuple[int, int, int], *, multiplied: bool, root: float) -> Graph:
    """Return the product of x, its gate and a half in some order, of nodes made by hand."""
    type_ = TensorType(dtype_of("float32"), (2, 3))
    constants = {"root": 1 / root if multiplied else root, "one": 1.0, "half": 0.5}
    factors = [("x", "gate", "half")[place] for place in order]
    nodes = (
        Node("scaled", "mul" if multiplied else "div", ("x", "root"), ("scaled",)),
        Node("erf", "erf", ("scaled",), ("erf",)),
        Node("gate", "add", ("one", "erf"), ("gate",)),
        Node("inner", "mul", (factors[0], factors[1]), ("inner",)),
        Node("y", "mul", ("inner", factors[2]), ("y",)),
    )
    values = {name: Value(name, type_) for name in ("x", *(node.name for node in nodes))}
    scalar = TensorType(dtype_of("float32"), ())
    values |= {name: Value(name, scalar) for name in constants}
    arrays = {name: Constant(np.array(value, F32)) for name, value in constants.items()}
    return Graph("g", ("x",), ("y",), nodes, MappingProxyType(values), MappingProxyType(arrays))


@pytest.mark.parametrize("order", [(0, 1, 2), (1, 2, 0), (2, 0, 1)])
@pytest.mark.parametrize("multiplied", [False, True])
def test_gelu_in_steps_becomes_one(order, multiplied):
    after, _ = recognize_activations(gelu_in_steps(order, multiplied=multiplied, root=np.sqrt(2)))
    assert [(node.op, node.inputs, node.outputs) for node in after.nodes] == [
        ("gelu", ("x",), ("y",))
    ]
    other = gelu_in_steps(order, multiplied=multiplied, root=1.5)
    assert recognize_activations(other)[0] == other


# --- layers ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("data_format", ["NCHW", "NHWC"])
def test_layers_take_their_parameters_along_the_channels(data_format):
    draw = rng()
    scale, shift, slopes = (draw.normal(size=6).astype(F32) for _ in range(3))
    last = data_format == "NHWC"
    b = GraphBuilder(data_format=data_format)
    x = b.input("x", (2, 4, 5, 6) if last else (2, 6, 4, 5))
    y = b.layer_norm(x, axis="C", scale=scale, shift=shift, epsilon=1e-3)
    y = b.prelu(b.group_norm(y, 3, scale=scale, shift=shift), slopes)
    array = draw.normal(size=(2, 6, 4, 5)).astype(F32)
    feed = array.transpose(0, 2, 3, 1) if last else array
    (found,) = run_reference(b.build([y]), {"x": feed}).values()
    found = found.transpose(0, 3, 1, 2) if last else found

    def spread(row: np.ndarray) -> np.ndarray:
        return row.reshape(-1, 1, 1)

    wanted = (array - array.mean(1, keepdims=True)) / np.sqrt(array.var(1, keepdims=True) + 1e-3)
    wanted = wanted * spread(scale) + spread(shift)
    groups = wanted.reshape(2, 3, -1)
    groups = (groups - groups.mean(2, keepdims=True)) / np.sqrt(groups.var(2, keepdims=True) + 1e-5)
    wanted = groups.reshape(wanted.shape) * spread(scale) + spread(shift)
    wanted = np.where(wanted < 0, wanted * spread(slopes), wanted)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-5 * np.abs(wanted).max())
