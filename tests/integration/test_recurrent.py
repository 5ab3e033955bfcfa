"""Recurrent layers of ONNX: against ONNX Runtime, and what runs elsewhere."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

import stridewise as sw
from stridewise.program import KernelStep

Array = np.ndarray[Any, Any]
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}


def layer(
    op: str, direction: str, sizes: tuple[int, int, int, int], parts: set[str], **attrs: Any
) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """Return a model of one layer and its inputs.

    Args:
        op: LSTM, GRU or RNN.
        direction: of the layer.
        sizes: steps, rows, width of the input, units.
        parts: which optional inputs there are: bias, state, cell, given (the states are inputs).
        attrs: other attributes of the node.
    """
    steps, rows, width, units = sizes
    rng = np.random.default_rng(sum(sizes))
    count, gates = 1 + (direction == "bidirectional"), GATES[op]

    def drawn(*shape: int) -> Array:
        return rng.uniform(-1, 1, shape).astype(np.float32) / np.float32(np.sqrt(shape[-1]))

    weights = {
        "w": drawn(count, gates * units, width),
        "r": drawn(count, gates * units, units),
    }
    if "bias" in parts:
        weights["b"] = drawn(count, 2 * gates * units)
    first = attrs.get("layout", 0) == 1
    states = {"h": drawn(*((rows, count) if first else (count, rows)), units)}
    if op == "LSTM":
        states["c"] = drawn(*states["h"].shape)
    states = states if "state" in parts else {}
    feed = {"x": drawn(*((rows, steps) if first else (steps, rows)), width)}
    (feed if "given" in parts else weights).update(states)
    optional = ("b" if "b" in weights else "", "", *states)
    outputs = ("y", "last", "cell")[: 3 if op == "LSTM" else 2]
    node = helper.make_node(
        op, ["x", "w", "r", *optional], list(outputs), hidden_size=units, direction=direction,
        **attrs,
    )  # fmt: skip
    graph = helper.make_graph(
        [node], "g",
        [helper.make_tensor_value_info(k, TensorProto.FLOAT, v.shape) for k, v in feed.items()],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
        [numpy_helper.from_array(data, name) for name, data in weights.items()],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8), feed


def compare(model: onnx.ModelProto, feed: dict[str, Array]) -> list[str]:
    """Compare with ONNX Runtime and return the kinds of the kernels."""
    session = onnxruntime.InferenceSession(model.SerializeToString())
    expected = session.run(None, feed)
    ours = sw.compile(model, tune="model", threads=2)
    for name, theirs in zip(ours.run(feed).items(), expected, strict=True):
        np.testing.assert_allclose(name[1], theirs, rtol=1e-5, atol=1e-5, err_msg=name[0])
    return [step.spec.kind for step in ours.program.steps if isinstance(step, KernelStep)]


@settings(max_examples=40)
@given(
    op=st.sampled_from(sorted(GATES)),
    direction=st.sampled_from(["forward", "reverse", "bidirectional"]),
    sizes=st.tuples(st.integers(1, 5), st.integers(1, 15), st.integers(1, 9), st.integers(1, 40)),
    parts=st.sets(st.sampled_from(["bias", "state", "given"])),
)
def test_layers_are_those_of_onnx_runtime(op, direction, sizes, parts):
    attrs = {"linear_before_reset": 1} if op == "GRU" else {}
    kinds = compare(*layer(op, direction, sizes, parts, **attrs))
    assert "recurrent" in kinds
    assert "host" not in kinds


@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
def test_a_gru_that_resets_the_state_runs_in_numpy(direction):
    kinds = compare(*layer("GRU", direction, (3, 2, 4, 5), {"bias", "state", "given"}))
    assert "host" in kinds


def test_an_rnn_may_use_relu():
    model, feed = layer("RNN", "bidirectional", (4, 3, 5, 20), {"bias"}, activations=["Relu"] * 2)
    assert "recurrent" in compare(model, feed)


def test_lengths_of_all_steps_are_taken():
    model, feed = layer("LSTM", "forward", (4, 2, 5, 20), {"bias"})
    lengths = numpy_helper.from_array(np.array([4, 4], np.int32), "lengths")
    model.graph.initializer.append(lengths)
    model.graph.node[0].input[4] = "lengths"
    assert "host" not in compare(model, feed)


@pytest.mark.parametrize(
    ("op", "attrs", "found"),
    [
        ("LSTM", {"clip": 0.5}, "expected no clip"),
        ("LSTM", {"input_forget": 1}, "expected input_forget 0"),
        ("LSTM", {"activations": ["Sigmoid", "Relu", "Tanh"]}, "expected the activations"),
        ("RNN", {"activations": ["Softsign"]}, "expected the activations tanh"),
    ],
)
def test_what_the_operator_cannot_do_is_refused_with_the_reason(op, attrs, found):
    model, feed = layer(op, "forward", (3, 2, 4, 5), {"bias"}, **attrs)
    with pytest.raises(sw.StridewiseError, match=found):
        sw.compile(model, tune="model", fallback=False)
    compare(model, feed)


def test_another_hidden_size_than_that_of_the_weights_is_refused():
    model, _ = layer("LSTM", "forward", (3, 2, 4, 5), {"bias"})
    (size,) = (item for item in model.graph.node[0].attribute if item.name == "hidden_size")
    size.i = 6
    with pytest.raises(sw.StridewiseError, match="hidden_size 5, as the weights have"):
        sw.compile(model, tune="model", fallback=False)
