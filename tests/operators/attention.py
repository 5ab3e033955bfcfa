"""Attention, which ONNX writes as products, steps between them and a softmax."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from tests.pure.onnx_case import F32, Array, Case, Rng
from tests.runtime.net import Net

from stridewise.graph import Attr, Graph

_Nodes = list[tuple[str, Sequence[str], dict[str, Any]]]


def _drawn(rng: Rng, whole: tuple[int, ...]) -> Array:
    """Return an array that broadcasts to a shape."""
    shape = [extent if rng.integers(3) else 1 for extent in whole]
    return rng.normal(size=shape).astype(F32)


def _case(rng: Rng) -> Case:
    """Return matrices in any order of axes, and any steps."""
    batch, heads, queries, keys, depth, width = (int(size) for size in rng.integers(1, 6, 6))
    perms = [tuple(map(int, rng.permutation(4))) for _ in range(4)]
    shapes = [(batch, heads, queries, depth), (batch, heads, keys, depth)]
    shapes.append((batch, heads, keys, width))
    arrays = [
        rng.normal(size=shape).astype(F32).transpose(np.argsort(perm))
        for shape, perm in zip(shapes, perms, strict=False)
    ]
    steps = [str(step) for step in rng.choice(["add", "mul", "where", "where_not"], 2)]
    fills = tuple(float(fill) for fill in rng.choice([-50.0, -3.0, 0.0], 2))
    whole = (batch * heads, queries, keys)
    operands = [_drawn(rng, whole) for _ in steps]
    for step, operand in zip(steps, operands, strict=True):
        if step.startswith("where"):
            operand[:] = (operand > 0) != (step == "where")
            operand[..., :1] = step == "where_not"  # no row has all scores replaced
    zeroed = str(rng.choice(["", "empty", "nan"]))
    attrs: dict[str, Attr] = {
        **{f"perm_{name}": perm for name, perm in zip("qkv", perms, strict=False)},
        **{"perm": perms[3], "scale": 0.5, "steps": tuple(steps), "fills": fills},
        **{"shape": whole, "query_axes": 1, "key_axes": 1, "zeroed": zeroed},
    }
    constants: dict[str, Array] = {"scale": np.array(0.5, F32), "whole": np.array(whole)}
    constants["back"] = np.array((batch, heads, queries, keys))
    to_columns = tuple(perms[1][axis] for axis in (0, 1, 3, 2))
    nodes: _Nodes = [
        ("Transpose", ["x0"], {"perm": perms[0]}),
        ("Transpose", ["x1"], {"perm": to_columns}),
        ("MatMul", ["y0", "y1"], {}),
        ("Mul", ["y2", "scale"], {}),
        ("Reshape", ["y3", "whole"], {}),
    ]
    for index, (step, fill) in enumerate(zip(steps, fills, strict=True)):
        scores, operand = f"y{len(nodes) - 1}", f"x{3 + index}"
        if step in ("add", "mul"):
            nodes.append((step.capitalize(), [scores, operand], {}))
            continue
        constants[f"fill{index}"] = np.array(fill, F32)
        nodes.append(("Cast", [operand], {"to": 9}))
        sides = [f"fill{index}", scores]
        sides = sides if step == "where" else sides[::-1]
        nodes.append(("Where", [f"y{len(nodes) - 1}", *sides], {}))
    last = len(nodes)
    nodes += [
        ("Reshape", [f"y{last - 1}", "back"], {}),
        ("Softmax", [f"y{last}"], {"axis": -1}),
        ("Transpose", ["x2"], {"perm": perms[2]}),
        ("MatMul", [f"y{last + 1}", f"y{last + 2}"], {}),
        ("Transpose", [f"y{last + 3}"], {"perm": perms[3]}),
    ]
    return Case([*arrays, *operands], nodes, attrs, constants, 1e-5)


_Scores = Callable[[Net, str, str], str]


def _plain(b: Net, q: str, k: str) -> str:
    return b.op("matmul", [q, b.op("transpose", [k], {"perm": (0, 1, 3, 2)})])


def _biased(b: Net, q: str, k: str) -> str:
    """Return scores with a constant bias for each head, and a mask of keys from the run."""
    scores = b.op("mul", [_plain(b, q, k), b.constant(np.array(0.4, F32))])
    tokens = b.type(scores).shape[-1]
    bias = np.sin(np.arange(2 * tokens * tokens, dtype=F32)).reshape(2, tokens, tokens)
    scores = b.op("add", [scores, b.constant(bias)])
    zero = b.constant(np.zeros((), F32))
    row = b.op("reduce_mean", [k], {"axes": (1, 3), "keepdims": 1})
    mask = b.op("greater", [b.op("reshape", [row], {"shape": (2, 1, 1, tokens)}), zero])
    return b.op("where", [mask, b.constant(np.array(-5.0, F32)), scores])


def _relative(b: Net, q: str, k: str) -> str:
    """Return scores with a bias for rows and one for columns of an image, from the run."""
    scores = _plain(b, q, k)
    shape = b.type(scores).shape
    image = (*shape[:2], 3, 4, 3, 4)
    scores = b.op("reshape", [scores], {"shape": image})
    for keep in (4, 5):
        beside = tuple(e if axis < 4 or axis == keep else 1 for axis, e in enumerate(image))
        bounds = {"starts": (0,) * 4, "stops": (*shape[:3], beside[keep]), "steps": (1,) * 4}
        bias = b.op("slice", [q], bounds)
        scores = b.op("add", [scores, b.op("reshape", [bias], {"shape": beside})])
    return b.op("reshape", [scores], {"shape": shape})


def _graph(scores_of: _Scores) -> Graph:
    """Return attention of two heads over the 12 pixels of images, after a convolution."""
    b = Net(2, 3, 3, 4)
    parts: list[str] = []
    for _ in range(3):
        y = b.op("reshape", [b.conv(b.x, 18, 1)], {"shape": (2, 2, 9, 12)})
        parts.append(b.op("transpose", [y], {"perm": (0, 1, 3, 2)}))
    q, k, v = parts
    weights = b.op("softmax", [scores_of(b, q, k)], {"axis": 3})
    y = b.op("transpose", [b.op("matmul", [weights, v])], {"perm": (0, 2, 1, 3)})
    return b.build([b.op("reshape", [y], {"shape": (2, 12, 18)})])


def _apart(rank: int) -> Graph:
    """Return the operator itself, with matrices in any order of axes, and one that is broadcast."""
    b = Net(2, 3, 4, 5)
    x = b.op("tanh", [b.named(b.x)])
    if rank == 2:
        rows = b.op("reshape", [x], {"shape": (12, 10)})
        return b.build([b.op("attention", [rows, rows, rows], {"perm": (1, 0)})])
    keys = b.op("slice", [x], {"starts": (0,) * 4, "stops": (1, 3, 4, 5), "steps": (1,) * 4})
    attrs: dict[str, Attr] = {"perm_q": (0, 1, 3, 2), "perm_k": (0, 1, 3, 2), "perm": (0, 2, 1, 3)}
    attrs |= {"perm_v": (0, 1, 3, 2), "zeroed": "empty", "scale": 2.0, "steps": ("add",)}
    return b.build([b.op("attention", [x, keys, keys, b.data(2, 1, 5, 1)], attrs)])


def _with_constant_keys() -> Graph:
    """Return attention that no kernel computes."""
    b = Net(2, 3, 4, 5)
    x = b.op("reshape", [b.op("tanh", [b.named(b.x)])], {"shape": (12, 10)})
    return b.build([b.op("attention", [x, b.data(7, 10), b.data(7, 4)])])


CASES = {"attention": _case}
GRAPHS = {
    f"attention_{name}": partial(_graph, scores_of)
    for name, scores_of in (("plain", _plain), ("biased", _biased), ("relative", _relative))
}
GRAPHS |= {f"attention_{rank}": partial(_apart, rank) for rank in (2, 4)}
GRAPHS["attention_with_constant_keys"] = _with_constant_keys
_MATRICES = [(2, 5, 4), (2, 3, 4), (2, 3, 6)]
REFUSED = [
    ("attention", [(2, 5, 4), (2, 3, 5), (2, 3, 6)], {}, "queries and keys of one depth"),
    ("attention", [(2, 5, 4), (2, 3, 4), (2, 4, 6)], {}, "as many values as keys"),
    ("attention", [(2, 5, 4), (3, 3, 4), (2, 3, 6)], {}, "batch extents that broadcast"),
    ("attention", [(5, 4), (2, 3, 4), (2, 3, 6)], {}, "operands of rank 2"),
    ("attention", _MATRICES, {"shape": (2, 3, 5)}, "a shape of axes of (2,), of 5 queries"),
    ("attention", _MATRICES, {"steps": ("add",)}, "0 steps, as many as operands"),
    ("attention", [*_MATRICES, (2, 5, 3)], {"steps": ("sub",)}, "steps of add, mul, where"),
    ("attention", [*_MATRICES, (2, 5, 2)], {"steps": ("add",)}, "an operand that broadcasts to"),
    ("attention", [*_MATRICES, (1, 1, 1)], {"steps": ("add",), "fills": (0.0, 1.0)}, "1 fills"),
]
NOT_EXPORTED = {"attention": "its products, steps and softmax become nodes of their own"}
