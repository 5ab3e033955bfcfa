"""Channel shuffle, which ONNX writes as Reshape, Transpose, Reshape."""

from __future__ import annotations

from functools import partial

import numpy as np
from tests.pure.onnx_case import Case, Rng, image
from tests.runtime.net import Net

from stridewise.graph import Graph


def _case(rng: Rng) -> Case:
    x = image(rng, 2)
    n, c, h, w = x.shape
    groups = int(rng.choice([d for d in (1, 2, 3, 4, 17) if c % d == 0]))
    constants = {
        "split": np.array([n, groups, c // groups, h, w]),
        "back": np.array([n, c, h, w]),
    }
    nodes = [
        ("Reshape", ["x0", "split"], {}),
        ("Transpose", ["y0"], {"perm": [0, 2, 1, 3, 4]}),
        ("Reshape", ["y1", "back"], {}),
    ]
    return Case([x], nodes, {"groups": groups}, constants)


def _graph(channels: int, groups: int) -> Graph:
    b = Net(2, channels, 3, 4)
    y = b.op("channel_shuffle", [b.named(b.x)], {"groups": groups})
    return b.build([b.named(y), b.op("channel_shuffle", [b.x], {"groups": channels // groups})])


CASES = {"channel_shuffle": _case}

REFUSED = [
    ("channel_shuffle", [(1, 4, 5, 5)], {"groups": 3}, "groups that divide the channels, found 3"),
    ("channel_shuffle", [(4,)], {"groups": 2}, "an input with a channel axis, found f32[4]"),
]

GRADIENTS = {
    "channel_shuffle": lambda b: b.op("channel_shuffle", [b.draw(1, 6, 2, 2)], {"groups": 2})
}

GRAPHS = {f"shuffle_{c}": partial(_graph, c, g) for c, g in ((24, 3), (32, 2), (17, 17))}
