"""Every operator against ONNX's own reference, and what its inference refuses."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto
from tests.operator_tables import entries, rows

from stridewise.dtypes import dtype_of
from stridewise.errors import GraphError
from stridewise.graph import Attr, Node, PostOp, TensorType
from stridewise.ops import OPS, evaluate, infer

from .index_cases import INDEX_CASES, INDEX_REFUSED
from .math_cases import MATH_CASES
from .norm_cases import NORM_CASES, NORM_REFUSED
from .onnx_case import F32, Array, Case, Rng, draw, expected, image, ints

# --- one case a family ----------------------------------------------------------------------------


def unary(
    op: str, attrs: Mapping[str, float] | None = None, names: Sequence[str] = (), *, positive=False
) -> Callable[[Rng], Case]:
    """Return cases of an elementwise function; ``names`` are ONNX's names of alpha and beta."""

    def make(rng: Rng) -> Case:
        x = 3 * image(rng)
        x = np.abs(x) + F32(0.1) if positive else x
        theirs = dict(zip(names, (attrs or {}).values(), strict=True))
        return Case([x], [(op, ["x0"], theirs)], attrs or {})

    return make


def clip(rng: Rng) -> Case:
    low, high = np.array(-0.5, F32), np.array(0.75, F32)
    constants = {"low": low, "high": high}
    return Case(
        [image(rng)],
        [("Clip", ["x0", "low", "high"], {})],
        {"alpha": -0.5, "beta": 0.75},
        constants,
    )


def swish(rng: Rng) -> Case:
    nodes = [
        ("Mul", ["x0", "alpha"], {}),
        ("Sigmoid", ["y0"], {}),
        ("Mul", ["x0", "y1"], {}),
    ]
    return Case([image(rng)], nodes, {"alpha": 1.5}, {"alpha": np.array(1.5, F32)})


def binary(op: str) -> Callable[[Rng], Case]:
    def make(rng: Rng) -> Case:
        a = image(rng, 2)
        n, c, h, w = a.shape
        shapes = [(n, c, h, w), (1, c, 1, 1), (c, 1, 1), (1,), (n, 1, h, w), (n, c, 1, 1), (w,), ()]
        b = draw(rng, *shapes[rng.integers(len(shapes))])
        b = b + F32(3) if op == "Div" else b
        pair = [a, np.asarray(b)]
        if op != "Div" and rng.integers(2):
            pair.reverse()
        return Case(pair, [(op, ["x0", "x1"], {})])

    return make


def geometry(rng: Rng, rank: int) -> dict[str, tuple[int, ...]]:
    kernel = rng.integers(1, 4, rank)
    return {
        "kernel": ints(kernel),
        "strides": ints(rng.integers(1, 3, rank)),
        "dilations": ints(rng.integers(1, 3, rank)),
        # Less than the kernel, so that every window of a pooling meets the image.
        "pads": ints([rng.integers(0, k) for k in (*kernel, *kernel)]),
    }


def conv(rng: Rng) -> Case:
    x = image(rng)
    g = geometry(rng, x.ndim - 2)
    channels = x.shape[1]
    groups = int(rng.choice([d for d in (1, 3, 8, channels) if channels % d == 0]))
    outputs = groups * int(rng.choice([1, 2, 5]))
    w = draw(rng, outputs, channels // groups, *g["kernel"])
    attrs = {key: g[key] for key in ("strides", "dilations", "pads")}
    theirs = {**attrs, "kernel_shape": g["kernel"], "group": groups}
    if rng.integers(2):
        arrays: list[Array | None] = [x, w, draw(rng, outputs)]
    else:
        arrays = [x, w, None] if rng.integers(2) else [x, w]
    inputs = [f"x{i}" for i, array in enumerate(arrays) if array is not None]
    return Case(arrays, [("Conv", inputs, theirs)], {**attrs, "groups": groups}, rtol=2e-5)


def conv_transpose(rng: Rng) -> Case:
    # ONNX's reference is wrong for groups, so each group is an operator of its own.
    x = draw(rng, 2, int(rng.choice([3, 6])), *rng.integers(2, 5, int(rng.integers(1, 4))))
    g = geometry(rng, x.ndim - 2)
    groups = int(rng.choice([1, 1, 3]))
    channels, outputs = x.shape[1], int(rng.choice([1, 2, 5]))
    w = draw(rng, channels, outputs, *g["kernel"])
    extra = ints(rng.integers(0, g["strides"]))
    window = {key: g[key] for key in ("strides", "dilations", "pads")}
    names = [f"p{group}" for group in range(groups)]
    arrays: list[Array | None] = [x, w, draw(rng, groups * outputs)]
    constants = {
        "column": np.array([-1, *[1] * (x.ndim - 2)]),
        **dict(zip(names, np.split(w, groups), strict=True)),
    }
    nodes: list[tuple[str, Sequence[str], dict[str, Any]]] = []
    for group, name in enumerate(names):
        step = channels // groups
        constants |= {f"from{group}": np.array([step * group]), "one": np.array([1])}
        constants[f"to{group}"] = np.array([step * (group + 1)])
        nodes.append(("Slice", ["x0", f"from{group}", f"to{group}", "one"], {}))
        theirs = {**window, "output_padding": extra, "kernel_shape": g["kernel"], "group": 1}
        nodes.append(("ConvTranspose", [f"y{len(nodes) - 1}", name], theirs))
    pieces = [f"y{2 * group + 1}" for group in range(groups)]
    nodes.append(("Concat", pieces, {"axis": 1}))
    nodes.append(("Reshape", ["x2", "column"], {}))
    nodes.append(("Add", [f"y{len(nodes) - 2}", f"y{len(nodes) - 1}"], {}))
    pads = g["pads"]
    rank = len(extra)
    ends = tuple(pad - more for pad, more in zip(pads[rank:], extra, strict=True))
    attrs: dict[str, Attr] = {**window, "pads": pads[:rank] + ends, "groups": groups}
    return Case(arrays, nodes, attrs, constants, rtol=2e-5)


def interpolate(rng: Rng) -> Case:
    x = image(rng)
    axis = int(rng.integers(x.ndim))
    matrix = draw(rng, 3, x.shape[axis])
    front = [axis, *(a for a in range(x.ndim) if a != axis)]
    back = [front.index(a) for a in range(x.ndim)]
    rest = [x.shape[a] for a in front[1:]]
    constants = {"flat": np.array([x.shape[axis], -1]), "full": np.array([3, *rest])}
    nodes = [
        ("Transpose", ["x0"], {"perm": front}),
        ("Reshape", ["y0", "flat"], {}),
        ("MatMul", ["x1", "y1"], {}),
        ("Reshape", ["y2", "full"], {}),
        ("Transpose", ["y3"], {"perm": back}),
    ]
    return Case([x, matrix], nodes, {"axis": axis}, constants, rtol=1e-5)


def pool(op: str) -> Callable[[Rng], Case]:
    def make(rng: Rng) -> Case:
        x = image(rng)
        g = geometry(rng, x.ndim - 2)
        theirs: dict[str, Any] = {key: g[key] for key in ("strides", "dilations", "pads")}
        theirs["kernel_shape"] = g["kernel"]
        attrs: dict[str, Attr] = dict(g)
        if op == "AveragePool":
            attrs["count_include_pad"] = theirs["count_include_pad"] = int(rng.integers(2))
        return Case([x], [(op, ["x0"], theirs)], attrs)

    return make


def lrn(rng: Rng) -> Case:
    # ONNX's reference of LRN looks at the first channels only, so its formula is written out:
    # the mean of squares over a window of channels is an average pooling.
    x = image(rng, 2)
    size = int(rng.integers(1, 7))
    before, after = (size - 1) // 2, size // 2
    attrs: dict[str, Attr] = {"alpha": 0.1, "beta": 0.7, "bias": 1.5, "size": size}
    window = {"kernel_shape": [size, 1], "pads": [before, 0, after, 0], "count_include_pad": 1}
    constants = {
        "flat": np.array([x.shape[0], 1, x.shape[1], -1]),
        "shape": np.array(x.shape),
        **{key: np.array(attrs[key], F32) for key in ("alpha", "beta", "bias")},
    }
    nodes = [
        ("Mul", ["x0", "x0"], {}),
        ("Reshape", ["y0", "flat"], {}),
        ("AveragePool", ["y1"], window),
        ("Reshape", ["y2", "shape"], {}),
        ("Mul", ["y3", "alpha"], {}),
        ("Add", ["y4", "bias"], {}),
        ("Pow", ["y5", "beta"], {}),
        ("Div", ["x0", "y6"], {}),
    ]
    return Case([x], nodes, attrs, constants)


def scale_shift(rng: Rng) -> Case:
    x = image(rng)
    channels = x.shape[1]
    constants = {"mean": np.zeros(channels, F32), "var": np.ones(channels, F32)}
    node = ("BatchNormalization", ["x0", "x1", "x2", "mean", "var"], {"epsilon": 0.0})
    return Case([x, draw(rng, channels), draw(rng, channels)], [node], {}, constants)


def matmul(rng: Rng) -> Case:
    m, k, n = (int(rng.choice([1, 3, 17])) for _ in range(3))
    forms = [
        ((m, k), (k, n)),
        ((2, m, k), (k, n)),
        ((2, 1, m, k), (3, k, n)),
        ((m, k), (2, k, n)),
        ((k,), (k, n)),
        ((m, k), (k,)),
        ((2, m, k), (k,)),
        ((k,), (k,)),
        ((k,), (2, k, n)),
    ]
    a_shape, b_shape = forms[rng.integers(len(forms))]
    a, b = draw(rng, *a_shape), draw(rng, *b_shape)
    nodes: list[tuple[str, Sequence[str], dict[str, Any]]] = []
    attrs: dict[str, Attr] = {}
    names = ["x0", "x1"]
    arrays = [a, b]
    if a.ndim > 1 and b.ndim > 1:
        for index, key in enumerate(("trans_a", "trans_b")):
            if rng.integers(2):
                arrays[index] = np.ascontiguousarray(np.swapaxes(arrays[index], -1, -2))
                perm = [*range(arrays[index].ndim - 2), arrays[index].ndim - 1]
                perm.append(arrays[index].ndim - 2)
                attrs[key] = 1
                nodes.append(("Transpose", [names[index]], {"perm": perm}))
                names[index] = f"y{len(nodes) - 1}"
    nodes.append(("MatMul", names, {}))
    if b.ndim > 1 and rng.integers(2):
        arrays.append(draw(rng, n))
        nodes.append(("Add", [f"y{len(nodes) - 1}", "x2"], {}))
    return Case(arrays, nodes, attrs, rtol=2e-5)


def reshape(rng: Rng) -> Case:
    x = image(rng)
    shape = (x.shape[0], x.size // x.shape[0], 1)
    constants = {"shape": np.array(shape, np.int64)}
    return Case([x], [("Reshape", ["x0", "shape"], {})], {"shape": shape}, constants)


def transpose(rng: Rng) -> Case:
    x = image(rng)
    perm = ints(rng.permutation(x.ndim))
    return Case([x], [("Transpose", ["x0"], {"perm": perm})], {"perm": perm})


def concat(rng: Rng) -> Case:
    x = image(rng, 2)
    axis = int(rng.integers(4))
    pieces = [x]
    for _ in range(rng.integers(3)):
        shape = list(x.shape)
        shape[axis] = int(rng.integers(1, 4))
        pieces.append(draw(rng, *shape))
    inputs = [f"x{i}" for i in range(len(pieces))]
    return Case(pieces, [("Concat", inputs, {"axis": axis})], {"axis": axis})


def softmax(op: str) -> Callable[[Rng], Case]:
    def make(rng: Rng) -> Case:
        x = 5 * image(rng)
        axis = int(rng.integers(x.ndim))
        return Case([x], [(op, ["x0"], {"axis": axis})], {"axis": axis}, rtol=2e-5)

    return make


def cast(rng: Rng) -> Case:
    return Case([10 * image(rng)], [("Cast", ["x0"], {"to": TensorProto.INT64})], {"to": "int64"})


def quantization(op: str) -> Callable[[Rng], Case]:
    def make(rng: Rng) -> Case:
        x, stored = image(rng), rng.choice([np.int8, np.uint8])
        axis = int(rng.integers(-x.ndim, x.ndim))
        shape = () if rng.integers(2) else (x.shape[axis],)
        scale = np.asarray(np.exp(draw(rng, *shape) - 3), F32)
        limits = np.iinfo(stored)
        zero = np.asarray(rng.integers(limits.min, limits.max + 1, shape), stored)
        if op == "DequantizeLinear":
            stored = rng.choice([stored, np.int32])
            zero = zero.astype(stored)
            span = (-(2**31), 2**31) if stored is np.int32 else (limits.min, limits.max + 1)
            # ONNX's reference subtracts zero points of 32 bits with overflow.
            zero = np.zeros(shape, stored) if stored is np.int32 else zero
            x = rng.integers(*span, x.shape).astype(stored)
        return Case([x, scale, zero], [(op, ["x0", "x1", "x2"], {"axis": axis})], {"axis": axis})

    return make


CASES: dict[str, Callable[[Rng], Case]] = {
    **INDEX_CASES,
    **MATH_CASES,
    **NORM_CASES,
    **entries("CASES"),
    "abs": unary("Abs"),
    "add": binary("Add"),
    "avg_pool": pool("AveragePool"),
    "cast": cast,
    "clip": clip,
    "concat": concat,
    "conv": conv,
    "conv_transpose": conv_transpose,
    "dequantize_linear": quantization("DequantizeLinear"),
    "div": binary("Div"),
    "elu": unary("Elu", {"alpha": 0.3}, ["alpha"]),
    "exp": unary("Exp"),
    "gelu": unary("Gelu"),
    "hard_sigmoid": unary("HardSigmoid", {"alpha": 0.3, "beta": 0.4}, ["alpha", "beta"]),
    "hard_swish": unary("HardSwish"),
    "identity": unary("Identity"),
    "interpolate": interpolate,
    "leaky_relu": unary("LeakyRelu", {"alpha": 0.2}, ["alpha"]),
    "log": unary("Log", positive=True),
    "log_softmax": softmax("LogSoftmax"),
    "lrn": lrn,
    "matmul": matmul,
    "max_pool": pool("MaxPool"),
    "maximum": binary("Max"),
    "minimum": binary("Min"),
    "mul": binary("Mul"),
    "neg": unary("Neg"),
    "quantize_linear": quantization("QuantizeLinear"),
    "reciprocal": unary("Reciprocal", positive=True),
    "relu": unary("Relu"),
    "reshape": reshape,
    "scale_shift": scale_shift,
    "sigmoid": unary("Sigmoid"),
    "softmax": softmax("Softmax"),
    "softplus": unary("Softplus"),
    "sqrt": unary("Sqrt", positive=True),
    "sub": binary("Sub"),
    "swish": swish,
    "tanh": unary("Tanh"),
    "transpose": transpose,
}


GRADIENTS = {name for name in OPS if name.endswith("_gradient")}


def test_every_operator_is_compared_with_onnx():
    # What another runtime computes has tests of its own, with that runtime. Operators of training,
    # which ONNX does not have, have tests of their own, with finite differences and PyTorch.
    others = {"fallback", "batch_norm", "max_pool_places"} | GRADIENTS
    assert sorted(CASES) == sorted(set(OPS) - others)


@pytest.mark.parametrize("op", sorted(CASES))
def test_evaluate_is_what_onnx_defines_and_infer_agrees(op):
    for seed in range(8):
        case = CASES[op](np.random.default_rng(seed))
        inputs = tuple("" if array is None else f"x{i}" for i, array in enumerate(case.arrays))
        node = Node("n", op, inputs, ("y",), tuple(sorted(case.attrs.items())))
        types = tuple(
            None if array is None else TensorType(dtype_of(array.dtype), array.shape)
            for array in case.arrays
        )
        result = evaluate(node, case.arrays)[case.result]
        inferred = infer(node, types)[case.result]
        wanted = expected(case)
        assert TensorType(dtype_of(result.dtype), result.shape) == inferred, (seed, node)
        assert result.shape == wanted.shape, (seed, node)
        scale = float(np.abs(wanted.astype(np.float64)).max(initial=1e-30))
        np.testing.assert_allclose(
            result, wanted, rtol=0, atol=case.rtol * scale, err_msg=str(seed)
        )


def test_division_of_integers_is_towards_zero():
    a, b = np.array([7, -7, 7, -7, 0]), np.array([2, 2, -2, -2, 5])
    (result,) = evaluate(Node("n", "div", ("a", "b"), ("y",)), [a, b])
    assert result.tolist() == [3, -3, -3, 3, 0]


def test_post_ops_are_applied_in_order():
    x, y, z = (draw(np.random.default_rng(seed), 2, 3) for seed in range(3))
    post = (PostOp("add", operand=1), PostOp("clip", -0.5, 0.5), PostOp("mul", operand=2))
    node = Node("n", "neg", ("x", "y", "z"), ("r",), (), post)
    (result,) = evaluate(node, [x, y, z])
    np.testing.assert_allclose(result, np.clip(-x + y, -0.5, 0.5) * z, rtol=1e-6)
    assert infer(node, (TensorType(dtype_of("f32"), (2, 3)),) * 3)[0].shape == (2, 3)


@pytest.mark.parametrize("value", [-100.0, -1e4, 100.0, 1e4])
@pytest.mark.parametrize("op", ["sigmoid", "swish", "softplus", "elu", "tanh", "gelu"])
def test_activations_do_not_overflow(op, value):
    (result,) = evaluate(Node("n", op, ("x",), ("y",)), [np.array([value], F32)])
    limit = {"sigmoid": 1.0, "tanh": 1.0, "elu": -1.0}.get(op, value)
    if value < 0:
        limit = {"elu": -1.0, "tanh": -1.0}.get(op, 0.0)
    elif op == "elu":
        limit = value
    np.testing.assert_allclose(result, [limit], atol=1e-6)


# --- what inference refuses -----------------------------------------------------------------------

X, W = (1, 4, 5, 5), (6, 4, 3, 3)

REFUSED: list[tuple[str, list[tuple[int, ...] | None], dict[str, Attr], str]] = [
    ("conv", [X], {}, "2 to 3 inputs, found 1"),
    ("conv", [(4, 5), W], {}, "an input of rank 3 to 5, found f32[4,5]"),
    ("conv", [X, (6, 4, 3)], {}, "weights of rank 4, found f32[6,4,3]"),
    ("conv", [X, (6, 3, 3, 3)], {}, "3 input channels, found 4 in f32[1,4,5,5]"),
    ("conv", [X, W], {"groups": 4}, "groups that divide the outputs, found 4"),
    ("conv", [X, W, (5,)], {}, "a bias of 6, found f32[5]"),
    ("conv", [X, W], {"strides": (0, 1)}, "positive strides and dilations, pads of 0 or more"),
    ("conv", [X, W], {"pads": (1, 1)}, "strides, dilations and pads for 2 spatial axes"),
    ("conv", [X, (6, 4, 7, 7)], {}, "a window that fits into the padded input"),
    ("conv", [X, None], {}, "input 1, found none"),
    ("conv_transpose", [(4, 5), (4, 5)], {}, "an input of rank 3 to 5, found f32[4,5]"),
    ("conv_transpose", [X, (4, 6, 3)], {}, "weights of rank 4, found f32[4,6,3]"),
    ("conv_transpose", [X, W], {}, "6 input channels, found 4 in f32[1,4,5,5]"),
    ("conv_transpose", [X, (4, 6, 3, 3)], {"groups": 3}, "groups that divide the inputs, found 3"),
    ("conv_transpose", [X, (4, 6, 3, 3), (6,)], {"groups": 2}, "a bias of 12, found f32[6]"),
    ("conv_transpose", [X, (4, 6, 3, 3)], {"pads": (1,)}, "strides, dilations and pads for 2"),
    ("conv_transpose", [X, (4, 6, 3, 3)], {"pads": (-1, 0, 0, 0)}, "positive strides and dilat"),
    (
        "conv_transpose",
        [X, (4, 6, 3, 3)],
        {"pads": (0, 0, -2, -1), "strides": (2, 2)},
        "ends that add less than a stride, found (-2, -1) and strides (2, 2)",
    ),
    ("conv_transpose", [X, (4, 6, 3, 3)], {"pads": (4, 4, 3, 3)}, "pads that leave something"),
    ("max_pool", [X], {}, "attribute 'kernel', found none"),
    ("max_pool", [X], {"kernel": (7, 7)}, "a window that fits into the padded input"),
    ("avg_pool", [X], {"kernel": (2,)}, "kernel, strides, dilations, pads for 2 spatial axes"),
    ("avg_pool", [X], {"kernel": (2, 0)}, "positive sizes, pads of 0 or more"),
    ("max_pool", [(4, 4)], {"kernel": ()}, "an input of rank 3 to 5, found f32[4,4]"),
    ("lrn", [(3, 4)], {"size": 3}, "an input of rank 3 to 5, found f32[3,4]"),
    ("lrn", [X], {"size": 0}, "a positive size, found 0"),
    ("scale_shift", [(4,), (4,), (4,)], {}, "an input with a channel axis, found f32[4]"),
    ("scale_shift", [X, (4,), (5,)], {}, "input 2 to be f32[4], found f32[5]"),
    ("add", [X, (3,)], {}, "shapes that broadcast, found f32[1,4,5,5] and f32[3]"),
    ("matmul", [(2, 3), (4, 5)], {}, "equal inner extents, found f32[2,3] and f32[4,5]"),
    ("matmul", [(), (4, 5)], {}, "operands of rank 1 or more"),
    ("matmul", [(4,), (4, 5)], {"trans_b": 1}, "matrices where one is transposed"),
    ("matmul", [(2, 2, 3), (3, 3, 4)], {}, "batch extents that broadcast"),
    ("matmul", [(2, 3), (3, 4), (3,)], {}, "a bias of (4,), found f32[3]"),
    ("reduce_sum", [X], {"axes": (4,)}, "distinct axes below 4, found (4,)"),
    ("reduce_sum", [X], {"axes": (1, 1)}, "distinct axes below 4, found (1, 1)"),
    ("reshape", [X], {"shape": (3, 3)}, "100 elements, found (3, 3)"),
    ("transpose", [X], {"perm": (0, 1, 2)}, "a permutation of 4 axes, found (0, 1, 2)"),
    ("concat", [X, (1, 4, 5)], {"axis": 1}, "pieces like f32[1,4,5,5], found f32[1,4,5]"),
    ("concat", [X, (1, 4, 5, 6)], {"axis": 1}, "pieces like f32[1,4,5,5], found f32[1,4,5,6]"),
    ("concat", [X], {"axis": -1}, "an axis below 4, found -1"),
    ("concat", [], {"axis": 0}, "1 to any inputs, found 0"),
    ("softmax", [X], {"axis": 4}, "an axis below 4, found 4"),
    ("resize", [X], {"shape": (1, 4, 0, 5), "mode": "linear"}, "a shape of 4 positive extents"),
    ("resize", [X], {"shape": (1, 4, 5, 5), "mode": "area"}, "one of nearest, linear, cubic"),
    ("interpolate", [X, (3, 5)], {"axis": 4}, "an axis below 4, found 4"),
    ("interpolate", [X, (5, 3)], {"axis": 2}, "a matrix of 5 columns of dtype float32"),
    *INDEX_REFUSED,
    *NORM_REFUSED,
    *rows("REFUSED"),
    ("relu", [X, X], {}, "1 inputs, found 2"),
]


@pytest.mark.parametrize(("op", "shapes", "attrs", "message"), REFUSED)
def test_inputs_that_do_not_fit_are_refused_with_the_name_of_the_node(op, shapes, attrs, message):
    inputs = tuple(f"x{i}" for i in range(len(shapes)))
    node = Node("the node", op, inputs, ("y",), tuple(sorted(attrs.items())))
    types = tuple(None if s is None else TensorType(dtype_of("f32"), s) for s in shapes)
    with pytest.raises(GraphError) as caught:
        infer(node, types)
    assert str(caught.value).startswith(f"node 'the node' ({op}): expected {message}")


@pytest.mark.parametrize(
    ("op", "dtypes", "message"),
    [
        ("sigmoid", ["int64"], "a float tensor, found int64"),
        ("relu", ["uint8"], "a tensor of signed numbers, found uint8"),
        ("logical_and", ["int64", "int64"], "a tensor of bool, found int64"),
        ("bitwise_or", ["float32", "float32"], "a tensor of integers, found float32"),
        ("where", ["float32", "bool", "bool"], "a tensor of bool, found float32"),
        ("add", ["float32", "int64"], "two operands of dtype float32, found int64"),
        ("matmul", ["float32", "float64"], "two operands of dtype float32, found float64"),
    ],
)
def test_dtypes_that_do_not_fit_are_refused(op, dtypes, message):
    node = Node("the node", op, tuple("abc")[: len(dtypes)], ("y",))
    with pytest.raises(GraphError) as caught:
        infer(node, tuple(TensorType(dtype_of(dtype), (3, 3)) for dtype in dtypes))
    assert str(caught.value) == f"node 'the node' ({op}): expected {message}"
