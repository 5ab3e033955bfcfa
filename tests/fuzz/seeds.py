"""Small sound models that inputs of the fuzzer are made from."""

from __future__ import annotations

from functools import cache

import numpy as np
from onnx import TensorProto, helper
from tests.fuzz.mutate import mutated
from tests.integration.onnx_nodes import make, node
from tests.integration.small_models import WIDTHS, small_models

__all__ = ["content_of", "seeds"]

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


def content_of(seed: int, number: int) -> bytes:
    """Return the input of that number."""
    return mutated(np.random.default_rng([seed, number]), seeds())
