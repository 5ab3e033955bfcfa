"""Gradients of graphs: against finite differences in float64, and against PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.operator_tables import entries

import stridewise as sw
from stridewise.errors import GraphError, InputError
from stridewise.graph import Graph
from stridewise.graph.verify import verify
from stridewise.ops import OPS, infer
from stridewise.ops.activation import UNARY
from stridewise.ops.elementwise import BINARY
from stridewise.ops.functions import FUNCTIONS
from stridewise.ops.reduce import REDUCTIONS
from stridewise.runtime.simulation.reference import run_reference

Array = np.ndarray[Any, np.dtype[Any]]
Case = tuple[Graph, dict[str, Array]]


class Net(sw.GraphBuilder):
    """Graphs in float64 whose inputs are drawn, with a loss that weighs every element."""

    def __init__(self, seed: int = 0, data_format: str = "NCHW") -> None:
        super().__init__("net", data_format)
        self.rng, self.arrays = np.random.default_rng(seed), dict[str, Array]()

    def draw(self, *shape: int, low: float = -1, high: float = 1) -> str:
        """Add an input of distinct elements: kinks and ties are farther away than a difference."""
        count = int(np.prod(shape))
        array = np.linspace(low, high, count + 2)[1:-1]
        array = array + self.rng.uniform(-0.2, 0.2, count) * (high - low) / (count + 2)
        name = f"x{len(self.arrays)}"
        self.arrays[name] = self.rng.permutation(array).reshape(shape)
        return self.input(name, shape, "float64")

    def case(self, *results: str) -> Case:
        losses: list[str] = []
        for y in results:
            weights = self.constant(self.rng.normal(size=self.type(y).shape), "weights")
            axes = tuple(range(len(self.type(y).shape)))
            loss = self.op("mul", [y, weights])
            losses.append(self.op("reduce_sum", [loss], {"axes": axes, "keepdims": 0}))
        total = losses[0]
        for loss in losses[1:]:
            total = self.op("add", [total, loss])
        return self.build([self.op("identity", [total], output="loss")]), self.arrays


def gradients(graph: Graph, arrays: Mapping[str, Array]) -> dict[str, Array]:
    backward = sw.grad(graph, "loss", list(arrays))
    verify(backward, infer)
    assert backward.outputs == ("loss", *(f"{name}.gradient" for name in arrays))
    found = run_reference(backward, arrays)
    np.testing.assert_array_equal(found["loss"], run_reference(graph, arrays)["loss"])
    return {name: found[f"{name}.gradient"] for name in arrays}


def check(graph: Graph, arrays: Mapping[str, Array], tolerance: float = 1e-6) -> None:
    """Compare the slope in random directions with a difference of two values of the loss."""
    found, rng, step = gradients(graph, arrays), np.random.default_rng(7), 1e-6
    for name, array in arrays.items():
        assert found[name].shape == array.shape
        for _ in range(3):
            direction = rng.normal(size=array.shape)
            moved = [{**arrays, name: array + sign * step * direction} for sign in (1, -1)]
            ends = [float(run_reference(graph, inputs)["loss"]) for inputs in moved]
            slope = (ends[0] - ends[1]) / (2 * step)
            wanted = float((found[name] * direction).sum())
            assert abs(slope - wanted) <= tolerance * max(1.0, abs(slope), abs(wanted)), name


# --- elementwise ----------------------------------------------------------------------------------

_RANGES = {
    "log": (0.5, 2), "sqrt": (0.5, 2), "reciprocal": (0.5, 2), "power": (0.5, 2), "acosh": (1.2, 3),
    "acos": (-0.8, 0.8), "asin": (-0.8, 0.8), "atanh": (-0.8, 0.8), "hard_swish": (-4, 4),
    "hard_sigmoid": (-4, 4), "shrink": (-2, 2), "thresholded_relu": (-3, 3),
}  # fmt: skip


@pytest.mark.parametrize("op", [*UNARY, *FUNCTIONS])
def test_functions_of_one_operand(op):
    low, high = _RANGES.get(op, (-1.0, 1.0))
    attrs: dict[str, Any] = {
        "clip": {"alpha": -0.33, "beta": 0.51},
        "power": {"alpha": 2.5},
        "swish": {"alpha": 1.5},
        "celu": {"alpha": 1.7},
        "linear": {"alpha": -1.5, "beta": 0.25},
    }.get(op, {})
    b = Net()
    check(*b.case(b.op(op, [b.draw(3, 7, low=low, high=high)], attrs)))


SHAPES = [((2, 3), (2, 3)), ((2, 3), (3,)), ((2, 1, 3), (4, 1)), ((), (2, 2)), ((1, 3), (2, 3))]


@pytest.mark.parametrize("shapes", SHAPES)
@pytest.mark.parametrize("op", [*BINARY, "pow", "prelu", "where"])
def test_functions_of_two_operands_broadcast(op, shapes):
    b = Net()
    first = b.draw(*shapes[0], low=0.5, high=2)
    second = b.draw(*shapes[1], low=0.51, high=2.03)
    if op == "prelu":
        first = b.op("sub", [first, b.constant(np.array(1.21))])
        whole = np.broadcast_shapes(*shapes)
        first = b.op("expand", [first], {"shape": whole})
    if op == "where":
        flags = b.op("less", [first, b.constant(np.array(1.21))])
        y = b.op("where", [flags, second, first])
    else:
        y = b.op(op, [first, second])
    check(*b.case(y))


def test_equal_operands_share_the_gradient():
    b = Net()
    x = b.draw(4)
    graph, arrays = b.case(b.op("maximum", [x, x]))
    check(graph, arrays)


# --- windows --------------------------------------------------------------------------------------


@st.composite
def convolutions(draw: st.DrawFn) -> tuple[dict[str, Any], tuple[int, ...], tuple[int, ...], str]:
    """Attributes, shapes of x and of the weights, and the data format."""
    spatial, groups = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    numbers = lambda low, high: tuple(draw(st.integers(low, high)) for _ in range(spatial))  # noqa: E731
    kernel, strides, dilations = numbers(1, 3), numbers(1, 3), numbers(1, 2)
    pads = (*numbers(0, 2), *numbers(0, 2))
    least = [d * (k - 1) + 1 for k, d in zip(kernel, dilations, strict=True)]
    size = tuple(n + extra for n, extra in zip(least, numbers(0, 3), strict=True))
    inputs, outputs = draw(st.integers(1, 2)), draw(st.integers(1, 2)) * groups
    attrs = {"dilations": dilations, "groups": groups, "pads": pads, "strides": strides}
    data_format = draw(st.sampled_from(["NCHW", "NHWC"]))
    x = (draw(st.integers(1, 2)), inputs * groups, *size)
    return attrs, x, (outputs, inputs, *kernel), data_format


def _image(b: Net, shape: tuple[int, ...]) -> str:
    last = b.data_format == "NHWC"
    return b.draw(*((shape[0], *shape[2:], shape[1]) if last else shape))


@given(convolutions())
@settings(max_examples=60, deadline=None)
def test_convolutions(drawn):
    attrs, x_shape, w_shape, data_format = drawn
    b = Net(data_format=data_format)
    x, w, bias = _image(b, x_shape), b.draw(*w_shape), b.draw(w_shape[0])
    check(*b.case(b.op("conv", [x, w, bias], attrs)))


@given(convolutions(), st.data())
@settings(max_examples=60, deadline=None)
def test_transposed_convolutions(drawn, data):
    attrs, _, w_shape, data_format = drawn
    b = Net(data_format=data_format)
    spatial = len(w_shape) - 2
    ends = tuple(data.draw(st.integers(1 - s, 1)) for s in attrs["strides"])
    attrs = {**attrs, "pads": (*(0,) * spatial, *ends)}
    size = tuple(data.draw(st.integers(2, 3)) for _ in range(spatial))
    x = _image(b, (1, w_shape[0], *size))
    w, bias = b.draw(*w_shape), b.draw(w_shape[1] * attrs["groups"])
    check(*b.case(b.op("conv_transpose", [x, w, bias], attrs)))


@given(convolutions(), st.sampled_from(["max_pool", "avg_pool"]), st.booleans())
@settings(max_examples=60, deadline=None)
def test_pools(drawn, op, counts):
    attrs, x_shape, w_shape, data_format = drawn
    b = Net(data_format=data_format)
    kernel = w_shape[2:]
    limits = [min(p, k - 1) for p, k in zip(attrs["pads"], kernel * 2, strict=True)]
    own = {"kernel": kernel, "strides": attrs["strides"], "dilations": attrs["dilations"]}
    own["pads"] = tuple(limits)
    if op == "avg_pool":
        own["count_include_pad"] = int(counts)
    check(*b.case(b.op(op, [_image(b, x_shape)], own)))


def test_gradients_of_convolution_gradients():
    b = Net()
    x, dy = b.draw(2, 4, 5, 4), b.draw(2, 6, 2, 2)
    attrs = {"groups": 2, "kernel": (3, 2), "pads": (0, 1, 0, 0), "strides": (2, 2)}
    check(*b.case(b.op("conv_weight_gradient", [x, dy], attrs)))


# --- everything else ------------------------------------------------------------------------------


def _matmul(a: tuple[int, ...], c: tuple[int, ...], **attrs: int) -> Callable[[Net], str]:
    def build(b: Net) -> str:
        operands = [b.draw(*a), b.draw(*c)]
        if attrs.pop("bias", 0):
            operands.append(b.draw(b.type(b.op("matmul", operands, attrs)).shape[-1]))
        return b.op("matmul", operands, attrs)

    return build


def _unary(op: str, of: tuple[int, ...], /, **attrs: Any) -> Callable[[Net], str]:
    return lambda b: b.op(op, [b.draw(*of)], attrs)


def _with_rows(op: str, shape: tuple[int, ...], row: tuple[int, ...], **attrs: Any):
    return lambda b: b.op(op, [b.draw(*shape), b.draw(*row, low=0.5), b.draw(*row)], attrs)


def _gather(op: str, shape: tuple[int, ...], indices: Any, **attrs: int) -> Callable[[Net], str]:
    return lambda b: b.op(op, [b.draw(*shape), b.constant(np.array(indices))], attrs)


BORDERS = ("reflect", "edge", "wrap")
RESIZED: dict[str, Any] = {"shape": (1, 2, 7, 3)}
CASES: dict[str, Callable[[Net], str]] = {
    "matrices": _matmul((3, 4), (4, 2)),
    "transposed": _matmul((4, 3), (2, 4), trans_a=1, trans_b=1, bias=1),
    "batches": _matmul((2, 1, 3, 4), (5, 4, 2)),
    "one matrix": _matmul((2, 3, 5, 4), (4, 2), bias=1),
    "one transposed matrix": _matmul((2, 3, 5, 4), (2, 4), trans_b=1),
    "a row": _matmul((4,), (3, 4, 2)),
    "a column": _matmul((3, 2, 4), (4,)),
    "an inner product": _matmul((4,), (4,)),
    "concat": lambda b: b.op("concat", [b.draw(2, 3), b.draw(2, 1), b.draw(2, 4)], {"axis": 1}),
    "slice": _unary("slice", (4, 5), starts=(1, 0), stops=(3, 5), steps=(1, 1)),
    "slice of steps": _unary("slice", (4, 7), starts=(3, 1), stops=(-1, 6), steps=(-2, 2)),
    "slice of forward steps": _unary("slice", (5, 7), starts=(1, 2), stops=(5, 7), steps=(3, 2)),
    "slice of long steps": _unary("slice", (5, 7), starts=(0, 6), stops=(5, 7), steps=(4, 9)),
    "pad": _unary("pad", (2, 3), pads=(1, 0, 2, 3), value=0.5),
    "pad by a value": lambda b: b.op("pad", [b.draw(2, 3), b.draw(1)], {"pads": (1, 0, 2, 3)}),
    **{f"pad {m}": _unary("pad", (3, 4), pads=(2, 0, 1, 3), mode=m) for m in BORDERS},
    "reshape": _unary("reshape", (2, 6), shape=(3, 4)),
    "transpose": _unary("transpose", (2, 3, 4), perm=(2, 0, 1)),
    "identity": _unary("identity", (3,)),
    "cast": _unary("cast", (3,), to="float64"),
    "tile": _unary("tile", (2, 3), repeats=(3, 2)),
    "expand": _unary("expand", (1, 3), shape=(4, 2, 3)),
    "softmax": _unary("softmax", (2, 5, 2), axis=1),
    "log_softmax": _unary("log_softmax", (2, 5, 2), axis=1),
    "scale_shift": _with_rows("scale_shift", (2, 3, 4), (3,)),
    "group_norm": _with_rows("group_norm", (2, 6, 3), (6,), groups=3),
    "group_norm of one group": _with_rows("group_norm", (2, 4, 3, 2), (4,), groups=1),
    "group_norm of channels": _with_rows("group_norm", (2, 4, 3, 2), (4,), groups=4),
    "group_norm without pixels": _with_rows("group_norm", (2, 6), (6,), groups=2),
    "group_norm without rows": _unary("group_norm", (2, 6, 3), groups=2),
    "layer_norm": _with_rows("layer_norm", (2, 3, 4), (4, 3), axes=(2, 1)),
    "layer_norm without rows": _unary("layer_norm", (2, 3, 4), axes=(1,)),
    "nearest": _unary("resize", (1, 2, 3, 5), **RESIZED, mode="nearest"),
    "linear": _unary("resize", (1, 2, 3, 5), **RESIZED, mode="linear"),
    "cubic": _unary("resize", (1, 2, 3, 5), **RESIZED, mode="cubic"),
    "interpolate": lambda b: b.op("interpolate", [b.draw(2, 3, 4), b.draw(5, 3)], {"axis": 1}),
    "depth_to_space": _unary("depth_to_space", (1, 8, 2, 3), block=2, mode="CRD"),
    "space_to_depth": _unary("space_to_depth", (1, 2, 4, 6), block=2),
    "slice_gradient": _unary(
        "slice_gradient", (2, 3), shape=(4, 7), starts=(3, 1), stops=(-1, 6), steps=(-2, 2)
    ),
    "trilu": _unary("trilu", (2, 3, 4), k=1),
    "tril": _unary("trilu", (4, 3), k=-1, upper=0),
    "cumsum": _unary("cumsum", (2, 4, 3), axis=1),
    "cumsum of those before": _unary("cumsum", (2, 4), axis=1, exclusive=1),
    "cumsum from the end": _unary("cumsum", (2, 4), axis=0, reverse=1),
    "gather": _gather("gather", (2, 4, 3), [[3, 0, -1], [1, 3, 3]], axis=1),
    "gather of rows": _gather("gather", (5, 2), [4, 0, 4], axis=0),
    "gather of one": _gather("gather", (2, 3, 2), 1, axis=2),
    "gather_elements": _gather("gather_elements", (2, 4), [[3, 3, -1], [0, 1, 0]], axis=1),
    **entries("GRADIENTS"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_gradients_are_slopes(name):
    b = Net()
    check(*b.case(CASES[name](b)))


@pytest.mark.parametrize("keep", [0, 1])
@pytest.mark.parametrize("op", sorted(REDUCTIONS))
def test_reductions(op, keep):
    for axes in ((0,), (1, 2), (2, 0), ()):
        b = Net()
        low = 0.1 if op == "reduce_log_sum" else -1.0
        x = b.draw(2, 3, 4, low=low)
        check(*b.case(b.op(op, [x], {"axes": axes, "keepdims": keep})))


@pytest.mark.parametrize("zeros", [1, 2, 3])
def test_products_with_zeros(zeros):
    b = Net()
    x = b.draw(2, 5)
    b.arrays[x][0, :zeros] = 0
    check(*b.case(b.op("reduce_prod", [x], {"axes": (1,)})))


@pytest.mark.parametrize("data_format", ["NCHW", "NHWC"])
@pytest.mark.parametrize("used", [(0,), (1,), (2,), (0, 1, 2)])
def test_batch_norm_by_the_statistics_of_the_batch(used, data_format):
    b = Net(data_format=data_format)
    x = _image(b, (3, 2, 2, 2))
    found = b.node("batch_norm", [x, b.draw(2, low=0.5), b.draw(2)])
    kept = used if 0 in used else (0, *used)
    check(*b.case(*(found[index] for index in kept)))


LRN: dict[str, Any] = {"alpha": 0.7, "beta": 0.6, "bias": 1.5}


@pytest.mark.parametrize("data_format", ["NCHW", "NHWC"])
@pytest.mark.parametrize("image", [(3,), (2, 3), (2, 1, 2)])
@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 9])
def test_local_response_norms(size, image, data_format):
    b = Net(data_format=data_format)
    check(*b.case(b.op("lrn", [_image(b, (2, 4, *image))], {"size": size, **LRN})))


def test_a_network_of_many_paths():
    b = Net(data_format="NHWC")
    x = b.draw(2, 6, 6, 3)
    y = b.op("conv", [x, b.draw(4, 3, 3, 3)], {"pads": (1, 1, 1, 1), "strides": (2, 2)})
    y = b.node("batch_norm", [y, b.draw(4, low=0.5), b.draw(4)])[0]
    left = b.op("gelu", [y])
    right = b.op("conv", [b.op("tanh", [y]), b.draw(4, 1, 3, 3)], {"groups": 4, "pads": (1,) * 4})
    y = b.op("concat", [b.op("add", [left, right]), left], {"axis": 3})
    y = b.op("reduce_mean", [y], {"axes": (1, 2), "keepdims": 0})
    y = b.op("log_softmax", [b.op("matmul", [y, b.draw(8, 5)])], {"axis": 1})
    check(*b.case(y))


def test_unused_gradients_leave_no_nodes():
    b = Net()
    x, w = b.draw(1, 2, 5, 5), b.draw(3, 2, 3, 3)
    graph, _ = b.case(b.op("conv", [x, w]))
    ops = {node.op for node in sw.grad(graph, "loss", [w]).nodes}
    assert "conv_weight_gradient" in ops
    assert "conv_transpose" not in ops


@pytest.mark.parametrize("trans_b", [0, 1])
def test_one_product_over_the_rows_of_a_batch(trans_b):
    b = Net()
    w = b.draw(*((2, 4) if trans_b else (4, 2)))
    graph, _ = b.case(b.op("matmul", [b.draw(2, 3, 5, 4), w], {"trans_b": trans_b}))
    nodes = sw.grad(graph, "loss", [w]).nodes
    assert [node.op for node in nodes].count("matmul") == 2
    # The sum is the loss.
    assert [node.op for node in nodes].count("reduce_sum") == 1


def test_shapes_alone_need_no_data():
    b = Net()
    x = b.draw(4, 6)
    y = b.op("reshape", [x], {"shape": (3, 8)})
    graph, _ = b.case(b.op("transpose", [y], {"perm": (1, 0)}))
    backward = sw.grad(graph, "loss", [x])
    (gradient,) = (node for node in backward.nodes if node.outputs == ("x0.gradient",))
    seen, waiting = set[str](), list(gradient.inputs)
    producers = backward.producers()
    while waiting:
        name = waiting.pop()
        seen.add(name)
        waiting += producers[name].inputs if name in producers else ()
    assert x not in seen


def test_integers_stop_gradients():
    b = Net()
    x = b.draw(3)
    whole = b.op("cast", [b.op("cast", [x], {"to": "int64"})], {"to": "float64"})
    graph, arrays = b.case(b.op("add", [x, whole]))
    weights = graph.constants["weights"].array
    np.testing.assert_allclose(gradients(graph, arrays)["x0"], weights)


# --- what is refused ------------------------------------------------------------------------------


def _small() -> Net:
    b = Net()
    b.draw(2, 3)
    return b


@pytest.mark.parametrize(
    ("loss", "wrt", "message"),
    [
        ("nothing", ["x0"], "expected a known value"),
        ("y", ["x0"], "expected a loss of one float element, found 'y', f64"),
        ("loss", [], "expected a list of one name or more"),
        ("loss", [1], "a list of one name or more"),
        ("loss", ["x0", "x0"], "each once"),
        ("loss", ["other"], "expected values that 'loss' depends on, found 'other'"),
        ("loss", ["whole"], "expected float values, found 'whole', s64"),
    ],
)
def test_wrong_arguments(loss, wrt, message):
    b = _small()
    b.input("other", (1,), "float64")
    b.input("whole", (1,), "int64")
    graph, _ = b.case(b.op("relu", ["x0"], output="y"))
    with pytest.raises(GraphError, match=message):
        sw.grad(graph, loss, wrt)


def test_arguments_of_other_types():
    graph, _ = _small().case("x0")
    for arguments, message in (
        (("net.onnx", "loss", ["x0"]), "grad, graph: expected a graph, .* found 'net.onnx'"),
        ((sw.compile, "loss", ["x0"]), "grad, graph: expected a graph, .* found function"),
        ((graph, ["loss"], ["x0"]), "grad, loss: expected the name of a value, found list"),
        ((graph, "loss", "x0"), "grad, wrt: expected names of values, as a list, found 'x0'"),
        ((graph, "loss", None), "grad, wrt: .* found NoneType"),
    ):
        with pytest.raises(InputError, match=message):
            sw.grad(*arguments)
    wanted = sw.grad(graph, "loss", ["x0"])
    assert sw.grad(graph, "loss", dict.fromkeys(["x0"])).outputs == wanted.outputs


def test_operators_without_a_rule_are_named():
    b = _small()
    graph, _ = b.case(b.op("cumprod", ["x0"], {"axis": 0}, name="product"))
    with pytest.raises(GraphError, match=r"node 'product' \(cumprod\): expected an operator"):
        sw.grad(graph, "loss", ["x0"])


def test_operators_without_a_rule_do_not_matter_elsewhere():
    b = _small()
    other = b.op("cumprod", [b.input("other", (2, 3), "float64")], {"axis": 0})
    graph, _ = b.case(b.op("mul", ["x0", other]))
    assert sw.grad(graph, "loss", ["x0"]).outputs == ("loss", "x0.gradient")


# --- PyTorch --------------------------------------------------------------------------------------


def _torch() -> Any:
    return pytest.importorskip(
        "torch", reason="PyTorch, which gradients are compared with, is absent"
    )


def _compare(graph: Graph, arrays: Mapping[str, Array], loss: Callable[..., Any]) -> None:
    """Compare with PyTorch's gradients; ``loss`` takes its tensors and weights of the results."""
    torch = _torch()
    tensors = [torch.tensor(array, requires_grad=True) for array in arrays.values()]
    weights = [torch.tensor(item.array) for n, item in graph.constants.items() if "weights" in n]
    results = loss(*tensors)
    results = results if isinstance(results, tuple) else (results,)
    total = sum((y * w).sum() for y, w in zip(results, weights, strict=True))
    np.testing.assert_allclose(run_reference(graph, arrays)["loss"], total.item(), rtol=1e-9)
    total.backward()
    found = gradients(graph, arrays)
    for tensor, gradient in zip(tensors, found.values(), strict=True):
        np.testing.assert_allclose(gradient, tensor.grad.numpy(), rtol=1e-9, atol=1e-11)


@given(convolutions())
@settings(max_examples=40, deadline=None)
def test_convolutions_like_pytorch(drawn):
    torch = _torch()
    attrs, x_shape, w_shape, _ = drawn
    b, spatial = Net(), len(w_shape) - 2
    begins, ends = attrs["pads"][:spatial], attrs["pads"][spatial:]
    x, w, bias = b.draw(*x_shape), b.draw(*w_shape), b.draw(w_shape[0])
    function = getattr(torch.nn.functional, f"conv{spatial}d")

    def loss(x: Any, w: Any, bias: Any) -> Any:
        around = [n for pair in zip(begins[::-1], ends[::-1], strict=True) for n in pair]
        padded = torch.nn.functional.pad(x, around)
        own = {"stride": attrs["strides"], "dilation": attrs["dilations"]}
        return function(padded, w, bias, **own, groups=attrs["groups"])

    _compare(*b.case(b.op("conv", [x, w, bias], attrs)), loss)


@pytest.mark.parametrize("counts", [False, True])
def test_pools_like_pytorch(counts):
    torch = _torch()
    window = {"kernel": (3, 2), "strides": (2, 1), "pads": (1, 0, 1, 0)}
    own = {"kernel_size": (3, 2), "stride": (2, 1), "padding": (1, 0)}
    b = Net()
    x = b.draw(2, 3, 7, 6)
    y = b.op("max_pool", [x], window)
    _compare(*b.case(y), lambda x: torch.nn.functional.max_pool2d(x, **own))
    b = Net()
    x = b.draw(2, 3, 7, 6)
    y = b.op("avg_pool", [x], {**window, "count_include_pad": int(counts)})
    average = torch.nn.functional.avg_pool2d
    _compare(*b.case(y), lambda x: average(x, **own, count_include_pad=counts))


def test_ties_in_max_pools_like_pytorch():
    torch = _torch()
    b = Net()
    x = b.draw(1, 2, 6, 6)
    b.arrays[x] = np.round(b.arrays[x])
    y = b.op("max_pool", [x], {"kernel": (3, 3), "strides": (2, 2), "pads": (1, 1, 1, 1)})
    _compare(*b.case(y), lambda x: torch.nn.functional.max_pool2d(x, 3, 2, 1))


def test_norms_like_pytorch():
    torch = _torch()
    f = torch.nn.functional
    b = Net()
    x, scale, shift = b.draw(3, 4, 2, 3), b.draw(4), b.draw(4)
    y = b.node("batch_norm", [x, scale, shift])[0]

    def batch_norm(x: Any, scale: Any, shift: Any) -> Any:
        return f.batch_norm(x, None, None, scale, shift, training=True)

    _compare(*b.case(y), batch_norm)
    b = Net()
    x, scale, shift = b.draw(3, 4, 2, 3), b.draw(4), b.draw(4)
    y = b.op("group_norm", [x, scale, shift], {"groups": 2})
    _compare(*b.case(y), lambda x, scale, shift: f.group_norm(x, 2, scale, shift))
    b = Net()
    x, scale, shift = b.draw(3, 4, 5), b.draw(4, 5), b.draw(4, 5)
    y = b.op("layer_norm", [x, scale, shift], {"axes": (1, 2)})
    _compare(*b.case(y), lambda x, scale, shift: f.layer_norm(x, (4, 5), scale, shift))


@pytest.mark.parametrize("size", [1, 3, 5, 7])
def test_local_response_norms_like_pytorch(size):
    b = Net()
    y = b.op("lrn", [b.draw(2, 6, 3, 2)], {"size": size, **LRN})
    norm = _torch().nn.functional.local_response_norm
    _compare(*b.case(y), lambda x: norm(x, size, LRN["alpha"], LRN["beta"], LRN["bias"]))


def test_elements_by_index_like_pytorch():
    torch = _torch()
    indices = np.array([[3, 0, 3], [1, 3, 3]])
    b = Net()
    y = b.op("gather", [b.draw(2, 4, 3), b.constant(indices)], {"axis": 1})
    _compare(*b.case(y), lambda x: x[:, torch.tensor(indices)])
    b = Net()
    y = b.op("gather_elements", [b.draw(2, 4), b.constant(indices)], {"axis": 1})
    _compare(*b.case(y), lambda x: torch.gather(x, 1, torch.tensor(indices)))


def test_running_sums_and_products_like_pytorch():
    torch = _torch()
    b = Net()
    x = b.draw(3, 4)
    b.arrays[x][0, 1] = b.arrays[x][1, 2] = b.arrays[x][1, 3] = 0
    products = b.op("reduce_prod", [x], {"axes": (1,), "keepdims": 0})
    sums = b.op("cumsum", [x], {"axis": 0})
    _compare(*b.case(products, sums), lambda x: (x.prod(1), torch.cumsum(x, 0)))


def test_cross_entropy_like_pytorch():
    torch = _torch()
    b = Net()
    logits = b.draw(4, 5)
    labels = b.constant(np.array([0, 4, 2, 2]), "labels")
    off_on = b.constant(np.array([0.0, 1.0]), "off_on")
    chosen = b.op("one_hot", [labels, off_on], {"axis": 1, "depth": 5})
    picked = b.op("mul", [b.op("log_softmax", [logits], {"axis": 1}), chosen])
    losses = b.op("neg", [b.op("reduce_sum", [picked], {"axes": (1,), "keepdims": 0})])
    y = b.op("reduce_mean", [losses], {"axes": (0,), "keepdims": 0})

    def cross_entropy(x: Any) -> Any:
        return torch.nn.functional.cross_entropy(x, torch.tensor([0, 4, 2, 2]))

    _compare(*b.case(y), cross_entropy)


def test_resized_images_like_pytorch():
    torch = _torch()
    for mode in ("nearest", "bilinear"):
        b = Net()
        x = b.draw(1, 2, 3, 5)
        own = {"mode": "linear", "coordinates": "half_pixel"}
        if mode == "nearest":
            own = {"mode": "nearest", "coordinates": "asymmetric", "rounding": "floor"}
        y = b.op("resize", [x], {"shape": (1, 2, 6, 10), **own})
        _compare(*b.case(y), lambda x, m=mode: torch.nn.functional.interpolate(x, (6, 10), mode=m))


def test_every_float_operator_with_a_rule_is_tested():
    """Operators that get a rule must get a case here."""
    windows = {"conv", "conv_transpose", "conv_weight_gradient", "max_pool", "avg_pool"}
    windows |= {"avg_pool_gradient"}
    named = {
        *UNARY,
        *FUNCTIONS,
        *BINARY,
        *REDUCTIONS,
        *windows,
        "pow",
        "prelu",
        "where",
        "batch_norm",
        "lrn",
    }
    for build in CASES.values():
        b = Net()
        build(b)
        named |= {node.op for node in b.build(list(b.arrays)).nodes}
    assert {name for name, spec in OPS.items() if spec.vjp is not None} <= named
