"""Convolutions of 1x1 by kernels of our own, with factors of their source; plans with them."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import stridewise as sw
from stridewise.dtypes import dtype_of
from stridewise.formats import algebra
from stridewise.graph import Graph
from stridewise.ops import evaluate

from .graphs import Net, error, inputs_of
from .winograd_layers import CORE, F32, HALF_KERNELS, KERNELS, KINDS, Array, format_of, stored

CLIP = ("eltwise", "clip", -1.0, 1.5)
SWISH = ("eltwise", "swish", 1.0, 0.0)


def swish(x: Array) -> Array:
    return x / (1 + np.exp(-x))


FUNCTIONS = {CLIP: lambda x: np.clip(x, -1, 1.5), SWISH: swish}
OPERATIONS = {"add": np.add, "mul": np.multiply, "sum": np.add}


@dataclass(frozen=True)
class Layer:
    images: int = 1
    channels: int = 8
    outputs: int = 16
    height: int = 6
    width: int = 5
    groups: int = 1
    strides: tuple[int, int] = (1, 1)
    has_bias: bool = True
    has_factor: bool = False
    before: tuple[Any, ...] = ()
    after: tuple[Any, ...] = field(default=())

    @property
    def src(self) -> tuple[int, ...]:
        return self.images, self.channels, self.height, self.width

    @property
    def dst(self) -> tuple[int, ...]:
        height, width = (
            -(-extent // stride)
            for extent, stride in zip((self.height, self.width), self.strides, strict=True)
        )
        return self.images, self.outputs, height, width


class Case:
    """A layer with numbers, in a program of one step over memory of NaN."""

    def __init__(self, layer: Layer) -> None:
        rng, self.layer = np.random.default_rng(0), layer
        self.x = rng.normal(size=layer.src).astype(F32)
        inner = layer.channels // layer.groups
        self.w = rng.normal(0, inner**-0.5, (layer.outputs, inner, 1, 1)).astype(F32)
        self.bias = rng.normal(size=layer.outputs).astype(F32)
        self.factor = rng.uniform(0, 1, (*layer.src[:2], 1, 1)).astype(F32)
        self.operands = [
            rng.normal(size=layer.dst).astype(F32) for post in layer.after if post[0] != "eltwise"
        ]

    def wanted(self) -> Array:
        layer, operands = self.layer, iter(self.operands)
        x = self.x.astype(float) * (self.factor if layer.has_factor else 1)
        for post in layer.before:
            x = FUNCTIONS[post](x)
        groups, (down, across) = layer.groups, layer.strides
        x = x[:, :, ::down, ::across].reshape(layer.images, groups, -1, prod(layer.dst[2:]))
        w = self.w.reshape(groups, layer.outputs // groups, -1)
        y = np.einsum("ngcp,gmc->ngmp", x, w).reshape(layer.dst)
        y += self.bias.reshape(-1, 1, 1) * layer.has_bias
        for post in layer.after:
            known = FUNCTIONS.get(post)
            y = known(y) if known else OPERATIONS[post[-1]](y, next(operands))
        return y

    def found(
        self,
        kind: str,
        kernel: tuple[int, str],
        threads: int = 2,
        dtypes: tuple[str, str] = ("f32", "f32"),
    ) -> Array:
        layer, (lanes, isa) = self.layer, kernel
        fmt = format_of(kind, lanes)
        tag = "acdb" if kind == "channels-last" else f"aBcd{lanes}b"
        shapes = zip((layer.src, layer.dst), dtypes, strict=True)
        src, dst = (CORE.MemoryDesc(dims, dtype, tag) for dims, dtype in shapes)
        posts = [
            ("sum", 1.0) if post == ("sum",) else (*post, dst) if post[0] == "binary" else post
            for post in (*layer.before, *layer.after)
        ]
        op = CORE.Conv1x1(
            src, dst, layer.has_bias, layer.has_factor, posts,
            between=len(layer.before), lanes=lanes, threads=threads, strides=layer.strides,
            groups=layer.groups, isa=isa,
        )  # fmt: skip
        assert op.impl == f"conv1x1:{isa}"
        weights = CORE.Buffer(op.arg_desc(CORE.ARG_WEIGHTS).nbytes)
        dims = op.arg_desc(CORE.ARG_WEIGHTS).dims
        given = CORE.MemoryDesc(dims, "f32", "abcde"[: len(dims)])
        CORE.prepack_into(self.w.reshape(dims), given, op.arg_desc(CORE.ARG_WEIGHTS), weights, 0, 1)
        inputs = [stored(self.x, fmt, dtypes[0]), stored(self.factor, fmt)]
        inputs += [stored(item, fmt, dtypes[1]) for item in self.operands]
        numbers = dtype_of(dtypes[1]).numpy
        result = np.full(dst.nbytes // numbers.itemsize, np.nan, numbers)
        nbytes = [item.nbytes for item in inputs]
        program = CORE.Program(
            op.scratchpad_nbytes, [weights, self.bias], nbytes, [result.nbytes], threads
        )
        places = {CORE.ARG_SRC: (2, 0), CORE.ARG_WEIGHTS: (1, 0), CORE.ARG_BIAS: (1, 1)}
        places |= {CORE.ARG_SRC_1: (2, 1), CORE.ARG_DST: (3, 0), CORE.ARG_SCRATCHPAD: (0, 0)}
        others = [post for post in layer.after if post[0] != "eltwise"]
        for index, post in enumerate(posts):
            if post[0] == "binary":
                number = 2 + others.index(layer.after[index - len(layer.before)])
                places[CORE.post_op_arg(index)] = (2, number)
        if ("sum",) in others:
            program.add_copy((3, 0, 0), (2, 2 + others.index(("sum",)), 0), result.nbytes)
        args = [*op.args, CORE.ARG_SCRATCHPAD]
        program.add_primitive(op, [(a, op.arg_desc(a), *places[a], 0) for a in args])
        program.freeze()
        program.poison = True
        program.run(inputs, [result])
        at = algebra.offsets(fmt, layer.dst)
        mask = np.ones(result.size, bool)
        mask[at] = False
        assert (result[mask] == 0).all(), "spare lanes"
        return result[at]


LAYERS = {
    "one vector": Layer(),
    "one channel": Layer(channels=1, outputs=1, has_factor=True),
    "tails": Layer(channels=27, outputs=61, height=9, width=7, has_factor=True, after=(SWISH,)),
    "one vector and a tail": Layer(channels=50, outputs=40, has_factor=True, after=(CLIP,)),
    "three vectors": Layer(channels=96, outputs=48, height=14, width=14, after=(("sum",), CLIP)),
    "batch": Layer(5, 24, 40, 5, 6, has_factor=True, before=(CLIP,), after=(("binary", "add"),)),
    "one pixel": Layer(channels=40, outputs=33, height=1, width=1, has_factor=True),
    "no bias": Layer(2, 13, 27, has_bias=False, after=(SWISH, ("binary", "mul"), CLIP)),
    "functions": Layer(channels=19, outputs=35, before=(SWISH, CLIP), after=(CLIP, SWISH)),
    "bands": Layer(channels=160, outputs=24, height=60, width=33, has_factor=True),
    "scaled weights": Layer(2, 40, 24, 20, 18, has_factor=True, after=(("sum",),)),
    "splits": Layer(channels=70, outputs=320, height=7, width=7, has_factor=True),
    "depths": Layer(2, 2200, 70, 7, 5, after=(("sum",), CLIP)),
    "depths and a tail": Layer(1, 1037, 48, 6, 5, after=(("binary", "add"), SWISH)),
    # A power of two between pixels: few of them have their lines in the same set of a cache.
    "few pixels": Layer(1, 2048, 64, 7, 7, after=(("binary", "add"), CLIP)),
    "strides": Layer(2, 40, 72, 15, 12, strides=(2, 2), after=(("sum",), CLIP)),
    "other strides": Layer(1, 600, 35, 13, 17, strides=(3, 2), has_factor=True, before=(SWISH,)),
    "a stride": Layer(1, 24, 96, 56, 56, strides=(1, 2), has_factor=True, after=(CLIP,)),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("kernel", KERNELS, ids=str)
@pytest.mark.parametrize("name", LAYERS)
def test_layers(name, kernel, kind):
    case = Case(LAYERS[name])
    # Rounding errors of a sum of many products.
    limit = max(2e-6, 2**-23 * case.layer.channels**0.5)
    assert error(case.found(kind, kernel), case.wanted()) <= limit


GROUPS = {
    "tails": Layer(2, 24, 26, groups=2, has_factor=True, after=(SWISH,)),
    "light": Layer(1, 16, 96, 30, 31, groups=2, before=(CLIP,), after=(CLIP,)),
    "whole blocks": Layer(3, 64, 96, groups=2, has_factor=True, after=(("binary", "add"),)),
    "scaled weights": Layer(2, 96, 96, 15, 14, groups=3, has_factor=True, has_bias=False),
    "heavy": Layer(1, 400, 210, 7, 7, groups=2, has_factor=True, after=(("sum",),)),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("kernel", KERNELS, ids=str)
@pytest.mark.parametrize("name", GROUPS)
def test_groups(name, kernel, kind):
    case, each = Case(GROUPS[name]), GROUPS[name].groups * kernel[0]
    if kind == "blocked" and any(n % each for n in (case.layer.channels, case.layer.outputs)):
        with pytest.raises(ValueError, match="expected groups of whole blocks"):
            case.found(kind, kernel)
    else:
        assert error(case.found(kind, kernel), case.wanted()) <= 2e-6


_POSTS = st.sampled_from([CLIP, SWISH, ("binary", "add"), ("binary", "mul")])


@settings(deadline=None, max_examples=150)
@given(
    st.builds(
        Layer,
        images=st.integers(1, 3),
        channels=st.integers(1, 70),
        outputs=st.integers(1, 100),
        height=st.integers(1, 16),
        width=st.integers(1, 16),
        strides=st.tuples(st.integers(1, 3), st.integers(1, 3)),
        has_bias=st.booleans(),
        has_factor=st.booleans(),
        before=st.lists(st.sampled_from([CLIP, SWISH]), max_size=2).map(tuple),
        after=st.lists(_POSTS, max_size=3, unique=True).map(tuple),
    ),
    st.booleans(),
    st.sampled_from(KERNELS),
    st.sampled_from(KINDS),
    st.integers(1, 3),
)
def test_any_layer(layer, sums, kernel, kind, threads):
    after = (("sum",), *layer.after) if sums else layer.after
    case = Case(Layer(**{**vars(layer), "after": after}))
    assert error(case.found(kind, kernel, threads), case.wanted()) <= 3e-6


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["bands", "depths", "few pixels", "other strides"])
def test_results_do_not_depend_on_threads(name, kind):
    case = Case(LAYERS[name])
    one, three = (case.found(kind, KERNELS[0], threads) for threads in (1, 3))
    np.testing.assert_array_equal(one, three)


@pytest.mark.parametrize("kernel", KERNELS, ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_nan_and_infinity_stay_in_their_pixel(kind, kernel):
    case = Case(Layer(channels=20, outputs=20, has_factor=True))
    case.x[0, 3, 2, 1], case.x[0, 17, 4, 4] = np.nan, np.inf
    found = case.found(kind, kernel)
    assert set(zip(*np.nonzero(~np.isfinite(found).all(1)[0]), strict=True)) == {(2, 1), (4, 4)}


_KEEPING = (
    *(CLIP, SWISH, ("binary", "max"), ("binary", "min"), ("eltwise", "logistic", 0.0, 0.0)),
    *(("eltwise", name, 0.0, 0.0) for name in ("tanh", "gelu_erf", "exp", "sqrt")),
    *(("eltwise", name, 1 / 6, 0.5) for name in ("hardsigmoid", "hardswish")),
)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("kernel", KERNELS, ids=str)
@settings(deadline=None, max_examples=40)
@given(st.sampled_from(_KEEPING), st.integers(0x7FC00000, 0x7FFFFFFF), st.booleans())
def test_post_ops_keep_nan_of_any_bits(kind, kernel, post, bits, negative):
    case = Case(Layer(channels=20, outputs=20, after=(post,)))
    case.bias[:] += 9  # no square root of a negative number
    case.x[0, 3, 2, 1] = np.uint32(bits + (negative << 31)).view(F32)
    pixels = {(2, 1)}
    for operand in case.operands:
        operand[0, :, 4, 4] = np.nan
        pixels.add((4, 4))
    found = np.isnan(case.found(kind, kernel)[0])
    assert set(zip(*np.nonzero(found.all(0)), strict=True)) == pixels
    assert (found.any(0) == found.all(0)).all()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"between": 2}, "expected post-ops of the source"),
        ({"posts": [("sum", 1.0)]}, "post-ops of the source have no operands"),
        ({"threads": 0}, "threads: expected at least 1"),
        ({"lanes": 4}, "expected vectors of 8 or 16 lanes"),
        ({"dst": (1, 8, 4, 5)}, "conv1x1: expected"),
        ({"strides": (2, 0)}, "expected positive strides"),
        ({"strides": (2,)}, "expected strides of two axes"),
        ({"strides": (2, 2)}, "conv1x1: expected"),
        ({"groups": 3}, "expected groups that divide the channels"),
        ({"isa": "mmx"}, "there are no mmx kernels of 8 lanes"),
    ],
    ids=str,
)
def test_what_cannot_be_is_refused(arguments, message):
    given_ = {"posts": [SWISH], "between": 1, "threads": 1, "lanes": 8, "isa": "", **arguments}
    src = CORE.MemoryDesc((1, 8, 4, 4), "f32", "acdb")
    dst = CORE.MemoryDesc(given_.pop("dst", (1, 8, 4, 4)), "f32", "acdb")
    with pytest.raises(ValueError, match=message):
        CORE.Conv1x1(src, dst, True, False, given_.pop("posts"), **given_)


# --- bfloat16 -------------------------------------------------------------------------------------

PAIRS = [kernel for kernel in HALF_KERNELS if kernel[1] in ("avx512_bf16", "portable")]


def rounded(array: Array) -> Array:
    return array.astype(dtype_of("bf16").numpy).astype(F32)


def check_pairs(layer: Layer, kernel: tuple[int, str], result: str, threads: int = 2) -> None:
    case = Case(layer)
    case.x, case.w = rounded(case.x), rounded(case.w)
    case.operands = [rounded(item) for item in case.operands] if result == "bf16" else case.operands
    found = case.found("channels-last", kernel, threads, ("bf16", result)).astype(float)
    wanted = case.wanted()
    size = np.abs(wanted).max()
    # Functions before a result of 16 bits have 14 bits, and results have 9.
    step = 2.0**-8 if result == "bf16" else 0.0
    inner = 1e-4 if SWISH in layer.after else 2**-22 * layer.channels**0.5
    assert (np.abs(found - wanted) <= step * np.abs(wanted) + inner * size).all()


HALF_LAYERS = {
    "one pair": Layer(channels=2, outputs=1),
    "tails": Layer(channels=70, outputs=61, height=9, width=7, after=(SWISH,)),
    "whole vectors": Layer(2, 64, 96, 14, 14, after=(("sum",), CLIP)),
    "operands": Layer(channels=96, outputs=48, after=(("binary", "add"), CLIP)),
    "more operands": Layer(channels=34, outputs=64, after=(("binary", "mul"), ("sum",))),
    "depths": Layer(2, 2202, 70, 7, 5, after=(("sum",), CLIP)),
    "few pixels": Layer(1, 4096, 64, 7, 7, after=(("binary", "add"), CLIP)),
    "strides": Layer(2, 40, 72, 15, 12, strides=(2, 2), after=(("sum",), CLIP)),
    "one pixel": Layer(channels=40, outputs=96, height=1, width=1),
    "vector between pixels": Layer(channels=32, outputs=64, has_bias=False),
}


@pytest.mark.parametrize("result", ["bf16", "f32"])
@pytest.mark.parametrize("kernel", PAIRS, ids=str)
@pytest.mark.parametrize("name", HALF_LAYERS)
def test_pairs_of_bfloat16(name, kernel, result):
    check_pairs(HALF_LAYERS[name], kernel, result)


@settings(deadline=None, max_examples=100)
@given(
    st.builds(
        Layer,
        images=st.integers(1, 3),
        channels=st.integers(1, 70).map(lambda pairs: 2 * pairs),
        outputs=st.integers(1, 100),
        height=st.integers(1, 16),
        width=st.integers(1, 16),
        strides=st.tuples(st.integers(1, 3), st.integers(1, 3)),
        has_bias=st.booleans(),
        after=st.lists(_POSTS, max_size=3, unique=True).map(tuple),
    ),
    st.sampled_from(PAIRS),
    st.sampled_from(["bf16", "f32"]),
    st.integers(1, 3),
)
def test_any_pairs(layer, kernel, result, threads):
    check_pairs(layer, kernel, result, threads)


@pytest.mark.parametrize(
    ("dtypes", "changes"),
    [
        (("f32", "bf16"), {}),
        (("bf16", "bf16"), {"channels": 9}),
        (("bf16", "bf16"), {"has_factor": True}),
        (("bf16", "bf16"), {"groups": 2}),
        (("bf16", "bf16"), {"before": (CLIP,)}),
    ],
    ids=str,
)
def test_what_is_not_multiplied_in_pairs(dtypes, changes):
    with pytest.raises(ValueError, match="conv1x1: expected"):
        Case(Layer(**changes)).found("channels-last", (16, "portable"), dtypes=dtypes)
    with pytest.raises(ValueError, match="channels, last"):
        Case(Layer(channels=16)).found("blocked", (16, "portable"), dtypes=("bf16", "bf16"))


# --- plans ----------------------------------------------------------------------------------------


def network(images: int = 1, act: str = "") -> Graph:
    """Return convolutions of 1x1, behind products by factors and with residuals."""
    b = Net(images, 3, 22, 19)
    x = b.op("relu", [b.conv(b.x, 24, 3)])
    for channels in (24, 40, 40, 27):
        y = b.op("swish", [b.conv(x, 96)])
        y = b.op("swish", [b.conv(y, 96, 3, groups=96)])
        mean = b.op("reduce_mean", [y], {"axes": (2, 3), "keepdims": 1})
        gate = b.op("sigmoid", [b.conv(b.op("relu", [b.conv(mean, 8)]), 96)])
        # The factor comes first or second.
        y = b.op("mul", [gate, y] if channels == 40 else [y, gate])
        y = b.op(act, [y]) if act else y
        y = b.conv(y, channels)
        x = b.op("add", [y, x]) if channels == b.type(x).shape[1] else y
    return b.build([b.op("conv", [x, b.data(32, 27, 1, 1)], {"strides": (2, 2)})])


def own(plan: sw.Plan, kind: str, name: str) -> sw.Plan:
    """Return the plan with kernels of 1x1 wherever they are on offer."""
    only = {
        node: tuple(
            i for i, item in enumerate(group) if item.algorithm.startswith(f"{name}, {kind}")
        )
        for node, group in plan.candidates.nodes.items()
    }
    return plan.restricted("own", {node: kept[:1] for node, kept in only.items() if kept})


@pytest.mark.parametrize("name", ["1x1", "1x1 of a product"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("act", ["", "relu", "swish"])
def test_networks(kind, name, act, tmp_path):
    graph = network(2, act)
    plan = own(sw.plan(graph, tune="model", threads=2), kind, name)
    chosen = [item.chosen for item in plan.decisions if item.chosen.algorithm.startswith(name)]
    assert len(chosen) >= 3
    assert all((item.option.ahead is not None) == name.endswith("product") for item in chosen)
    feeds = inputs_of(graph)
    exact = sw.compile(graph, tune="model", threads=2, accuracy="exact").run(feeds)
    plan.save(tmp_path / "plan.json")
    for given_plan in (plan, tmp_path / "plan.json"):
        model = sw.compile(graph, plan=given_plan, threads=2)
        for output, wanted in exact.items():
            assert error(model.run(feeds)[output], wanted) <= 1e-5


def test_products_that_are_no_factors_of_channels_stay_apart():
    b = Net(2, 8, 6, 5)
    whole = b.op("mul", [b.op("relu", [b.x]), b.op("sigmoid", [b.x])])
    of_pixels = b.op("reduce_mean", [b.x], {"axes": (1,), "keepdims": 1})
    graph = b.build([b.conv(whole, 16), b.conv(b.op("mul", [b.x, of_pixels]), 16)])
    plan = sw.plan(graph, tune="model", threads=1)
    offered = {item.algorithm for group in plan.candidates.nodes.values() for item in group}
    assert not any("of a product" in algorithm for algorithm in offered)


# --- products of matrices -------------------------------------------------------------------------


@settings(deadline=None, max_examples=80)
@given(
    st.lists(st.integers(1, 9), min_size=1, max_size=3),
    st.integers(1, 600),
    st.integers(1, 70),
    st.booleans(),
    st.booleans(),
    st.sampled_from(["", "relu", "gelu", "add"]),
    st.integers(1, 3),
)
def test_rows_of_a_product_are_pixels(leading, inner, outputs, is_turned, has_bias, after, threads):
    b = Net(*leading, inner)
    shape = (outputs, inner) if is_turned else (inner, outputs)
    weights = b.constant(b.rng.normal(0, inner**-0.5, shape).astype(F32))
    bias = [b.data(outputs)] if has_bias else []
    y = b.op("matmul", [b.x, weights, *bias], {"trans_b": int(is_turned)})
    other = b.input("other", (*leading, outputs))
    y = b.op("add", [y, b.op("abs", [other])]) if after == "add" else b.op(after or "neg", [y])
    graph = b.build([y])
    plan = sw.plan(graph, tune="model", threads=threads)
    found = {
        item.algorithm
        for group in plan.candidates.nodes.values()
        for item in group
        if item.option and any(call.spec.kind == "conv1x1" for call in item.option.calls)
    }
    assert "1x1" in found
    feeds = inputs_of(graph)
    values = dict(feeds) | {name: c.array for name, c in graph.constants.items()}
    for node in graph.nodes:
        (values[node.outputs[0]],) = evaluate(node, [values[name] for name in node.inputs])
    for algorithm in sorted(found):
        only = {
            node: tuple(i for i, item in enumerate(group) if item.algorithm == algorithm)
            for node, group in plan.candidates.nodes.items()
        }
        chosen = plan.restricted("1x1", {node: kept for node, kept in only.items() if kept})
        model = sw.compile(graph, plan=chosen, threads=threads)
        (result,) = model.run(feeds).values()
        assert error(result, values[graph.outputs[0]]) <= 3e-6
