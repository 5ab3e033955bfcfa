"""Models with open shapes, and how tests compile and compare them."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import ModelProto, TensorProto, helper

import stridewise as sw

from .models import relative_error, run_onnxruntime
from .onnx_nodes import make, node

Array = np.ndarray[Any, np.dtype[Any]]
F32 = np.float32


def draw(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(F32)


def classifier(shape: tuple[Any, ...] = ("N", 3, "H", "W")) -> ModelProto:
    """A small residual network with batch norms, a pooling head and a matrix product."""
    scale = {f"{n}{i}": np.abs(draw(20, seed=i)) + 0.5 for i, n in enumerate(("g", "b", "m", "v"))}
    return make(
        node("Conv", "x", "w1", outputs=["a"], pads=[1, 1, 1, 1], name="conv1"),
        node("BatchNormalization", "a", "g0", "b1", "m2", "v3", outputs=["n"], name="norm"),
        node("Relu", "n", outputs=["b"], name="relu1"),
        node("Conv", "b", "w2", outputs=["c"], pads=[1, 1, 1, 1], name="conv2"),
        node("Add", "c", "b", outputs=["d"], name="sum"),
        node("MaxPool", "d", outputs=["e"], kernel_shape=[2, 2], strides=[2, 2], name="pool"),
        node("GlobalAveragePool", "e", outputs=["f"], name="mean"),
        node("Flatten", "f", outputs=["h"], name="flat"),
        node("Gemm", "h", "w3", "c3", name="head"),
        shape=shape,
        constants={
            "w1": draw(20, 3, 3, 3, seed=1) / 5,
            "w2": draw(20, 20, 3, 3, seed=2) / 13,
            "w3": draw(20, 7, seed=3),
            "c3": draw(7, seed=4),
            **scale,
        },
    )


def compiled(source: Any, **arguments: Any) -> sw.DynamicModel:
    model = sw.compile(source, tune="model", threads=1, **arguments)
    assert isinstance(model, sw.DynamicModel)
    return model


def with_inputs(proto: ModelProto, **inputs: tuple[int, tuple[Any, ...]]) -> ModelProto:
    """Add inputs, each of an element type and a shape."""
    for name, (dtype, shape) in inputs.items():
        proto.graph.input.append(helper.make_tensor_value_info(name, dtype, shape))
    return proto


def right(model: sw.DynamicModel, proto: ModelProto, feeds: dict[str, Array]) -> None:
    expected = run_onnxruntime(proto, feeds)
    found = model.run(feeds)
    assert list(found) == list(expected)
    for name, wanted in expected.items():
        assert found[name].shape == wanted.shape
        assert relative_error(found[name], wanted) < 1e-5


def reshaped() -> ModelProto:
    model = make(node("Reshape", "x", "shape"), shape=("N", 3, 8, 8))
    return with_inputs(model, shape=(TensorProto.INT64, ("rank",)))
