"""Cases of normalizations, activations and poolings, and what their inference refuses."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from stridewise.graph import Attr

from .onnx_case import CHANNELS, F32, Array, Case, Rng, draw, image, ints

__all__ = ["NORM_CASES", "NORM_REFUSED"]

Make = Callable[[Rng], Case]


def activation(op: str, attrs: Mapping[str, float], names: Sequence[str], **rest: Any) -> Make:
    """Return cases of an elementwise function; ``names`` are ONNX's names of alpha and beta."""

    def make(rng: Rng) -> Case:
        theirs = dict(zip(names, attrs.values(), strict=True))
        return Case([3 * image(rng)], [(op, ["x0"], {**theirs, **rest})], attrs)

    return make


def _some(rng: Rng, pair: Sequence[Array]) -> list[Array | None]:
    """Return a scale and a shift, or the scale alone."""
    return list(pair) if rng.integers(2) else [pair[0]]


def layer_norm(rng: Rng) -> Case:
    """Return a norm over the last axes, or over any, moved there and back."""
    x = 2 * image(rng) + F32(1.5)
    count = int(rng.integers(1, x.ndim))
    order = [*rng.permutation(x.ndim)] if rng.integers(2) else [*range(x.ndim)]
    axes = ints(order[-count:])
    shape = tuple(x.shape[axis] for axis in axes)
    given = _some(rng, (draw(rng, *shape), draw(rng, *shape)))
    attrs: dict[str, Attr] = {"axes": axes, "epsilon": 1e-3}
    back = [order.index(axis) for axis in range(x.ndim)]
    names = [f"x{index}" for index in range(1, len(given) + 1)]
    nodes = [
        ("Transpose", ["x0"], {"perm": ints(order)}),
        ("LayerNormalization", ["y0", *names], {"axis": -count, "epsilon": 1e-3}),
        ("Transpose", ["y1"], {"perm": back}),
    ]
    return Case([x, *given], nodes, attrs, rtol=1e-5)


def group_norm(rng: Rng) -> Case:
    """Return a norm of groups, which ONNX sees as channels of narrower images."""
    x = 2 * image(rng) + F32(1.5)
    channels = x.shape[1]
    groups = int(rng.choice([d for d in (1, 3, 8, channels) if channels % d == 0]))
    column = (channels, *(1,) * (x.ndim - 2))
    given = _some(rng, (draw(rng, channels), draw(rng, channels)))
    constants = {
        "flat": np.array([x.shape[0], groups, -1]),
        "shape": np.array(x.shape),
        "ones": np.ones(groups, F32),
        "zeros": np.zeros(groups, F32),
        "column": np.array(column),
    }
    nodes: list[tuple[str, Sequence[str], dict[str, Any]]] = [
        ("Reshape", ["x0", "flat"], {}),
        ("InstanceNormalization", ["y0", "ones", "zeros"], {"epsilon": 1e-3}),
        ("Reshape", ["y1", "shape"], {}),
    ]
    for index, op in zip(range(1, len(given) + 1), ("Mul", "Add"), strict=False):
        nodes.append(("Reshape", [f"x{index}", "column"], {}))
        number = len(nodes)
        nodes.append((op, [f"y{number - 2}", f"y{number - 1}"], {}))
    return Case([x, *given], nodes, {"groups": groups, "epsilon": 1e-3}, constants, rtol=1e-5)


def linear(rng: Rng) -> Case:
    slope, shift = rng.standard_normal(2).astype(F32)
    nodes: list[tuple[str, Sequence[str], dict[str, Any]]] = [
        ("Mul", ["x0", "slope"], {}),
        ("Add", ["y0", "shift"], {}),
    ]
    constants = {"slope": np.array(slope), "shift": np.array(shift)}
    attrs: dict[str, Attr] = {"alpha": float(slope), "beta": float(shift)}
    return Case([image(rng)], nodes, attrs, constants, rtol=1e-5)


def prelu(rng: Rng) -> Case:
    x = image(rng, 2)
    n, c, h, w = x.shape
    shapes = [(n, c, h, w), (1, c, 1, 1), (c, 1, 1), (1,), (n, 1, h, w), (n, c, 1, 1), (w,), ()]
    slope = draw(rng, *shapes[rng.integers(len(shapes))])
    return Case([x, np.asarray(slope)], [("PRelu", ["x0", "x1"], {})])


def max_pool_indices(rng: Rng) -> Case:
    x = image(rng, 2)
    kernel = rng.integers(1, 4, 2)
    window = {
        "strides": ints(rng.integers(2, 4, 2)),
        "dilations": ints(rng.integers(1, 3, 2)),
        "pads": ints([rng.integers(0, k) for k in (*kernel, *kernel)]),
        "storage_order": int(rng.integers(2)),
    }
    attrs: dict[str, Attr] = {**window, "kernel": ints(kernel)}
    theirs = {**window, "kernel_shape": ints(kernel)}
    return Case([x], [("MaxPool", ["x0"], theirs)], attrs, output=1)


def max_unpool(rng: Rng) -> Case:
    x = draw(rng, 2, int(rng.choice(CHANNELS)), *rng.integers(1, 4, 2))
    sizes = np.array(x.shape[2:])
    kernel, strides = rng.integers(1, 4, 2), rng.integers(1, 3, 2)
    inner = (sizes - 1) * strides + kernel
    shape = inner + rng.integers(0, 3, 2) * rng.integers(2)
    places = rng.permutation(int(np.prod([*x.shape[:2], *inner])))[: x.size].reshape(x.shape)
    constants = {"shape": np.array([*x.shape[:2], *shape])}
    theirs = {"kernel_shape": ints(kernel), "strides": ints(strides)}
    attrs: dict[str, Attr] = {"inner": ints(inner), "shape": ints(shape)}
    return Case([x, places], [("MaxUnpool", ["x0", "x1", "shape"], theirs)], attrs, constants)


NORM_CASES: dict[str, Make] = {
    "celu": activation("Celu", {"alpha": 1.5}, ["alpha"]),
    "gelu_tanh": activation("Gelu", {}, [], approximate="tanh"),
    "group_norm": group_norm,
    "layer_norm": layer_norm,
    "linear": linear,
    "max_pool_indices": max_pool_indices,
    "max_unpool": max_unpool,
    "mish": activation("Mish", {}, []),
    "prelu": prelu,
    "selu": activation("Selu", {"alpha": 1.5, "beta": 1.25}, ["alpha", "gamma"]),
    "shrink": activation("Shrink", {"alpha": 1.0, "beta": 0.25}, ["lambd", "bias"]),
    "thresholded_relu": activation("ThresholdedRelu", {"alpha": 0.5}, ["alpha"]),
}

_X = (1, 4, 5, 5)

NORM_REFUSED: list[tuple[str, list[tuple[int, ...] | None], dict[str, Attr], str]] = [
    ("group_norm", [_X], {"groups": 3}, "groups that divide 4 channels, found 3"),
    ("group_norm", [_X], {"groups": 0}, "groups that divide 4 channels, found 0"),
    ("group_norm", [(4,)], {"groups": 1}, "an input with a channel axis, found f32[4]"),
    ("group_norm", [_X, (2,)], {"groups": 2}, "input 1 to be f32[4], found f32[2]"),
    ("group_norm", [_X], {"groups": 2, "epsilon": -1.0}, "an epsilon of 0 or more"),
    ("layer_norm", [_X], {"axes": (4,)}, "distinct axes below 4, found (4,)"),
    ("layer_norm", [_X], {"axes": ()}, "distinct axes below 4, found ()"),
    ("layer_norm", [_X], {"axes": (1, 1)}, "distinct axes below 4, found (1, 1)"),
    ("layer_norm", [_X, (5, 4)], {"axes": (1, 3)}, "input 1 to be f32[4,5], found f32[5,4]"),
    ("layer_norm", [_X, None, (4,)], {"axes": (3,)}, "input 2 to be f32[5], found f32[4]"),
    ("max_unpool", [_X, _X], {"inner": (9,), "shape": (9,)}, "inner and shape of 2 positive ext"),
    ("max_unpool", [_X, _X], {"inner": (9, 9), "shape": (9, 8)}, "a shape of (9, 9) or more"),
    ("max_unpool", [_X, _X], {"inner": (9, 9), "shape": (9, 9)}, "indices s64[1, 4, 5, 5]"),
    ("prelu", [_X, (4,)], {}, "a slope that broadcasts to f32[1,4,5,5], found f32[4]"),
    ("prelu", [_X, (1, 1, 4, 1, 1)], {}, "a slope that broadcasts to f32[1,4,5,5]"),
]
