"""The graph before each pass whose golden text shows it and the graph after."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import numpy as np
from tests.networks import F32, Net, rng

from stridewise.graph import Attr, Graph, Refusal
from stridewise.graph.verify import verify
from stridewise.ops import infer
from stridewise.runtime.simulation.reference import run_reference

__all__ = ["GOLDEN", "net", "stored"]


def net(*shape: int) -> tuple[Net, str]:
    b = Net("g")
    return b, b.input("x", shape or (1, 4, 5, 5))


def _fold_constants() -> Graph:
    b, x = net(1, 2)
    a = b.op("add", [b.const(1, 2), b.const(3)])
    return b.build([b.op("mul", [x, b.op("neg", [a])])])


def _place_indices() -> Graph:
    b, x = net(2, 3, 4)
    points = np.stack(np.meshgrid(np.arange(2), [1], [1, 2], indexing="ij"), axis=-1)
    y = b.op("scatter_nd", [x, b.constant(points), b.input("part", (2, 1, 2))])
    rows = b.constant(np.array([[0, 2], [-1, 1]]))
    return b.build([b.op("gather", [y, rows], {"axis": 2})])


def _remove_no_ops() -> Graph:
    b, x = net(1, 2, 3)
    y = b.op("identity", [x])
    y = b.op("transpose", [y], {"perm": (0, 1, 2)})
    y = b.op("pad", [y], {"pads": (0,) * 6})
    y = b.op("slice", [y], {"starts": (0, 0, 0), "stops": (1, 2, 3), "steps": (1, 1, 1)})
    y = b.op("concat", [y], {"axis": 1})
    y = b.op("relu", [y])
    y = b.op("reshape", [b.op("reshape", [y], {"shape": (6,)})], {"shape": (3, 2)})
    row = b.op("expand", [b.input("row", (1, 2))], {"shape": (3, 2)})
    return b.build([b.op("identity", [b.op("div", [y, row])], name="y")])


def stored(b: Net, x: str, zero: float, dtype: str, low: float, high: float) -> str:
    """Return x rounded, shifted and stored as an integer."""
    y = b.op("add", [b.op("round", [x]), b.const(zero)]) if zero else b.op("round", [x])
    y = b.op("clip", [y], {"alpha": low, "beta": high})
    return b.op("cast", [y], {"to": dtype})


def _multiply_floats() -> Graph:
    b, x = net(1, 2, 4, 4)
    whole = b.op("cast", [stored(b, x, 7, "uint8", 0.0, 255.0)], {"to": "int32"})
    x = b.op("sub", [whole, b.constant(np.array([7], np.int32))])
    w = b.constant(np.arange(-18, 18).astype(np.int32).reshape(2, 2, 3, 3))
    y = b.op("cast", [b.op("conv", [x, w], name="product")], {"to": "float32"})
    return b.build([b.op("mul", [y, b.const(0.25)])])


def _skip_integers() -> Graph:
    b, x = net(1, 3)
    y = b.op("cast", [stored(b, x, 0, "int8", -128.0, 127.0)], {"to": "float32"})
    y = b.op("mul", [y, b.const(0.5)])
    y = b.op("cast", [stored(b, y, 100, "uint8", 0.0, 255.0)], {"to": "float32"})
    return b.build([b.op("mul", [b.op("sub", [y, b.const(100)]), b.const(2)])])


def _split_resize() -> Graph:
    b, x = net(1, 1, 2, 3)
    shape = {"shape": (1, 1, 3, 2), "mode": "linear"}
    y = b.op("resize", [x], {**shape, "coordinates": "align_corners"})
    return b.build([y, b.op("resize", [x], shape)])


def _recognize_activations() -> Graph:
    b, x = net(1, 3)
    gate = b.op("clip", [b.op("add", [x, b.const(3)])], {"alpha": 0.0, "beta": 6.0})
    swish = b.op("mul", [b.op("sigmoid", [x]), x], name="swish")
    sigmoid = b.op("div", [gate, b.const(6)], name="hard_sigmoid")
    gated = b.op("mul", [x, sigmoid], name="gated")
    late = b.op("mul", [b.op("mul", [x, gate]), b.const(1 / 6)], name="late")
    return b.build([swish, gated, late])


def _recognize_shuffle() -> Graph:
    b, x = net(2, 6, 3, 3)
    y = b.op("reshape", [x], {"shape": (2, 2, 3, 3, 3)})
    y = b.op("transpose", [y], {"perm": (0, 2, 1, 3, 4)})
    return b.build([b.op("reshape", [y], {"shape": (2, 6, 3, 3)}, name="shuffle")])


def _recognize_norms() -> Graph:
    b, x = net(1, 4, 3)
    c = b.op("sub", [x, b.op("reduce_mean", [x], {"axes": (2,)})])
    variance = b.op("reduce_mean", [b.op("mul", [c, c])], {"axes": (2,)})
    root = b.op("sqrt", [b.op("add", [variance, b.const(0.5)])])
    y = b.op("reshape", [b.op("div", [c, root])], {"shape": (1, 2, 6)})
    y = b.op("group_norm", [y], {"groups": 2, "epsilon": 0.5})
    return b.build([b.op("reshape", [y], {"shape": (1, 4, 3)})])


def _unstack() -> Graph:
    b, x = net(1, 4, 2, 2)
    pieces = [b.op("reshape", [y], {"shape": (1, 1, 4, 2, 2)}) for y in (x, b.op("relu", [x]))]
    y = b.op("mul", [b.op("concat", pieces, {"axis": 1}), b.const(2, 3, shape=(2, 1, 1, 1))])
    y = b.op("reduce_sum", [y], {"axes": (1,), "keepdims": 0})
    z = b.op("reshape", [x], {"shape": (1, 2, 2, 2, 2)})
    return b.build([y, b.op("reduce_max", [z], {"axes": (1,), "keepdims": 1})])


def _merge_groups() -> Graph:
    b, x = net(1, 2, 3, 1)
    for windows in ((1, 3), (1, 1)):
        pieces: list[str] = []
        for index, taps in enumerate(windows):
            bounds = {"starts": (0, index, 0, 0), "stops": (1, index + 1, 3, 1)}
            y = b.op("slice", [x], {**bounds, "steps": (1,) * 4})
            w = b.const(*range(1, taps + 1), shape=(1, 1, taps, 1))
            bias = [b.const(5)] if index else []
            pads = (taps // 2, 0, taps // 2, 0)
            pieces.append(b.op("conv", [y, w, *bias], {"pads": pads}))
        x = b.op("concat", pieces, {"axis": 1})
    return b.build([x])


def _sink_concats() -> Graph:
    b, x = net(1, 1, 2, 2)
    pieces = [b.conv(x, 1), b.conv(x, 2)]
    return b.build([b.op("relu", [b.scale(b.op("concat", pieces, {"axis": 1}))])])


def _sink_reshapes() -> Graph:
    b, x = net(1, 2, 3)
    y = b.op("matmul", [x, b.const(*range(6), shape=(3, 2))])
    y = b.scale(b.op("reshape", [y], {"shape": (2, 2)}))
    y = b.op("add", [x, b.op("matmul", [y, b.const(*range(6), shape=(2, 3))])], name="sum")
    z = b.op("relu", [b.op("reshape", [b.op("abs", [y])], {"shape": (6,)})])
    return b.build([z])


def _fold_scale() -> Graph:
    b, x = net(1, 2, 1, 1)
    y = b.op("add", [b.conv(x, 2), b.const(1, 2, shape=(2, 1, 1))])
    y = b.scale(b.op("relu", [b.op("mul", [b.scale(y), b.const(2)])]))
    y = b.op("reshape", [b.op("sub", [y, b.const(1)])], {"shape": (1, 2)})
    y = b.op("matmul", [y, b.const(1, 2, 3, 4, shape=(2, 2))])
    return b.build([b.op("div", [b.op("add", [b.const(1, 2), y]), b.const(2, 4)])])


def _split_products() -> Graph:
    b, x = net(2, 2, 3)
    y = b.op("matmul", [x, b.const(*range(18), shape=(3, 6)), b.const(*range(6))])
    y = b.op("reshape", [y], {"shape": (2, 2, 3, 1, 2)})
    y = b.op("transpose", [y], {"perm": (2, 0, 3, 1, 4)})
    parts: list[str] = []
    for index in range(3):
        bounds = {"starts": (index, 0, 0, 0, 0), "stops": (index + 1, 2, 1, 2, 2)}
        part = b.op("slice", [y], {**bounds, "steps": (1,) * 5})
        parts.append(b.op("relu", [b.op("reshape", [part], {"shape": (2, 1, 2, 2)})]))
    return b.build(parts)


def _hoist_factors() -> Graph:
    b, x = net(2, 3)
    y = b.op("matmul", [x, b.const(*range(6), shape=(3, 2)), b.const(1, 2)])
    y = b.op("reshape", [y], {"shape": (1, 2, 2)})
    y = b.op("matmul", [b.op("transpose", [y], {"perm": (0, 2, 1)}), b.input("y", (1, 2, 2))])
    return b.build([b.op("relu", [b.op("div", [y, b.const(2, shape=())])])])


def _fold_pad() -> Graph:
    b, x = net(1, 1, 4, 4)
    around = {"pads": (0, 0, 1, 1, 0, 0, 1, 2)}
    y = b.op("conv", [b.op("pad", [x], around), b.const(*range(4), shape=(1, 1, 2, 2))])
    y = b.op("pad", [b.op("relu", [y])], around)
    y = b.op("max_pool", [y], {"kernel": (3, 3), "strides": (2, 2)})
    return b.build([b.op("avg_pool", [b.op("pad", [y], around)], {"kernel": (3, 3)})])


Rewriting = Callable[[Graph], tuple[Graph, tuple[Refusal, ...]]]


def rewritten(rewrite: Rewriting, graph: Graph, atol: float = 1e-6) -> Graph:
    """Run one pass, compare the results, and return the new graph, which the pass leaves alone."""
    verify(graph, infer)
    after, _ = rewrite(graph)
    verify(after, infer)
    draw = rng(1)
    feeds = {name: draw.normal(size=graph.value(name).shape).astype(F32) for name in graph.inputs}
    expected, found = run_reference(graph, feeds), run_reference(after, feeds)
    for name in graph.outputs:
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-5, atol=atol)
    assert rewrite(after)[0] == after
    return after


def local_response(b: Net, x: str, size: int = 3, **changes: Attr) -> str:
    """Add a local response normalization as PyTorch writes it."""
    shape = b.type(x).shape
    inner = (shape[0], 1, *shape[1:3], *((prod(shape[3:]),) if shape[3:] else ()))
    rest = (0,) * (len(inner) - 3)
    window = {"kernel": (size, *(1 for _ in rest)), "pads": (size // 2, *rest) * 2}
    y = b.op("reshape", [b.op("mul", [x, x])], {"shape": inner})
    y = b.op("avg_pool", [y], {"count_include_pad": 1, **window, **changes})
    y = b.op("reshape", [y], {"shape": shape})
    y = b.op("add", [b.op("mul", [y, b.const(0.5, shape=())]), b.const(2, shape=())])
    return b.op("div", [x, b.op("power", [y], {"alpha": 0.75})])


def _recognize_lrn() -> Graph:
    b, x = net(1, 4, 2, 3)
    return b.build([local_response(b, x)])


def _clip_windows() -> Graph:
    b, x = net(1, 1, 4, 4)
    whole = {"kernel": (9, 9), "strides": (9, 9), "pads": (0, 0, 5, 5)}
    y = b.op("avg_pool", [x], {**whole, "count_include_pad": 1})
    return b.build([y, b.op("max_pool", [x], whole)])


def _flip_windows() -> Graph:
    b, x = net(1, 2, 3, 3)
    weights = b.const(*range(4), shape=(2, 1, 1, 2))
    y = b.op("conv_transpose", [x, weights], {"pads": (0, 1, 0, 0)})
    y = b.op("conv_transpose", [y, b.const(1, shape=(1, 1, 1, 1))], {"strides": (2, 2)})
    return b.build([y])


def _merge_branches() -> Graph:
    b, x = net(1, 2, 2, 2)
    row = b.const(*range(6), shape=(2, 1, 1, 3))
    y = b.op("conv", [x, row, b.const(1, 2)], {"groups": 2, "pads": (0, 1, 0, 1)}, name="row")
    y = b.op("add", [y, b.scale(x)])
    return b.build([b.op("sub", [y, x])])


def _turn_products() -> Graph:
    b, x = net(1, 3, 2, 4)
    y, z = b.input("y", (1, 3, 2, 4)), b.input("z", (1, 2, 3, 5))
    q, k = (b.op("transpose", [item], {"perm": (0, 2, 1, 3)}) for item in (x, y))
    scores = b.op("matmul", [q, b.op("transpose", [k], {"perm": (0, 1, 3, 2)})])
    found = b.op("matmul", [b.op("softmax", [scores], {"axis": 3}), z])
    later = b.op("transpose", [b.op("matmul", [scores, z])], {"perm": (1, 0, 3, 2)})
    return b.build([b.op("transpose", [found], {"perm": (0, 2, 1, 3)}), later])


def _merge_moves() -> Graph:
    b, x = net(1, 4, 6)
    halves: list[str] = []
    for start, stop in ((3, 6), (0, 3)):
        bounds = {"starts": (0, 0, start), "stops": (1, 4, stop), "steps": (1, 1, 1)}
        halves.append(b.op("slice", [x], bounds))
    y = b.op("reshape", [b.op("concat", halves, {"axis": 2})], {"shape": (2, 2, 2, 3)})
    return b.build([b.op("relu", [b.op("transpose", [y], {"perm": (2, 0, 1, 3)})])])


def _fuse_post_ops() -> Graph:
    b, x = net(1, 1, 2, 2)
    weights = b.const(2, shape=(1, 1, 1, 1))
    left = b.op("relu", [b.op("conv", [x, weights], name="left")])
    right = b.op("conv", [left, weights], name="right")
    y = b.op("clip", [b.op("add", [x, right])], {"alpha": 0.0, "beta": 6.0})
    return b.build([b.op("relu", [b.op("mul", [y, left])])])


def _remove_dead() -> Graph:
    b, x = net(1, 2)
    b.op("exp", [b.op("neg", [x])])
    return b.build([b.op("relu", [x])])


def _part_axes() -> Graph:
    b, x = net(2, 3, 4, 5)
    y = b.op("reshape", [b.op("relu", [x])], {"shape": (2, 3, 20)})
    y = b.op("abs", [b.op("transpose", [y], {"perm": (0, 2, 1)})])
    y = b.op("transpose", [y], {"perm": (0, 2, 1)})
    return b.build([b.op("reshape", [y], {"shape": (2, 3, 4, 5)}, name="y")])


def _sink_transposes() -> Graph:
    b, x = net(1, 4, 4, 2)
    y = b.op("transpose", [x], {"perm": (0, 3, 1, 2)}, name="to_first")
    y = b.conv(y, 3)
    y = b.op("transpose", [y], {"perm": (0, 2, 3, 1)}, name="to_last")
    y = b.op("add", [y, b.const(1, 2, 3)])
    y = b.op("transpose", [y], {"perm": (0, 3, 1, 2)}, name="again")
    y = b.op("concat", [y, b.op("relu", [y])], {"axis": 1})
    y = b.op("mul", [b.const(*range(6), shape=(6, 1, 1)), y])
    mean = b.op("reduce_mean", [y], {"axes": (2, 3), "keepdims": 0}, name="mean")
    return b.build([mean, b.op("reshape", [y], {"shape": (1, 96)})])


def _fuse_pointwise() -> Graph:
    b, x = net(1, 4, 3, 3)
    y = b.input("y", (1, 4, 1, 1))
    gate = b.op("sigmoid", [y], name="gate")
    scaled = b.op("mul", [x, gate])
    z = b.op("add", [b.op("mul", [b.op("relu", [scaled]), b.const(0.5, shape=())]), x], name="sum")
    below = b.op("less", [z, b.const(1, 2, 3, 4, shape=(4, 1, 1))])
    chosen = b.op("where", [below, b.op("clip", [z], {"beta": 6.0}), x], name="chosen")
    return b.build([chosen, b.op("tanh", [b.op("neg", [scaled])], name="tanh")])


def _freeze_parameters() -> Graph:
    b, x = net(1, 2)
    total, kept = b.state(np.zeros((1, 2), F32), "total"), b.state(np.ones(2, F32), "kept")
    y = b.op("mul", [x, b.parameter(F32([1, 2]), "w")])
    b.update(total, b.op("add", [total, y]))
    return b.build([b.op("sub", [y, kept])])


def _hoist_updates() -> Graph:
    b, x = net(1, 2)
    w, total = b.parameter(F32([[1, 2]]), "w"), b.state(np.zeros((1, 2), F32), "total")
    y = b.op("mul", [x, w])
    z = b.op("mul", [b.op("tanh", [y]), w], name="last reader of w")
    b.update("w", b.op("add", [w, y], name="w is new"))
    b.update(total, b.op("add", [total, y], name="total is new"))
    return b.build([b.op("relu", [z])])


def _name_grids() -> Graph:
    b, x = net(1, 2, 4, 4)
    half, zero = b.constant(F32(0.5), "half"), b.constant(np.uint8(3), "zero")
    scales, zeros = b.constant(F32([0.5, 0.25]), "scales"), b.constant(np.int8([0, 0]), "zeros")
    weights = b.constant(np.int8([[[[3]], [[-4]]], [[[5]], [[6]]]]), "w")
    real = b.op("dequantize_linear", [weights, scales, zeros], {"axis": 0})
    stored = b.op("quantize_linear", [x, half, zero])
    y = b.op("conv", [b.op("dequantize_linear", [stored, half, zero]), real])
    return b.build([y, b.op("quantize_linear", [y, scales, zeros], {"axis": 1})])


def _fuse_attention() -> Graph:
    """Return attention of windows with a bias for each head and a mask for each window."""
    b = Net("net")
    q, k, v = (b.input(name, (4, 9, 2, 8)) for name in "qkv")
    scores = b.op("matmul", [q, k], {"perm_a": (0, 2, 1, 3), "perm_b": (0, 2, 3, 1)})
    scores = b.op("div", [scores, b.const(3)])
    scores = b.op("add", [scores, b.constant(F32(np.ones((2, 9, 9))))])
    scores = b.op("reshape", [scores], {"shape": (2, 2, 2, 9, 9)})
    mask = b.input("mask", (2, 1, 9, 9))
    is_masked = b.op("greater", [b.op("reshape", [mask], {"shape": (2, 1, 9, 9)}), b.const(0)])
    scores = b.op("where", [is_masked, b.const(-100), scores])
    scores = b.op("reshape", [scores], {"shape": (4, 2, 9, 9)})
    weights = b.op("softmax", [scores], {"axis": 3})
    turned = {"perm_b": (0, 2, 1, 3), "perm": (0, 2, 1, 3)}
    return b.build([b.op("matmul", [weights, v], turned)])


def _fuse_norm_masks() -> Graph:
    b, x = net(1, 2, 4, 4)
    rows = [b.parameter(F32([1, 2]), name) for name in ("scale", "shift")]
    y, mean, variance = b.node("batch_norm", [x, *rows], {"epsilon": 0.5})
    above, below = (b.op(op, [y, b.const(n)]) for op, n in (("greater", -1), ("less_equal", 6)))
    whole = b.op("relu", [x])
    masked = b.op("where", [below, b.op("where", [above, whole, b.const(0)]), b.const(0)])
    results: list[str] = []
    for dy in (masked, whole):
        given = [x, dy, rows[0], mean, variance]
        results += b.node("batch_norm_gradient", given, {"epsilon": 0.5})
    return b.build(results)


def _keep_places() -> Graph:
    b, x = net(1, 2, 4, 4)
    y = b.op("relu", [x])
    two, large = {"kernel": (2, 2), "strides": (2, 2)}, {"kernel": (16, 16), "pads": (8,) * 4}
    results = [b.op("max_pool", [y], window) for window in (two, large)]
    dy = [b.op("tanh", [result]) for result in results]
    given = zip(dy, (two, large), strict=True)
    return b.build([b.op("max_pool_gradient", [y, g], window) for g, window in given])


def _nest_concats() -> Graph:
    b, x = net(1, 2, 4, 4)
    parts, results = [x], list[str]()
    for op in ("relu", "tanh", "sigmoid"):
        parts.append(b.op(op, [results[-1] if results else x]))
        results.append(b.op("concat", parts, {"axis": 1}))
    results.append(b.op("concat", [parts[2], *parts[:2], *parts[:2]], {"axis": 1}))
    return b.build([*results, b.op("concat", parts[:2], {"axis": 2})])


def _compute_on_reals() -> Graph:
    b, x = net(1, 2, 4, 4)
    half = {"scale": 0.5, "zero_point": 3, "dtype": "uint8"}
    rounded = b.op("relu", [b.op("snap_u8", [x], {"alpha": 0.5, "beta": 3.0})])
    stored = b.op("quantize", [b.op("snap_u8", [rounded], {"alpha": 0.5, "beta": 3.0})], half)
    stored = b.op("max_pool", [stored], {"kernel": (2, 2)})
    y = b.op("dequantize", [stored], half)
    both = b.op("concat", [y, b.op("sigmoid", [y])], {"axis": 1})
    return b.build([b.op("snap_s8", [both], {"alpha": 0.25}), b.op("quantize", [y], half)])


def _tabulate() -> Graph:
    b, x = net(1, 2)
    x = b.op("snap_u8", [x], {"alpha": 0.5, "beta": 3.0})
    gate = b.op("snap_u8", [b.op("sigmoid", [x])], {"alpha": 1 / 256})
    return b.build([b.op("snap_u8", [b.op("mul", [x, gate])], {"alpha": 0.25, "beta": 9.0})])


GOLDEN = {
    "freeze_parameters": _freeze_parameters,
    "name_grids": _name_grids,
    "fold_constants": _fold_constants,
    "place_indices": _place_indices,
    "remove_no_ops": _remove_no_ops,
    "multiply_floats": _multiply_floats,
    "skip_integers": _skip_integers,
    "compute_on_reals": _compute_on_reals,
    "split_resize": _split_resize,
    "clip_windows": _clip_windows,
    "flip_windows": _flip_windows,
    "recognize_shuffle": _recognize_shuffle,
    "recognize_norms": _recognize_norms,
    "part_axes": _part_axes,
    "sink_transposes": _sink_transposes,
    "recognize_activations": _recognize_activations,
    "unstack": _unstack,
    "sink_reshapes": _sink_reshapes,
    "nest_concats": _nest_concats,
    "merge_groups": _merge_groups,
    "sink_concats": _sink_concats,
    "fold_scale": _fold_scale,
    "split_products": _split_products,
    "hoist_factors": _hoist_factors,
    "fold_pad": _fold_pad,
    "recognize_lrn": _recognize_lrn,
    "merge_branches": _merge_branches,
    "turn_products": _turn_products,
    "merge_moves": _merge_moves,
    "tabulate": _tabulate,
    "keep_places": _keep_places,
    "fuse_attention": _fuse_attention,
    "fuse_norm_masks": _fuse_norm_masks,
    "fuse_post_ops": _fuse_post_ops,
    "fuse_pointwise": _fuse_pointwise,
    "remove_dead": _remove_dead,
    "hoist_updates": _hoist_updates,
}
