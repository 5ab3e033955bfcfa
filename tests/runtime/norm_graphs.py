"""Graphs of normalizations and activations that every executor must agree on."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

from stridewise.graph import Graph

from .net import Net

__all__ = ["NORM_CASES"]


def _layer_norms(*shape: int) -> Graph:
    """Return norms over one axis and over several, with and without parameters."""
    b = Net(*shape)
    y = b.named(b.x)
    rank = len(shape)
    choices = [(axis,) for axis in range(1, rank)] + [tuple(range(2, rank)), tuple(range(1, rank))]
    results = []
    for axes, count in product(dict.fromkeys(choices), range(3)):
        parameters = [b.data(*(shape[axis] for axis in axes)) for _ in range(count)]
        results.append(b.op("layer_norm", [y, *parameters], {"axes": axes}))
    shift = b.data(shape[1])
    results.append(b.op("layer_norm", [y, "", shift], {"axes": (1,), "epsilon": 0.5}))
    computed = [b.input(name, (shape[1],)) for name in ("scale", "shift")]
    results.append(b.op("layer_norm", [y, *computed], {"axes": (1,)}))
    return b.build([b.named(z) for z in results])


def _rows() -> Graph:
    """Return norms of tensors with unknown axes."""
    b = Net(3, 5, 24)
    results = []
    for axes in ((2,), (1, 2), (0, 1, 2), (1,)):
        shape = [b.type(b.x).shape[axis] for axis in axes]
        results.append(b.op("layer_norm", [b.x, b.data(*shape), b.data(*shape)], {"axes": axes}))
    return b.build(results)


def _channels_last_norm() -> Graph:
    """Return ConvNeXt's block as PyTorch exports it: a transpose, a norm, a transpose back."""
    b = Net(2, 17, 5, 4)
    y = b.op("transpose", [b.named(b.x)], {"perm": (0, 2, 3, 1)})
    y = b.op("layer_norm", [y, b.data(17), b.data(17)], {"axes": (3,)})
    y = b.op("gelu", [b.op("matmul", [y, b.data(17, 24), b.data(24)])])
    y = b.op("transpose", [b.op("relu", [y])], {"perm": (0, 3, 1, 2)})
    return b.build([b.named(y)])


def _group_norms(channels: int, *spatial: int) -> Graph:
    b = Net(3, channels, *spatial)
    y = b.named(b.x)
    results = []
    for groups in (divisor for divisor in (1, 2, 3, 4, channels) if channels % divisor == 0):
        for count in range(3):
            inputs = [y, *(b.data(channels) for _ in range(count))]
            results.append(b.op("group_norm", inputs, {"groups": groups}))
    results.append(b.op("group_norm", [y, "", b.data(channels)], {"groups": channels}))
    computed = [b.input(name, (channels,)) for name in ("scale", "shift")]
    results.append(b.op("group_norm", [y, *computed], {"groups": channels, "epsilon": 0.25}))
    return b.build([b.named(z) for z in results])


def _lone_group_norms() -> Graph:
    """Return norms of an input that the caller still needs, and of one image alone."""
    b = Net(1, 24, 4, 5)
    attrs = {"groups": 24}
    y = b.op("group_norm", [b.x, b.data(24), b.data(24)], attrs)
    return b.build([y, b.op("relu", [b.op("group_norm", [y], {"groups": 3})])])


def _prelus(channels: int) -> Graph:
    b = Net(3, channels, 4, 5)
    y = b.named(b.x)
    shapes = ((channels, 1, 1), (1,), (5,), (3, channels, 4, 5), (1, channels, 4, 5), (4, 1))
    results = [b.op("prelu", [y, b.data(*shape)]) for shape in shapes]
    results.append(b.op("prelu", [y, b.named(b.op("tanh", [y]))]))
    raw = b.op("prelu", [b.op("neg", [b.x]), b.data(channels, 1, 1)])
    return b.build([raw, *(b.named(z) for z in results)])


def _computed_scale() -> Graph:
    """Return a scale and shift that are inputs of the model."""
    b = Net(2, 17, 4, 5)
    pair = [b.input(name, (17,)) for name in ("scale", "shift")]
    y = b.op("max_pool", [b.named(b.x)], {"kernel": (2, 2)})
    return b.build([b.named(b.op("relu", [b.op("scale_shift", [y, *pair])]))])


_STEPS = (
    ("celu", {"alpha": 1.5}), ("gelu_tanh", {}), ("mish", {}), ("selu", {}),
    ("selu", {"alpha": 0.5, "beta": 2.0}), ("linear", {"alpha": -0.5, "beta": 2.0}),
)  # fmt: skip


def _steps(channels: int) -> Graph:
    """Return functions of one and of several algorithms, alone and as post-ops."""
    b = Net(2, channels, 3, 5)
    y = b.op("max_pool", [b.named(b.x)], {"kernel": (1, 1)})
    results = [b.op(op, [y], attrs) for op, attrs in _STEPS]
    for op, attrs in _STEPS:
        z = b.op(op, [b.op("add", [b.conv(y, channels, 3), y])], attrs)
        results.append(b.op("mul", [b.op(op, [b.conv(z, channels)], attrs), y]))
    return b.build([b.named(z) for z in results])


NORM_CASES: dict[str, Callable[[], Graph]] = {
    "layer_norms_1d": lambda: _layer_norms(2, 24, 5),
    "layer_norms_2d": lambda: _layer_norms(2, 17, 4, 5),
    "layer_norms_3d": lambda: _layer_norms(1, 8, 3, 2, 4),
    "layer_norms_pixel": lambda: _layer_norms(3, 17, 1, 1),
    "layer_norms_rows": _rows,
    "layer_norm_nhwc": _channels_last_norm,
    "group_norms_1d": lambda: _group_norms(24, 7),
    "group_norms_17": lambda: _group_norms(17, 4, 5),
    "group_norms_32": lambda: _group_norms(32, 4, 5),
    "group_norms_3d": lambda: _group_norms(16, 3, 2, 4),
    "group_norms_alone": _lone_group_norms,
    "prelus_17": lambda: _prelus(17),
    "prelus_24": lambda: _prelus(24),
    "computed_scale": _computed_scale,
    "steps_17": lambda: _steps(17),
    "steps_24": lambda: _steps(24),
}
