"""Small graphs that every executor must agree on, and plans forced into one storage format."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, lru_cache
from typing import Any

import numpy as np
from tests.operator_tables import entries
from tests.simplified import plan_of

from stridewise.graph import Graph, Refusal
from stridewise.planner import derive
from stridewise.planning import Plan, make_plan
from stridewise.runtime.binding.library import load_core
from stridewise.runtime.binding.primitives import implementations
from stridewise.runtime.machine.machine import this_machine
from stridewise.targets.cost import KernelCost, host_cost
from stridewise.targets.kernels import HOST, KernelSpec
from stridewise.targets.onednn.target import onednn_cpu

from .attention_graphs import ATTENTION_CASES
from .gradient_graphs import GRADIENT_CASES
from .index_graphs import INDEX_GRAPHS
from .net import Net
from .norm_graphs import NORM_CASES
from .pointwise_graphs import POINTWISE_CASES

__all__ = ["CASES", "KINDS", "Net", "error", "forced_plan", "inputs_of"]

Array = np.ndarray[Any, np.dtype[Any]]
F32 = np.float32
KINDS = ("plain", "channels-last", "blocked")
THREADS = 2


def error(found: Array, expected: Array) -> float:
    """Return the greatest difference over the greatest magnitude."""
    assert found.shape == expected.shape
    assert not np.isnan(found).any()
    scale = max(float(np.abs(expected).max(initial=0)), 1e-30)
    return float(np.abs(found.astype(np.float64) - expected).max(initial=0)) / scale


def inputs_of(graph: Graph, seed: int = 1) -> dict[str, Array]:
    """Return standard normal inputs; integers from 0 to 2, which most axes have as indices."""
    rng = np.random.default_rng(seed)
    found: dict[str, Array] = {}
    for name in graph.inputs:
        value = graph.value(name)
        drawn = rng.normal(size=value.shape)
        whole = "int" in value.dtype.name or value.dtype.name == "bool"
        found[name] = (np.abs(drawn).clip(0, 2) if whole else drawn).astype(value.dtype.numpy)
    return found


# --- forcing formats ------------------------------------------------------------------------------


def _kind(spec: KernelSpec) -> str:
    memory = spec.memory("dst")
    tag = memory.tag if memory is not None else ""
    if any(letter.isdigit() for letter in tag):
        return "blocked"
    return "channels-last" if len(tag) > 2 and tag.endswith("b") else "plain"


@lru_cache(maxsize=1 << 14)
def _refusal(spec: KernelSpec) -> Refusal | None:
    """Return why there is no kernel, if so. Plans in each kind of format ask for the same ones."""
    try:
        implementations(spec, THREADS, limit=1)
    except load_core().NativeError as found:
        return Refusal("onednn", str(spec), str(found))
    return None


class ForcingOracle:
    """Whatever the library has, kernels of one storage kind are cheap and reorders cheaper.

    The naive loops count like any other kernel: what they compute matters here, not how fast.
    """

    def __init__(self, kind: str, far: float = 100.0) -> None:
        self.kind, self.far = kind, far

    def costs(
        self, specs: Sequence[KernelSpec], progress: Any = None
    ) -> Mapping[KernelSpec, tuple[KernelCost, ...] | Refusal]:
        del progress
        return {spec: self._cost(spec) for spec in specs}

    def _cost(self, spec: KernelSpec) -> tuple[KernelCost, ...] | Refusal:
        if spec.kind == HOST:
            return (host_cost(spec),)
        refusal = _refusal(spec)
        if refusal is not None:
            return refusal
        prices = {True: 100.0, False: 100.0 * self.far}
        cost = 1.0 if spec.kind == "reorder" else prices[_kind(spec) == self.kind]
        # Sums in place are a little cheaper than reading the operand from elsewhere.
        cost -= any(post.kind == "sum" for post in spec.post_ops)
        return (KernelCost(cost, "", "model"),)


def forced_plan(graph: Graph, kind: str, *, simplified: bool = True) -> Plan:
    """Plan a graph so that as much as possible is stored in one kind of format."""
    machine = this_machine(THREADS)
    target, oracle = onednn_cpu(machine), ForcingOracle(kind)
    if simplified:
        return plan_of(graph, target, machine, oracle)
    return make_plan(derive(graph), target, machine, oracle)


# --- the graphs -----------------------------------------------------------------------------------


def _conv(*shape: int, outputs: int, kernel: int = 3, **attrs: Any) -> Callable[[], Graph]:
    def make() -> Graph:
        b = Net(*shape)
        return b.build([b.conv(b.x, outputs, kernel, **attrs)])

    return make


def _transposed(
    *shape: int, outputs: int, kernel: int = 3, groups: int = 1, **attrs: Any
) -> Callable[[], Graph]:
    """Return a transposed convolution with constant weights, bias and post-ops."""

    def make() -> Graph:
        b = Net(*shape)
        rank = len(shape) - 2
        w = b.data(shape[1], outputs // groups, *(kernel,) * rank)
        y = b.op("conv_transpose", [b.x, w, b.data(outputs)], {"groups": groups, **attrs})
        y = b.op("relu", [b.op("add", [y, b.input("skip", b.type(y).shape)])])
        return b.build([b.named(y)])

    return make


def _transposed_plainly() -> Graph:
    """Return a transposed convolution whose weights and bias are inputs, grouped and not."""
    b = Net(2, 6, 4, 5)
    w, bias = b.input("w", (6, 4, 3, 2)), b.input("bias", (8,))
    y = b.op("conv_transpose", [b.x, w], {"strides": (2, 1)})
    return b.build([b.op("conv_transpose", [b.x, w, bias], {"groups": 2}), b.op("abs", [y])])


def _chain(channels: int, batch: int) -> Graph:
    """Return a residual block behind a first layer of three channels."""
    b = Net(batch, 3, 9, 8)
    y = b.op("relu", [b.conv(b.x, channels, 3)])
    z = b.conv(b.op("clip", [b.conv(y, channels, 3)], {"alpha": 0.0, "beta": 6.0}), channels)
    y = b.op("relu", [b.op("add", [z, y])])
    y = b.op("max_pool", [y], {"kernel": (3, 3), "strides": (2, 2), "pads": (1,) * 4})
    y = b.op("reduce_mean", [y], {"axes": (2, 3), "keepdims": 0})
    return b.build([b.op("matmul", [y, b.data(channels, 10), b.data(10)])])


def _unaries(channels: int) -> Graph:
    """Return every elementwise function, each between convolutions and at an end."""
    b = Net(2, channels, 3, 5)
    y = b.named(b.x)
    results = []
    for op in ("relu", "leaky_relu", "sigmoid", "tanh", "hard_sigmoid", "hard_swish", "swish",
               "elu", "gelu", "softplus", "exp", "abs", "neg"):  # fmt: skip
        z = b.op(op, [b.op("abs", [y])]) if op == "softplus" else b.op(op, [y])
        results.append(b.named(z))
    positive = b.op("add", [b.op("abs", [y]), b.constant(np.ones(1, F32))])
    results += [b.named(b.op(op, [positive])) for op in ("log", "sqrt", "reciprocal")]
    results += [b.named(b.op("power", [positive], {"alpha": alpha})) for alpha in (3.0, -1.5)]
    # What is computed is not the same in the last bit, which decides where halves go.
    results.append(b.named(b.op("round", [b.x])))
    step = {"alpha": 0.02, "beta": 3.0}
    results += [b.named(b.op(op, [b.x], step)) for op in ("snap_s8", "snap_u8")]
    results.append(b.named(b.op("clip", [y], {"alpha": 0.25, "beta": 0.5})))
    return b.build(results)


def _binaries(operand: str) -> Graph:
    """Return all binary operators of a named tensor and one other operand."""
    b = Net(3, 17, 4, 5)
    n, c, h, w = 3, 17, 4, 5
    y = b.named(b.x)
    shapes = {
        "scalar": (),
        "one": (1, 1, 1, 1),
        "row": (c, 1, 1),
        "channels": (n, c, 1, 1),
        "plane": (n, 1, h, w),
        "columns": (w,),
        "full": (n, c, h, w),
        "batch": (1, c, h, w),
    }
    kind, _, what = operand.partition(" ")
    shape = shapes[what]
    other = b.data(*shape) if kind == "constant" else b.input("other", shape or (1,))
    if kind == "variable" and len(shape) == 4:
        other = b.named(other) if shape[1] == c else b.op("relu", [other])
    results = [b.op(op, [y, other]) for op in ("add", "sub", "mul", "maximum", "minimum")]
    results += [b.op("sub", [other, y]), b.op("mul", [other, y])]
    positive = b.op("add", [b.op("abs", [other]), b.constant(np.ones(1, F32))])
    results.append(b.op("div", [y, positive]))
    return b.build([b.named(z) for z in results])


def _pools(*shape: int) -> Graph:
    b = Net(*shape)
    rank = len(shape) - 2
    twos, threes = (2,) * rank, (3,) * rank
    y = b.named(b.x)
    asymmetric = (1, *(0,) * (rank - 1), *(1,) * rank)
    results = [
        b.op("max_pool", [y], {"kernel": threes, "strides": twos, "pads": asymmetric}),
        b.op("max_pool", [y], {"kernel": twos, "dilations": twos}),
        b.op("avg_pool", [y], {"kernel": threes, "pads": asymmetric}),
        b.op("avg_pool", [y], {"kernel": threes, "pads": asymmetric, "count_include_pad": 1}),
        b.op("avg_pool", [y], {"kernel": shape[2:]}),
    ]
    return b.build([b.named(z) for z in results])


def _norms() -> Graph:
    b = Net(3, 17, 5, 4)
    y = b.op("scale_shift", [b.named(b.op("tanh", [b.x])), b.data(17), b.data(17)])
    z = b.op("relu", [b.op("scale_shift", [b.op("relu", [y]), b.data(17), b.data(17)])])
    lrn = b.op("lrn", [z], {"size": 5, "alpha": 0.1, "beta": 0.75, "bias": 1.5})
    return b.build([b.named(z), b.named(lrn), b.op("lrn", [b.x], {"size": 3})])


def _products() -> Graph:
    b = Net(6, 8)
    batch, wide = b.input("batch", (2, 3, 4, 8)), b.input("wide", (3, 8, 5))
    row, square = b.input("row", (8,)), b.input("square", (6, 6))
    tall = b.op("matmul", [b.x, b.data(8, 17), b.data(17)])
    results = [
        b.op("relu", [b.op("add", [b.op("matmul", [square, b.op("neg", [tall])]), tall])]),
        b.op("matmul", [b.x, b.data(5, 8)], {"trans_b": 1}),
        b.op("matmul", [square, b.x], {"trans_a": 1}),
        b.op("matmul", [b.x, b.data(6, 7)], {"trans_a": 1}),
        b.op("matmul", [b.x, b.x], {"trans_b": 1}),
        b.op("matmul", [batch, b.data(8, 5), b.data(5)]),
        b.op("matmul", [batch, wide]),
        b.op("matmul", [batch, b.data(3, 8, 2)]),
        b.op("matmul", [batch, wide], {"trans_a": 0, "trans_b": 0}),
        b.op("matmul", [b.x, wide]),
        b.op("matmul", [row, b.data(8, 3)]),
        b.op("matmul", [b.x, row]),
        b.op("matmul", [batch, row]),
        b.op("matmul", [row, wide]),
        b.op("tanh", [b.op("matmul", [b.x, b.data(8, 1)])]),
    ]
    return b.build(results)


def _reductions(*shape: int) -> Graph:
    b = Net(*shape)
    y = b.named(b.x)
    spatial = tuple(range(2, len(shape)))
    results = []
    for op in ("reduce_mean", "reduce_sum", "reduce_max", "reduce_min", "reduce_prod", "reduce_l1",
               "reduce_l2", "reduce_sum_square", "reduce_log_sum_exp"):  # fmt: skip
        for axes in (spatial, (1,), (0, 1), (len(shape) - 1,)):
            results += [b.op(op, [y], {"axes": axes, "keepdims": keep}) for keep in (0, 1)]
        if op != "reduce_prod":  # which would make much of differences in the last bit
            results.append(b.op(op, [y], {"axes": tuple(range(len(shape)))}))
    powers = b.op("exp", [y])
    results += [b.op("reduce_log_sum", [powers], {"axes": axes}) for axes in (spatial, (1,))]
    gate = b.op("sigmoid", [b.named(b.op("reduce_mean", [y], {"axes": spatial}))])
    return b.build([*results, b.named(b.op("mul", [y, gate]))])


def _lone_reductions() -> Graph:
    """Return reductions over axes of one element, known and unknown, kept and dropped."""
    b = Net(2, 1, 5, 1)
    y = b.named(b.x)
    attrs = [{"axes": axes, "keepdims": keep} for axes in ((1,), (1, 3)) for keep in (0, 1)]
    raw = [b.op("reduce_max", [b.x], each) for each in attrs]
    return b.build([*raw, *(b.op("exp", [b.op("reduce_mean", [y], each)]) for each in attrs)])


def _slices() -> Graph:
    b = Net(3, 40, 6, 7)
    y = b.named(b.x)
    cuts = [
        ((0, 0, 0, 0), (3, 16, 6, 7), (1, 1, 1, 1)),
        ((1, 16, 0, 0), (2, 40, 6, 7), (1, 1, 1, 1)),
        ((2, 0, 0, 0), (3, 40, 6, 7), (1, 1, 1, 1)),
        ((0, 3, 1, 2), (2, 20, 5, 7), (1, 1, 1, 1)),
        ((0, 0, 0, 1), (3, 40, 6, 7), (2, 1, 3, 2)),
        ((0, 1, 0, 0), (3, 39, 6, 7), (1, 3, 1, 1)),
        # length * step reaches beyond the extent, which looks like overlapping strides
        ((0, 0, 0, 0), (3, 40, 6, 7), (2, 3, 5, 2)),
        ((0, 0, 1, 0), (3, 40, 6, 7), (1, 1, 4, 3)),
    ]
    keys = ("starts", "stops", "steps")
    parts = [b.op("slice", [y], dict(zip(keys, cut, strict=True))) for cut in cuts]
    raw = [b.op("slice", [b.x], dict(zip(keys, cut, strict=True))) for cut in cuts[1:5]]
    return b.build([*(b.named(part) for part in parts), *raw, *(b.op("exp", [p]) for p in parts)])


def _pads() -> Graph:
    b = Net(2, 17, 5, 4)
    y = b.op("tanh", [b.named(b.x)])
    results = [
        b.op("pad", [y], {"pads": (0, 0, 1, 2, 0, 0, 2, 0)}),
        b.op("pad", [y], {"pads": (0, 0, 1, 2, 0, 0, 2, 0), "value": -1.5}),
        b.op("pad", [y], {"pads": (0, 16, 0, 0, 0, 0, 0, 0)}),
        b.op("pad", [y], {"pads": (1, 3, 0, 0, 0, 2, 0, 1)}),
    ]
    return b.build([b.op("relu", [b.named(z)]) for z in results] + results)


def _resizes(*shape: int) -> Graph:
    """Return images resized by the library, and by matrices of every kind."""
    b = Net(*shape)
    y = b.named(b.x)
    results = []
    for factors in ((2, 3, 2), (0.5, 1.5, 1)):
        spatial = (max(1, int(e * f)) for e, f in zip(shape[2:], factors, strict=False))
        wanted = (*shape[:2], *spatial)
        for mode, coordinates in (
            ("nearest", "asymmetric"), ("nearest", "half_pixel"), ("linear", "half_pixel"),
            ("linear", "align_corners"), ("linear", "asymmetric"), ("cubic", "half_pixel"),
        ):  # fmt: skip
            attrs = {"shape": wanted, "mode": mode, "coordinates": coordinates, "rounding": "floor"}
            results.append(b.named(b.op("resize", [y], attrs)))
    wide = {"shape": (shape[0], 2 * shape[1], *shape[2:]), "mode": "linear"}
    grid = b.constant(b.rng.normal(size=(3, shape[2])).astype(F32), "grid")
    results += [b.op("resize", [b.x], wide), b.op("resize", [y], wide)]
    results.append(b.op("interpolate", [y, grid], {"axis": 2}))
    flat = b.op("reshape", [b.x], {"shape": (shape[0], int(np.prod(shape[1:])))})
    results.append(b.op("resize", [flat], {"shape": (3, 7), "mode": "linear"}))
    return b.build(results)


def _softmaxes(*shape: int) -> Graph:
    b = Net(*shape)
    y = b.named(b.x) if len(shape) > 2 else b.x
    ops = [(op, axis) for op in ("softmax", "log_softmax") for axis in range(len(shape))]
    results = [b.op(op, [y], {"axis": axis}) for op, axis in ops]
    return b.build([b.named(z) for z in results] if len(shape) > 2 else results)


def _casts() -> Graph:
    """Return casts between float32 and bfloat16, of images whose axes a convolution names."""
    b = Net(2, 17, 6, 5)
    half = b.op("cast", [b.x], {"to": "bfloat16"})
    whole = b.op("cast", [half], {"to": "float32"})
    return b.build([whole, b.conv(b.x, 8, 3)])


def _nhwc() -> Graph:
    """Return an input and a head in NHWC around convolutions, and work in between."""
    b = Net(2, 5, 6, 17)
    y = b.conv(b.op("transpose", [b.x], {"perm": (0, 3, 1, 2)}), 24, 3)
    y = b.op("relu", [b.op("transpose", [y], {"perm": (0, 2, 3, 1)})])
    y = b.op("add", [y, b.data(24)])
    z = b.op("mul", [b.op("transpose", [y], {"perm": (0, 3, 1, 2)}), b.data(24, 1, 1)])
    side = b.op("transpose", [b.input("side", (2, 24, 5, 6))], {"perm": (0, 2, 3, 1)})
    total = b.op("add", [y, side])
    head = b.op("softmax", [total], {"axis": 3})
    mean = b.op("reduce_mean", [total], {"axes": (1, 2), "keepdims": 0})
    joined = b.op("concat", [total, y], {"axis": 3})
    cut = {"starts": (0, 1, 0, 3), "stops": (2, 5, 6, 20), "steps": (1, 2, 1, 1)}
    padded = b.op("pad", [y], {"pads": (0, 1, 0, 0, 0, 0, 1, 0)})
    return b.build([b.conv(z, 3), head, mean, joined, b.op("slice", [joined], cut), padded])


def _transposes() -> Graph:
    b = Net(2, 3, 4, 5)
    y = b.named(b.x)
    perms = ((0, 2, 3, 1), (0, 3, 1, 2), (1, 0, 2, 3), (0, 1, 3, 2), (0, 1, 2, 3))
    results = [b.op("transpose", [y], {"perm": perm}) for perm in perms]
    free = b.op("reshape", [b.x], {"shape": (6, 20)})
    results.append(b.op("transpose", [free], {"perm": (1, 0)}))
    results.append(b.op("add", [b.op("transpose", [free], {"perm": (1, 0)}), b.data(20, 6)]))
    return b.build([*results, b.op("relu", [results[1]]), b.op("add", [results[3], results[3]])])


def _conflict() -> Graph:
    """Return convolutions about whose data in between two anchors disagree."""
    b = Net(2, 6, 6, 6)
    y = b.op("transpose", [b.conv(b.x, 6, 3)], {"perm": (0, 2, 3, 1)})
    y = b.conv(b.op("relu", [y]), 6, 3)
    shuffled = b.op(
        "channel_shuffle", [b.op("transpose", [y], {"perm": (0, 3, 2, 1)})], {"groups": 2}
    )
    return b.build([b.op("exp", [y]), b.op("max_pool", [shuffled], {"kernel": (2, 2)})])


def _concats(batch: int) -> Graph:
    b = Net(batch, 17, 4, 4)
    pieces = [b.conv(b.x, 16), b.conv(b.x, 32), b.conv(b.x, 17)]
    constant = b.data(batch, 16, 4, 4)
    results = [
        b.op("concat", pieces, {"axis": 1}),
        b.op("concat", [pieces[2], pieces[0]], {"axis": 1}),
        b.op("concat", [pieces[0], constant, b.x], {"axis": 1}),
        b.op("concat", [b.op("tanh", [b.x]), pieces[2]], {"axis": 2}),
        b.op("concat", [pieces[2], b.op("exp", [b.x])], {"axis": 0}),
    ]
    return b.build([b.named(z) for z in results])


def _dense() -> Graph:
    """Return nested concats as DenseNet has them."""
    b = Net(1, 3, 6, 6)
    y = b.conv(b.x, 16, 3)
    for _ in range(4):
        channels = b.type(y).shape[1]
        z = b.op("scale_shift", [y, b.data(channels), b.data(channels)])
        z = b.conv(b.op("relu", [z]), 16, 3)
        y = b.op("concat", [y, z], {"axis": 1})
    return b.build([b.op("reduce_mean", [y], {"axes": (2, 3)})])


def _reshapes() -> Graph:
    b = Net(2, 17, 1, 1)
    y = b.op("relu", [b.conv(b.x, 16)])
    z = b.op("relu", [b.conv(b.x, 17)])
    flat = b.op("reshape", [y], {"shape": (2, 16)})
    return b.build([
        b.op("matmul", [flat, b.data(16, 5)]),
        b.op("reshape", [z], {"shape": (34,)}),
        b.named(b.op("reshape", [b.op("exp", [z])], {"shape": (2, 1, 17, 1)})),
        b.op("identity", [z]),
    ])  # fmt: skip


def _post_ops() -> Graph:
    """Return convolutions with every kind of post-op, some with several operands."""
    b = Net(2, 17, 5, 5)
    y = b.named(b.x)
    results = []
    for op in ("relu", "leaky_relu", "sigmoid", "tanh", "hard_swish", "swish", "elu", "gelu",
               "softplus", "hard_sigmoid", "exp"):  # fmt: skip
        results.append(b.op(op, [b.op("add", [b.conv(y, 17), y])]))
    for op in ("mul", "maximum", "minimum"):
        results.append(b.op("add", [b.op(op, [b.conv(y, 17, 3), y]), b.x]))
    return b.build(results)


def _reversed() -> Graph:
    """Return an image with all of its axes in reverse."""
    b = Net(2, 3, 4, 5)
    y = b.op("transpose", [b.named(b.x)], {"perm": (3, 2, 1, 0)})
    return b.build([y, b.op("relu", [y])])


def _scalars() -> Graph:
    """Return results without axes."""
    b = Net(3)
    total = b.op("reduce_sum", [b.x], {"axes": (0,), "keepdims": 0})
    return b.build([total, b.op("matmul", [b.x, b.x])])


def _lone_norm() -> Graph:
    """Return a scale and shift that neither a convolution nor an activation takes over."""
    b = Net(2, 17, 6, 6)
    y = b.op("max_pool", [b.named(b.x)], {"kernel": (2, 2)})
    return b.build([b.conv(b.op("scale_shift", [y, b.data(17), b.data(17)]), 9, 3)])


def _swapped() -> Graph:
    """Return reductions of images whose batch comes second."""
    b = Net(3, 17, 4, 4)
    y = b.op("transpose", [b.named(b.x)], {"perm": (1, 0, 2, 3)})
    return b.build([
        b.op("reduce_mean", [y], {"axes": (2, 3), "keepdims": 0}),
        b.op("reduce_max", [y], {"axes": (2, 3), "keepdims": 1}),
    ])  # fmt: skip


def _gate_nhwc() -> Graph:
    """Return a reduction in NHWC that a convolution reads as if it were NCHW."""
    b = Net(2, 4, 4, 17)
    y = b.named(b.op("transpose", [b.x], {"perm": (0, 3, 1, 2)}))
    y = b.op("transpose", [y], {"perm": (0, 2, 3, 1)})
    return b.build([b.conv(b.op("reduce_mean", [y], {"axes": (1, 2)}), 3)])


def _constants() -> Graph:
    """Return outputs that are constants, or computed from constants alone."""
    b = Net(2, 3)
    c, d = b.data(2, 3), b.data(3)
    return b.build(
        [c, b.op("add", [c, d]), b.op("concat", [c, c], {"axis": 1}), b.op("relu", [b.x])]
    )


_CASES: dict[str, Callable[[], Graph]] = {
    **INDEX_GRAPHS,
    **entries("GRAPHS"),
    **{f"conv_1d_{c}": _conv(2, c, 9, outputs=17, pads=(1, 2)) for c in (1, 24)},
    **{f"conv_2d_{c}": _conv(3, c, 7, 6, outputs=c + 1) for c in (1, 3, 17, 24, 100)},
    "conv_3d": _conv(1, 3, 5, 4, 6, outputs=17, strides=(2, 1, 2)),
    "conv_3d_17": _conv(3, 17, 4, 4, 3, outputs=5),
    "conv_3d_depthwise": _conv(2, 17, 4, 6, 5, outputs=17, groups=17, strides=(1, 2, 1)),
    "conv_one": _conv(1, 100, 4, 4, outputs=24, kernel=1),
    "conv_strided": _conv(1, 17, 9, 9, outputs=24, strides=(2, 3), bias=False),
    "conv_grouped": _conv(2, 24, 6, 6, outputs=12, groups=3),
    "conv_grouped_32": _conv(1, 32, 6, 6, outputs=32, groups=2),
    "conv_depthwise_17": _conv(3, 17, 6, 6, outputs=17, groups=17),
    "conv_depthwise_32": _conv(1, 32, 7, 7, outputs=32, groups=32, strides=(2, 2)),
    "conv_multiplied": _conv(1, 3, 6, 6, outputs=6, groups=3),
    "conv_depthwise_multiplied": _conv(2, 22, 7, 6, outputs=44, groups=22, strides=(2, 1)),
    "conv_grouped_narrow": _conv(2, 44, 7, 6, outputs=44, groups=11, strides=(1, 2)),
    "conv_grouped_in_pairs": _conv(1, 18, 9, 8, outputs=18, groups=9, kernel=5, pads=(2,) * 4),
    "conv_dilated": _conv(2, 17, 9, 9, outputs=24, dilations=(2, 3), pads=(2, 3, 2, 3)),
    "conv_asymmetric": _conv(1, 3, 8, 7, outputs=17, pads=(0, 1, 2, 3)),
    "transposed_1d": _transposed(2, 17, 9, outputs=24, strides=(2,)),
    **{
        f"transposed_2d_{c}": _transposed(2, c, 5, 4, outputs=c, kernel=2, strides=(2, 2))
        for c in (1, 17, 24, 32)
    },
    "transposed_3d": _transposed(1, 24, 3, 4, 3, outputs=8, strides=(2, 1, 2), pads=(1,) * 6),
    "transposed_dilated": _transposed(
        1, 32, 5, 6, outputs=17, strides=(2, 3), dilations=(2, 1), pads=(2, 1, 3, -2)
    ),
    "transposed_dense": _transposed(3, 16, 5, 6, outputs=32, pads=(2, 1, 2, 1)),
    "transposed_grouped": _transposed(2, 12, 5, 4, outputs=18, groups=3, strides=(2, 2)),
    "transposed_grouped_32": _transposed(
        1, 64, 4, 4, outputs=32, groups=2, strides=(2, 3), pads=(0, 0, -1, -2)
    ),
    "transposed_depthwise": _transposed(
        2, 17, 5, 4, outputs=17, groups=17, kernel=4, strides=(2, 2), pads=(1,) * 4
    ),
    "transposed_plainly": _transposed_plainly,
    **{
        f"chain_{c}_{n}": lambda c=c, n=n: _chain(c, n)
        for c, n in ((1, 3), (3, 1), (17, 3), (24, 1), (100, 1))
    },
    **{f"unaries_{c}": lambda c=c: _unaries(c) for c in (1, 17, 24)},
    **{
        f"binaries_{kind}_{what}": lambda kind=kind, what=what: _binaries(f"{kind} {what}")
        for kind in ("constant", "variable")
        for what in ("scalar", "one", "row", "channels", "plane", "columns", "full", "batch")
    },
    "pools_1d": lambda: _pools(2, 3, 7),
    "pools_2d": lambda: _pools(3, 17, 5, 6),
    "pools_3d": lambda: _pools(1, 24, 4, 5, 4),
    "norms": _norms,
    **GRADIENT_CASES,
    **ATTENTION_CASES,
    **NORM_CASES,
    **POINTWISE_CASES,
    "products": _products,
    "reductions_2d": lambda: _reductions(3, 17, 4, 5),
    "reductions_1d": lambda: _reductions(1, 24, 5),
    "slices": _slices,
    "lone_reductions": _lone_reductions,
    "pads": _pads,
    "resizes_1d": lambda: _resizes(2, 17, 5),
    "resizes_2d": lambda: _resizes(2, 17, 5, 4),
    "resizes_3d": lambda: _resizes(1, 24, 3, 4, 3),
    "softmaxes_2d": lambda: _softmaxes(3, 17, 4, 5),
    "softmaxes_rows": lambda: _softmaxes(5, 7),
    "casts": _casts,
    "nhwc": _nhwc,
    "transposes": _transposes,
    "conflict": _conflict,
    "concats_1": lambda: _concats(1),
    "concats_3": lambda: _concats(3),
    "dense": _dense,
    "reshapes": _reshapes,
    "post_ops": _post_ops,
    "reversed": _reversed,
    "scalars": _scalars,
    "lone_norm": _lone_norm,
    "swapped": _swapped,
    "gate_nhwc": _gate_nhwc,
    "constants": _constants,
}
CASES = {name: cache(make) for name, make in _CASES.items()}
"""Makers of graphs; each is made once, for plans in all kinds of formats."""
