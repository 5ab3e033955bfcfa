"""Small sound models that inputs of the fuzzer are made from."""

from __future__ import annotations

from functools import cache

import numpy as np
from onnx import TensorProto, helper, parser
from tests.fuzz.mutate import mutated
from tests.integration.onnx_nodes import make, node
from tests.integration.small_models import WIDTHS, small_models

__all__ = ["content_of", "foreign_seeds", "seeds"]

F32 = np.float32
_WIDE = tuple(f"_{width}" for width in WIDTHS[1:])


def _constants() -> list[bytes]:
    """Return models whose values are computed at import."""
    computed = [
        make(node("Range", "a", "b", "c"), constants={"a": 0, "b": 9, "c": 2}),
        make(node("Tile", "a", "r"), constants={"a": F32([[1, 2]]), "r": [2, 3]}),
        make(node("OneHot", "i", "d", "v"), constants={"i": [1, 2], "d": 4, "v": F32([0, 1])}),
        make(node("CumSum", "a", "i"), constants={"a": F32([1, 2, 3]), "i": 0}),
        make(node("Expand", "a", "s", outputs=["b"]), node("Add", "x", "b"),
             constants={"a": F32([1]), "s": [8, 8]}),
        make(node("ConstantOfShape", "s", outputs=["w"]),
             node("Conv", "x", "w", pads=[1, 1, 1, 1]), constants={"s": [4, 3, 3, 3]}),
        make(node("Pad", "a", "p", outputs=["b"]), node("Mul", "x", "b"),
             constants={"a": F32([[1]]), "p": [0, 3, 0, 4]}),
        make(node("Concat", "a", "a", outputs=["b"], axis=0),
             node("Concat", "b", "b", outputs=["c"], axis=0), node("Reshape", "x", "c"),
             constants={"a": [2, 2, 2, 24][:1]}),
    ]  # fmt: skip
    return [model.SerializeToString() for model in computed]


def _external() -> bytes:
    tensor = TensorProto(name="w", dims=[6], data_type=TensorProto.FLOAT)
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in {"location": "weights.bin", "offset": "0", "length": "24"}.items():
        tensor.external_data.add(key=key, value=value)
    model = make(node("Add", "x", "w"), shape=(1, 6), constants={"w": tensor})
    return model.SerializeToString()


def _local_functions() -> bytes:
    model = make(node("Twice", domain="local"))
    model.opset_import.append(helper.make_opsetid("local", 1))
    body = [node("Add", "a", "a", outputs=["b"])]
    opsets = [helper.make_opsetid("", 13)]
    model.functions.append(helper.make_function("local", "Twice", ["a"], ["b"], body, opsets))
    return model.SerializeToString()


@cache
def seeds() -> tuple[bytes, ...]:
    """Return the contents of the seed models, always in the same order."""
    models = sorted(small_models().items())
    blocks = [model.SerializeToString() for name, model in models if not name.endswith(_WIDE)]
    single = [
        make(node("Conv", "x", "w", strides=[2, 2]), constants={"w": np.ones((4, 3, 3, 3), F32)}),
        make(node("MaxPool", kernel_shape=[2, 2], strides=[2, 2])),
        make(node("Gemm", "x", "w"), shape=(2, 3), constants={"w": np.ones((3, 5), F32)}),
        make(node("Relu", outputs=["a"]), node("Add", "a", "x")),
        make(node("Transpose", outputs=["a"], perm=[0, 2, 3, 1]), node("Softmax", "a")),
        make(node("Slice", "x", "s", "e"), constants={"s": [0, 1], "e": [1, 3]}),
        make(node("LRN", size=3, alpha=1e-3)),
    ]
    # Small models are drawn more often: planning them takes less time, so that more are tried.
    few = [*(model.SerializeToString() for model in single), *_constants()]
    return (*blocks, *few * 3, _external(), _local_functions())


_FOREIGN = (
    """(float[1, 2, 6, 6] x) => (y)
    <int64 count = {2}, bool yes = {1}, float[2, 2, 1, 1] w = {0.5, 0.5, 0.5, 0.5}> {
        c = Conv(x, w)
        l = Loop(count, yes, c) <body = turn (int64 i, bool go, float[1, 2, 6, 6] state)
            => (bool on, float[1, 2, 6, 6] next) { on = Identity(go)  next = Tanh(state) }>
        y = Conv(l, w)
    }""",
    """(float[1, 4, 6, 6] x, bool which) => (y) {
        b = If(which) <then_branch = yes () => (float[1, 4, 6, 6] t) { t = Relu(x) },
                       else_branch = no () => (float[1, 4, 6, 6] e) { e = Neg(x) }>
        y = Add(b, x)
    }""",
    """(float[1, 4, 6, 6] x) => (y, z) {
        a = Relu(x)
        g = com.microsoft.QuickGelu(a)
        y = MaxPool <kernel_shape = [2, 2]>(g)
        z = com.microsoft.Gelu(y)
    }""",
    """(float[1, 8, 4] boxes, float[1, 2, 8] scores) => (found, r)
    <int64 most = {3}, float overlap = {0.5}, float least = {0.1}, int64[2] axes = {0, 1}> {
        r = Relu(scores)
        kept = NonMaxSuppression(boxes, r, most, overlap, least)
        found = Cast <to = 1>(kept)
    }""",
    """(float[2, 6] x) => (y) {
        s = SplitToSequence <axis = 1>(x)
        c = ConcatFromSequence <axis = 0>(s)
        y = Relu(c)
    }""",
    """(float[3, 4] x) => (n, u) {
        a = Abs(x)
        n = NonZero(a)
        u = Unique(a)
    }""",
)


@cache
def foreign_seeds() -> tuple[bytes, ...]:
    """Return seed models of which ONNX Runtime computes a part, always in the same order."""
    head = '<ir_version: 8, opset_import: ["": 17, "com.microsoft": 1]> foreign '
    models = [parser.parse_model(head + text) for text in _FOREIGN]
    return tuple(model.SerializeToString() for model in models)


def content_of(seed: int, number: int, *, fallback: bool = False) -> bytes:
    """Return the input of that number; with ``fallback`` many are not all native."""
    models = seeds()
    if fallback:
        # About half of them.
        models += foreign_seeds() * (len(models) // len(foreign_seeds()))
    return mutated(np.random.default_rng([seed, number]), models)
