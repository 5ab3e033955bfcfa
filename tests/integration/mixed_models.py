"""Models of which ONNX Runtime computes a part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto, helper

Feeds = dict[str, Any]
OPSETS = (helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1))
FLOAT, INT64, STRING = TensorProto.FLOAT, TensorProto.INT64, TensorProto.STRING
BOOL = TensorProto.BOOL
info = helper.make_tensor_value_info
RNG = np.random.default_rng(7)


def node(op: str, inputs: str, outputs: str, **attrs: Any) -> NodeProto:
    return helper.make_node(op, inputs.split(), outputs.split(), **attrs)


def model(
    nodes: Sequence[NodeProto],
    inputs: Sequence[ValueInfoProto],
    outputs: str,
    constants: Mapping[str, Any] | None = None,
) -> ModelProto:
    graph = helper.make_graph(
        list(nodes),
        "mixed",
        list(inputs),
        [ValueInfoProto(name=name) for name in outputs.split()],
        [onnx.numpy_helper.from_array(np.asarray(v), k) for k, v in (constants or {}).items()],
    )
    return helper.make_model(graph, opset_imports=list(OPSETS), ir_version=8)


def body(nodes: Sequence[NodeProto], inputs: Sequence[ValueInfoProto], outputs: str) -> GraphProto:
    results = [helper.make_empty_tensor_value_info(name) for name in outputs.split()]
    return helper.make_graph(list(nodes), "body", list(inputs), results)


def weights(*shape: int) -> Any:
    return (RNG.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)


def image(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


def detector() -> tuple[ModelProto, Feeds]:
    """A CNN whose boxes are sifted; how many are left depends on the image."""
    nodes = [
        node("Conv", "x w1", "c1", pads=[1, 1, 1, 1], name="conv1"),
        node("Relu", "c1", "r1"),
        node("Conv", "r1 w2", "c2", pads=[1, 1, 1, 1], name="conv2"),
        node("Reshape", "c2 flat", "f"),
        node("Transpose", "f", "t", perm=[0, 2, 1]),
        node("Slice", "t zero four two", "boxes"),
        node("Slice", "t four five two", "scores_last"),
        node("Transpose", "scores_last", "scores", perm=[0, 2, 1]),
        node("NonMaxSuppression", "boxes scores most overlap least", "kept", name="nms"),
        node("Slice", "kept two_ three one_", "index"),
        node("Squeeze", "index one_", "flat_index"),
        node("Squeeze", "boxes zero", "own_boxes"),
        node("Gather", "own_boxes flat_index", "found", axis=0),
        node("ReduceMean", "r1", "mean", axes=[1, 2, 3], keepdims=0),
    ]
    constants = {
        "w1": weights(17, 3, 3, 3), "w2": weights(5, 17, 3, 3),
        "flat": np.array([1, 5, 64]), "zero": np.array([0]), "four": np.array([4]),
        "five": np.array([5]), "two": np.array([2]), "two_": np.array([2]),
        "three": np.array([3]), "one_": np.array([1]), "most": np.array([20]),
        "overlap": np.array([0.5], np.float32), "least": np.array([0.1], np.float32),
    }  # fmt: skip
    found = model(nodes, [info("x", FLOAT, [1, 3, 8, 8])], "found mean kept", constants)
    return found, {"x": image(1, 3, 8, 8)}


def with_loop() -> tuple[ModelProto, Feeds]:
    """A loop between two convolutions; its body reads a weight of the outer graph."""
    step = body(
        [
            node("Identity", "go", "on"),
            node("Mul", "state factor", "scaled"),
            node("Tanh", "scaled", "next"),
        ],
        [
            info("i", INT64, []),
            info("go", TensorProto.BOOL, []),
            info("state", FLOAT, [1, 9, 8, 8]),
        ],
        "on next",
    )
    nodes = [
        node("Conv", "x w1", "c1", pads=[1, 1, 1, 1]),
        node("Loop", "count yes c1", "l", body=step, name="loop"),
        node("Conv", "l w2", "c2", pads=[1, 1, 1, 1]),
        node("Relu", "c2", "y"),
    ]
    constants = {
        "w1": weights(9, 3, 3, 3), "w2": weights(4, 9, 3, 3), "count": np.array(3),
        "yes": np.array(True), "factor": np.float32(1.5),
    }  # fmt: skip
    found = model(nodes, [info("x", FLOAT, [1, 3, 8, 8])], "y", constants)
    return found, {"x": image(1, 3, 8, 8)}


def with_condition() -> tuple[ModelProto, Feeds]:
    """Branches that capture a feature map, and a value that both sides of the border read."""
    yes = body([node("Relu", "c1", "then")], [], "then")
    no = body([node("Neg", "c1", "else")], [], "else")
    nodes = [
        node("Conv", "x w1", "c1", pads=[1, 1, 1, 1]),
        node("ReduceSum", "c1", "sum", keepdims=0),
        node("Greater", "sum zero", "positive"),
        node("If", "positive", "b", then_branch=yes, else_branch=no, name="if"),
        node("Add", "b c1", "y"),
    ]
    constants = {"w1": weights(9, 3, 3, 3), "zero": np.float32(0)}
    return model(nodes, [info("x", FLOAT, [1, 3, 8, 8])], "y c1", constants), {
        "x": image(1, 3, 8, 8)
    }


def with_custom_domain() -> tuple[ModelProto, Feeds]:
    """Operators that only ONNX Runtime knows; ONNX cannot tell the types of their results."""
    nodes = [
        node("FusedConv", "x w1 b1", "c1", domain="com.microsoft", activation="Relu",
             pads=[1, 1, 1, 1], name="fused"),
        node("Conv", "c1 w2", "c2", strides=[2, 2]),
        node("QuickGelu", "c2", "g", domain="com.microsoft", name="gelu"),
        node("GlobalAveragePool", "g", "y"),
    ]  # fmt: skip
    constants = {"w1": weights(17, 3, 3, 3), "b1": weights(17, 1)[:, 0], "w2": weights(9, 17, 3, 3)}
    return model(nodes, [info("x", FLOAT, [2, 3, 9, 9])], "y", constants), {"x": image(2, 3, 9, 9)}


def with_integers() -> tuple[ModelProto, Feeds]:
    """Side branches of integers, one with a result whose shape depends on data."""
    nodes = [
        node("Conv", "x w1", "c1"),
        node("Unique", "ids", "u places", sorted=1),
        node("Relu", "c1", "y"),
        node("BitShift", "small small", "s", direction="LEFT"),
    ]
    inputs = [
        info("x", FLOAT, [1, 3, 5, 5]),
        info("ids", INT64, [7]),
        info("small", TensorProto.UINT8, [4]),
    ]
    feeds = {
        "x": image(1, 3, 5, 5),
        "ids": np.array([3, 1, 3, 3, 2, 1, 9]),
        "small": np.array([1, 2, 3, 4], np.uint8),
    }
    return model(nodes, inputs, "u y s places", {"w1": weights(4, 3, 3, 3)}), feeds


def with_strings() -> tuple[ModelProto, Feeds]:
    """Strings beside an image; a graph cannot hold them."""
    nodes = [
        node("Conv", "x w1", "y"),
        node(
            "StringNormalizer",
            "words",
            "n",
            case_change_action="LOWER",
            stopwords=["the"],
            locale="C",
        ),
    ]
    inputs = [info("words", STRING, [3]), info("x", FLOAT, [1, 3, 5, 5])]
    feeds = {"words": np.array(["The", "the", "DOG"], object), "x": image(1, 3, 5, 5)}
    return model(nodes, inputs, "n y words", {"w1": weights(4, 3, 3, 3)}), feeds


def with_sequence() -> tuple[ModelProto, Feeds]:
    """A sequence that is built and taken apart again in the middle of a model."""
    nodes = [
        node("Conv", "x w1", "c1"),
        node("Relu", "c1", "r"),
        node("SequenceConstruct", "c1 r", "s", name="sequence"),
        node("SequenceAt", "s second", "at"),
        node("Conv", "at w2", "y"),
    ]
    constants = {"w1": weights(4, 3, 3, 3), "w2": weights(5, 4, 1, 1), "second": np.array(1)}
    found = model(nodes, [info("x", FLOAT, [1, 3, 5, 5])], "y", constants)
    return found, {"x": image(1, 3, 5, 5)}


def only_a_tail() -> tuple[ModelProto, Feeds]:
    nodes = [node("NonZero", "x", "n"), node("Transpose", "n", "y")]
    return model(nodes, [info("x", FLOAT, [3, 4])], "y"), {"x": np.eye(3, 4, dtype=np.float32)}


CASES = {
    "detector": detector,
    "loop": with_loop,
    "condition": with_condition,
    "custom domain": with_custom_domain,
    "integers": with_integers,
    "strings": with_strings,
    "sequence": with_sequence,
    "only a tail": only_a_tail,
}


def expected(given: ModelProto, feeds: Feeds) -> list[Any]:
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1  # a pool of threads would spin between runs
    session = ort.InferenceSession(given.SerializeToString(), options, ["CPUExecutionProvider"])
    return list(session.run(None, feeds))


def as_tuple(found: Any) -> tuple[Any, ...]:
    return found if isinstance(found, tuple) else (found,)


def same(found: Any, wanted: Any) -> None:
    found, wanted = np.asarray(found), np.asarray(wanted)
    assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype)
    if wanted.dtype.kind == "f":
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
    else:
        assert np.array_equal(found, wanted)
