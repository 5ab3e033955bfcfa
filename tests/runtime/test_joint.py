"""Kernels of two nodes, and of depthwise convolution, against double precision; plans with them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import stridewise as sw
from stridewise.dtypes import dtype_of
from stridewise.formats import algebra
from stridewise.graph import Graph
from stridewise.targets.onednn.activation import eltwise_steps

from .graphs import Net, error, inputs_of
from .winograd_layers import (
    CORE,
    F32,
    KERNELS,
    KINDS,
    WHOLE,
    Array,
    Runner,
    Shape,
    data,
    exact,
    format_of,
    stored,
)

# --- Winograd convolution and the maxima behind it ------------------------------------------------

POOLED = {
    "whole tiles": Shape(channels=16, outputs=32, height=12, width=24),
    "odd": Shape(channels=13, outputs=27, height=9, width=7),
    "one window": Shape(height=2, width=3),
    "batch": Shape(images=5, channels=24, outputs=40, height=5, width=6),
    "outputs are shared": Shape(channels=64, outputs=160, height=7, width=7),
    "many blocks": Shape(channels=40, outputs=48, height=40, width=37),
    "pads": Shape(height=8, width=9, pads=(0, 2, 1, 0)),
}


def maxima(x: Array) -> Array:
    """Return the maxima of windows of 2x2; the last of an odd number of rows has no window."""
    images, channels, height, width = x.shape
    whole = x[..., : height // 2 * 2, : width // 2 * 2]
    return whole.reshape(images, channels, height // 2, 2, width // 2, 2).max((3, 5))


@pytest.mark.parametrize("tile", [2, 4, 6])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("kernel", KERNELS, ids=str)
@pytest.mark.parametrize("name", POOLED)
def test_maxima_of_winograd_tiles(name, kernel, kind, tile):
    plain = POOLED[name]
    pooled = Shape(**{**vars(plain), "pool": 2})
    x, w, bias = data(plain)
    post_ops = [("eltwise", "swish", 1.0, 0.0)]
    found = Runner(pooled, kind, kernel, tile, post_ops=post_ops)(x, w, bias)
    wanted = exact(plain)
    wanted = maxima(wanted / (1 + np.exp(-wanted)))
    assert error(found, wanted) <= {2: 1e-6, 4: 4e-6, 6: 1.2e-5}[tile]


@pytest.mark.parametrize("tile", [2, 4, 6])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("kernel", KERNELS, ids=str)
def test_nan_anywhere_in_a_window_is_its_maximum(kernel, kind, tile):
    """Only one of the four results is NaN: the square root of the one that is negative."""
    shape = Shape(channels=16, outputs=16, height=8, width=8)
    w = np.zeros(shape.weights, F32)
    w[range(16), range(16), 1, 1] = 1
    x = np.full(shape.src, 9, F32)
    for position in range(4):
        x[0, position::4, position // 2 :: 2, position % 2 :: 2] = -1
    x[0, 8:, 4:] = 9
    root = [("eltwise", *step) for step in eltwise_steps("sqrt", 0.0, 0.0)]
    pooled = replace(shape, pool=2)
    found = Runner(pooled, kind, kernel, tile, post_ops=root)(x, w, np.zeros(16, F32))
    expected = np.full(pooled.dst, np.nan)
    expected[0, 8:, 2:] = 3
    np.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.mark.parametrize(
    "changes",
    [{"pool": 3}, {"dilations": (2, 2)}, {"groups": 2, "channels": 32, "outputs": 32}],
    ids=str,
)
def test_what_cannot_be_pooled_is_refused(changes):
    shape = Shape(**{"height": 12, "width": 12, "pool": 2, **changes})
    with pytest.raises(ValueError, match="results of these tiles are not pooled"):
        Runner(shape, "blocked", (8, "portable"), 4)


def test_pooled_results_have_no_operands():
    with pytest.raises(ValueError, match="post-ops of pooled results have no operands"):
        Runner(Shape(pool=2), "blocked", (8, "portable"), 4, post_ops=[("sum", 1.0)])


# --- a convolution of 1x1 and the depthwise one behind it -----------------------------------------


@dataclass(frozen=True)
class Block:
    images: int = 1
    channels: int = 8
    height: int = 6
    width: int = 5
    middle: int = 16
    pads: tuple[int, int, int, int] = (1, 1, 1, 1)
    window: tuple[int, int] = (3, 3)
    strides: tuple[int, int] = (1, 1)
    dilations: tuple[int, int] = (1, 1)
    expands: bool = True
    parts: tuple[int, ...] = ()

    @property
    def src(self) -> tuple[int, ...]:
        return self.images, self.channels, self.height, self.width

    @property
    def dst(self) -> tuple[int, ...]:
        top, left, bottom, right = self.pads
        extents = (self.height + top + bottom, self.width + left + right)
        axes = zip(extents, self.window, self.strides, self.dilations, strict=True)
        sizes = [(size - (taps - 1) * step - 1) // stride + 1 for size, taps, stride, step in axes]
        return self.images, self.middle, *sizes


BLOCKS = {
    "one vector": Block(),
    "tails of channels": Block(channels=13, middle=27, height=9, width=7),
    "one channel": Block(channels=1, middle=1),
    "stride": Block(channels=24, middle=40, height=15, width=14, strides=(2, 2)),
    "five taps": Block(channels=16, middle=48, height=13, width=9, window=(5, 5), pads=(2,) * 4),
    "five taps, stride": Block(3, 16, 9, 10, 33, (2, 1, 2, 3), (5, 5), (2, 2)),
    "seven taps": Block(channels=20, middle=33, height=17, width=19, window=(7, 7), pads=(3,) * 4),
    "row": Block(channels=5, middle=17, window=(1, 11), pads=(0, 5, 0, 5), width=24),
    "column": Block(channels=5, middle=17, window=(11, 1), pads=(5, 0, 5, 0), height=24),
    "three across, five down": Block(window=(5, 3), strides=(1, 2), width=21, height=9),
    "wide": Block(1, 3, 40, 43, 18, (15,) * 4, (31, 31)),
    "dilations": Block(1, 9, 23, 30, 18, (2, 3, 2, 3), dilations=(2, 3)),
    "patches": Block(1, 9, 12, 16, 18, (0,) * 4, (2, 4), (2, 4)),
    "strides above the window": Block(1, 9, 17, 19, 18, (0,) * 4, (2, 2), (3, 5)),
    "no pads": Block(pads=(0, 0, 0, 0)),
    "one pixel": Block(height=1, width=1),
    "strips and bands": Block(channels=20, middle=72, height=150, width=131, strides=(2, 2)),
    "parts": Block(
        2,
        9,
        13,
        15,
        70,
        (3, 2, 3, 2),
        (7, 5),
        (2, 1),
        (1, 1),
        True,
        (20, 2, 1, 3, 3, 30, 0, 0, 7, 5, 14, 3, 0, 1, 5, 6, 1, 2, 5, 1),
    ),
    "parts, dilations": Block(
        1,
        9,
        23,
        30,
        48,
        (2, 3, 2, 3),
        dilations=(2, 3),
        parts=(32, 1, 0, 1, 3, 16, 0, 2, 3, 1),
    ),
    "bands": Block(channels=160, middle=24, height=60, width=33),
}


def depthwise(x: Array, w: Array, block: Block) -> Array:
    top, left, bottom, right = block.pads
    padded = np.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right)))
    (down, across), (high, wide) = block.strides, block.dilations
    extents = [(t - 1) * d + 1 for t, d in zip(block.window, block.dilations, strict=True)]
    windows = np.lib.stride_tricks.sliding_window_view(padded, extents, (2, 3))
    return np.einsum("nchwij,cij->nchw", windows[..., ::down, ::across, ::high, ::wide], w)


@dataclass
class Case:
    """What a block computes, and what it is told."""

    block: Block
    seed: int = 0

    def __post_init__(self) -> None:
        rng, block = np.random.default_rng(self.seed), self.block
        self.x = rng.normal(size=block.src).astype(F32)
        fan_in = np.sqrt(block.channels)
        self.w = (rng.normal(size=(block.middle, block.channels)) / fan_in).astype(F32)
        scale = 1 / np.sqrt(np.prod(block.window))
        self.d = rng.normal(0, scale, (block.middle, *block.window)).astype(F32)
        first, kept = 0, np.zeros_like(self.d)
        for count, top, left, rows, columns in np.reshape(
            block.parts[: len(block.parts) // 5 * 5], (-1, 5)
        ):
            part = np.s_[first : first + count, top : top + rows, left : left + columns]
            kept[part], first = self.d[part], first + count
        self.d = kept if block.parts else self.d
        self.biases = [rng.normal(size=block.middle).astype(F32) for _ in range(2)]

    def wanted(self, between: Any, last: Any, biases: tuple[bool, bool]) -> Array:
        x, w, d = (array.astype(float) for array in (self.x, self.w, self.d))
        columns = [b.reshape(-1, 1, 1) * has for b, has in zip(self.biases, biases, strict=True)]
        if not self.block.expands:
            return last(depthwise(x, d, self.block) + columns[1])
        middle = between(np.einsum("nchw,mc->nmhw", x, w) + columns[0])
        return last(depthwise(middle, d, self.block) + columns[1])

    def found(
        self, kind: str, kernel: tuple[int, str], posts: Any, between: int,
        biases: tuple[bool, bool] = (True, True), threads: int = 2,
        dtypes: tuple[str, str] = WHOLE, in_pairs: bool = False,
    ) -> Array:  # fmt: skip
        block, (lanes, isa) = self.block, kernel
        fmt = format_of(kind, lanes)
        tag = "acdb" if kind == "channels-last" else f"aBcd{lanes}b"
        extents = (block.src, block.dst)
        src, dst = (CORE.MemoryDesc(*item, tag) for item in zip(extents, dtypes, strict=True))
        op = CORE.Depthwise(
            src, dst, block.expands, *biases, block.pads[:2], block.pads[2:], posts,
            between=between, window=block.window, strides=block.strides,
            dilations=block.dilations, lanes=lanes, threads=threads, isa=isa,
            multiplies_halves=in_pairs, parts=block.parts,
        )  # fmt: skip
        assert op.impl == f"{'expand_' if block.expands else ''}depthwise:{isa}"
        arrays = {
            CORE.ARG_WEIGHTS: self.w.reshape(block.middle, block.channels, 1, 1),
            CORE.ARG_DEPTHWISE_WEIGHTS: self.d.reshape(block.middle, 1, 1, *self.d.shape[1:]),
            CORE.ARG_BIAS: self.biases[0],
            CORE.ARG_DEPTHWISE_BIAS: self.biases[1],
        }
        constants = [arg for arg in op.args if arg in arrays]
        packed = [packed_as(op.arg_desc(arg), arrays[arg]) for arg in constants]
        x, dtype = stored(self.x, fmt, dtypes[0]), dtype_of(dtypes[1])
        result = np.full(dst.nbytes // dtype.itemsize, np.nan, dtype.numpy)
        program = CORE.Program(op.scratchpad_nbytes, packed, [x.nbytes], [result.nbytes], threads)
        places = {arg: (1, index) for index, arg in enumerate(constants)}
        places |= {CORE.ARG_SRC: (2, 0), CORE.ARG_DST: (3, 0), CORE.ARG_SCRATCHPAD: (0, 0)}
        args = [*op.args, CORE.ARG_SCRATCHPAD]
        program.add_primitive(op, [(a, op.arg_desc(a), *places[a], 0) for a in args])
        program.freeze()
        program.poison = True
        program.run([x], [result])
        at = algebra.offsets(fmt, block.dst)
        mask = np.ones(result.size, bool)
        mask[at] = False
        assert (result[mask] == 0).all(), "spare lanes"
        return result[at]


def packed_as(desc: Any, array: Array) -> Any:
    strides = [step // array.itemsize for step in array.strides]
    buffer = CORE.Buffer(desc.nbytes)
    source = CORE.MemoryDesc.strided(array.shape, "f32", strides)
    CORE.prepack_into(array, source, desc, buffer, 0, 1)
    return buffer


def clipped(x: Array) -> Array:
    return np.clip(x, 0, 6)


def swish(x: Array) -> Array:
    return x / (1 + np.exp(-x))


def same(x: Array) -> Array:
    return x


ACTIVATIONS = {
    "none": ([], same, [], same),
    "clips": ([("eltwise", "clip", 0.0, 6.0)], clipped, [("eltwise", "clip", 0.0, 6.0)], clipped),
    "swish": ([("eltwise", "swish", 1.0, 0.0)], swish, [("eltwise", "tanh", 0.0, 0.0)], np.tanh),
    "two": (
        [("eltwise", "clip", 0.0, 6.0), ("eltwise", "linear", 2.0, 1.0)],
        lambda x: clipped(x) * 2 + 1,
        [("eltwise", "abs", 0.0, 0.0)],
        np.abs,
    ),
}


@pytest.mark.parametrize("activations", ACTIVATIONS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("kernel", KERNELS, ids=str)
@pytest.mark.parametrize("name", BLOCKS)
def test_expansions(name, kernel, kind, activations):
    first, between, second, last = ACTIVATIONS[activations]
    case = Case(BLOCKS[name])
    found = case.found(kind, kernel, [*first, *second], len(first))
    assert error(found, case.wanted(between, last, (True, True))) <= 3e-6


@pytest.mark.parametrize("activations", ["none", "clips", "swish"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("kernel", KERNELS, ids=str)
@pytest.mark.parametrize("name", BLOCKS)
def test_depthwise_alone(name, kernel, kind, activations):
    _, _, post_ops, last = ACTIVATIONS[activations]
    block = BLOCKS[name]
    case = Case(replace(block, expands=False, channels=block.middle))
    for has_bias in (True, False):
        found = case.found(kind, kernel, post_ops, 0, (False, has_bias))
        assert error(found, case.wanted(same, last, (False, has_bias))) <= 3e-6


@pytest.mark.parametrize("biases", [(True, False), (False, True), (False, False)], ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_absent_biases(kind, biases):
    case = Case(BLOCKS["tails of channels"])
    found = case.found(kind, KERNELS[0], [], 0, biases)
    assert error(found, case.wanted(same, same, biases)) <= 1e-6


@pytest.mark.parametrize("kernel", KERNELS, ids=str)
@pytest.mark.parametrize("name", ["logistic", "swish", "tanh"])
def test_activations_of_all_sizes(name: str, kernel: tuple[int, str]) -> None:
    """The relative error grows with the exponent of the exponential function, which is rounded."""
    sizes = np.array([0, *np.geomspace(1e-6, 1e6, 9997), np.inf, np.nan], F32)
    numbers = np.concatenate([sizes, -sizes]).reshape(1, 4, 4, -1)
    extents = {"channels": 4, "middle": 4, "height": 4, "width": numbers.shape[3]}
    case = Case(Block(**extents, window=(1, 1), pads=(0, 0, 0, 0), expands=False))
    case.x, case.d = numbers, np.ones_like(case.d)
    found = case.found("blocked", kernel, [("eltwise", name, 1.0, 0.0)], 0, (False, False))
    x = numbers.astype(float)
    with np.errstate(over="ignore", invalid="ignore"):
        logistic = 1 / (1 + np.exp(-x))
        wanted = {"logistic": logistic, "swish": x * logistic, "tanh": np.tanh(x)}[name]
    np.testing.assert_array_equal(np.isnan(found), np.isnan(wanted))
    finite = np.isfinite(wanted)
    assert (found[~finite & ~np.isnan(wanted)] == np.inf).all()
    allowed = (3e-7 + 7e-8 * np.minimum(abs(x), 100)) * abs(wanted) + 1e-36
    assert (abs(found[finite] - wanted[finite]) <= allowed[finite]).all()


@settings(deadline=None, max_examples=80)
@given(
    st.builds(
        Block,
        images=st.integers(1, 3),
        channels=st.integers(1, 40),
        height=st.integers(14, 20),
        width=st.integers(14, 30),
        middle=st.integers(1, 70),
        pads=st.tuples(*[st.integers(0, 1)] * 4),
        window=st.tuples(*[st.integers(2, 7)] * 2),
        strides=st.tuples(*[st.integers(1, 4)] * 2),
        dilations=st.tuples(*[st.integers(1, 2)] * 2),
        expands=st.just(True),
    ),
    st.sampled_from(KERNELS),
    st.sampled_from(KINDS),
    st.integers(1, 3),
)
def test_any_expansion(block, kernel, kind, threads):
    case = Case(block)
    posts = [("eltwise", "clip", 0.0, 6.0)]
    found = case.found(kind, kernel, posts, 1, threads=threads)
    assert error(found, case.wanted(clipped, same, (True, True))) <= 3e-6


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dilations": (0, 1)}, "expected positive taps, strides and dilations"),
        ({"strides": (1 << 13, 1)}, "windows, strides and dilations are limited to 4096"),
        ({"pads": (3, 0, 0, 3)}, "padding of a whole window"),
        ({"pads": (-1, 1, 1, 1)}, "negative padding"),
        ({"parts": (16, 0, 0, 4, 3)}, "parts of the channels, within the window"),
        ({"parts": (17, 0, 0, 3, 3)}, "parts of the channels, within the window"),
        ({"parts": (15, 0, 0, 3, 3)}, "parts of all channels"),
        ({"parts": (16, 0, 0, 3)}, "five numbers for each part"),
    ],
)
def test_expansions_that_cannot_be_are_refused(changes, message):
    block = Block(**{"height": 12, "width": 12, **changes})
    with pytest.raises(ValueError, match=message):
        Case(block).found("blocked", (8, "portable"), [], 0)


def test_results_do_not_depend_on_threads():
    case = Case(BLOCKS["strips and bands"])
    one, three = (case.found("blocked", KERNELS[0], [], 0, threads=n) for n in (1, 3))
    np.testing.assert_array_equal(one, three)


def test_each_channel_of_a_depthwise_convolution_has_as_many_results():
    with pytest.raises(ValueError, match="a multiple of the channels, and one bias"):
        Case(Block(expands=False, middle=12)).found(
            "blocked", (8, "portable"), [], 0, (False, True)
        )


def test_post_ops_with_operands_are_refused():
    with pytest.raises(ValueError, match="post-ops with operands are not applied"):
        Case(Block()).found("blocked", (8, "portable"), [("sum", 1.0)], 0)
    with pytest.raises(ValueError, match="expected post-ops between both"):
        Case(Block()).found("blocked", (8, "portable"), [], 1)


# --- plans ----------------------------------------------------------------------------------------


def network() -> Graph:
    """Return a convolution with a pooling, and inverted residuals."""
    b = Net(2, 3, 30, 27)
    x = b.op("relu", [b.conv(b.x, 24, 3)])
    x = b.op("relu", [b.conv(x, 32, 3)])
    x = b.op("max_pool", [x], {"kernel": (2, 2), "strides": (2, 2)})
    for window, stride in ((3, 1), (5, 2)):
        y = b.op("clip", [b.conv(x, 96)], {"alpha": 0.0, "beta": 6.0})
        y = b.op("swish", [b.conv(y, 96, window, groups=96, strides=(stride,) * 2)])
        y = b.conv(y, 32)
        x = b.op("add", [y, x]) if stride == 1 else y
    return b.build([x])


def joint(plan: sw.Plan, kind: str) -> sw.Plan:
    """Return the plan in which all pairs are computed at once."""
    only = {
        name: tuple(
            index
            for index, item in enumerate(group)
            if item.option.ahead is not None and item.algorithm.endswith(kind)
        )
        for name, group in plan.candidates.nodes.items()
    }
    return plan.restricted("joint", {name: kept[-1:] for name, kept in only.items() if kept})


@pytest.mark.parametrize("kind", KINDS)
def test_networks_with_depthwise_rows(kind):
    graph = network()
    plan = sw.plan(graph, tune="model", threads=2)
    only = {
        name: tuple(i for i, item in enumerate(group) if item.algorithm == f"in rows, {kind}")
        for name, group in plan.candidates.nodes.items()
    }
    plan = plan.restricted("rows", {name: kept for name, kept in only.items() if kept})
    assert sum(item.chosen.algorithm.startswith("in rows") for item in plan.decisions) == 2
    feeds = inputs_of(graph)
    exact = sw.compile(graph, tune="model", threads=2, accuracy="exact").run(feeds)
    model = sw.compile(graph, plan=plan, threads=2)
    for name, wanted in exact.items():
        assert error(model.run(feeds)[name], wanted) <= 1e-5


@pytest.mark.parametrize("kind", KINDS)
def test_whole_networks(kind, tmp_path):
    graph = network()
    plan = joint(sw.plan(graph, tune="model", threads=2), kind)
    pairs = [item for item in plan.decisions if item.chosen.option.ahead is not None]
    assert len(pairs) == 3
    feeds = inputs_of(graph)
    exact = sw.compile(graph, tune="model", threads=2, accuracy="exact").run(feeds)
    plan.save(tmp_path / "plan.json")
    for given_plan in (plan, tmp_path / "plan.json"):
        model = sw.compile(graph, plan=given_plan, threads=2)
        for name, wanted in exact.items():
            assert error(model.run(feeds)[name], wanted) <= 1e-5
    kernels = [row.node for row in model.profile(feeds, runs=2).rows]
    assert not any(item.node in kernels for item in plan.decisions if item.chosen.option.held)
    assert plan.winograd_weights.nbytes == model.memory.winograd_weights > 0


def test_a_limit_on_weights_leaves_pairs_out():
    plan = sw.plan(network(), tune="model", threads=2, weight_memory_limit=0)
    assert plan.winograd_weights.nbytes == 0


def test_what_is_read_by_both_lives_until_then():
    """The source of an expansion is read when the reader runs, and by a residual sum after it."""
    b = Net(1, 16, 14, 14)
    x = b.op("relu", [b.conv(b.x, 16)])
    y = b.op("relu", [b.conv(x, 64)])
    z = b.op("sigmoid", [x])
    y = b.op("relu", [b.conv(y, 64, 3, groups=64)])
    graph = b.build([b.op("add", [b.conv(y, 16), z])])
    plan = joint(sw.plan(graph, tune="model", threads=1), "blocked")
    model = sw.compile(graph, plan=plan, threads=1)
    feeds = inputs_of(graph)
    exact = sw.compile(graph, tune="model", threads=1, accuracy="exact").run(feeds)
    for name, wanted in exact.items():
        assert error(model.run(feeds)[name], wanted) <= 1e-5
