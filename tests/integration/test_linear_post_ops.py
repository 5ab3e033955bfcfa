"""Products, quotients, sums and differences with one number after an activation, as post-ops."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import NodeProto
from tests.integration.models import run_onnxruntime
from tests.integration.onnx_nodes import make, node

import stridewise as sw

_NUMBERS = st.floats(0.25, 2.0, width=32) | st.floats(-2.0, -0.25, width=32)
_SHAPES = st.sampled_from(((), (1,), (1, 1), (1, 1, 1, 1)))


@st.composite
def _chain(draw: st.DrawFn) -> tuple[list[NodeProto], dict[str, np.ndarray]]:
    """Return operators from the value a on, and their constants; the last result is y."""
    count = draw(st.integers(1, 5))
    nodes: list[NodeProto] = []
    constants: dict[str, np.ndarray] = {}
    for index in range(count):
        source = f"t{index - 1}" if index else "a"
        result = "y" if index == count - 1 else f"t{index}"
        op = draw(st.sampled_from(("Add", "Sub", "Mul", "Div", "Relu")))
        operands = [source]
        if op != "Relu":
            number = np.full(draw(_SHAPES), draw(_NUMBERS), np.float32)
            constants[f"c{index}"] = number
            # A number over a tensor is not linear.
            reverse = op != "Div" and draw(st.booleans())
            operands = [f"c{index}", source] if reverse else [source, f"c{index}"]
        nodes.append(node(op, *operands, outputs=[result], name=result))
    return nodes, constants


@given(_chain(), st.sampled_from((1, 3, 16, 17)), st.booleans(), st.sampled_from((1, 3)))
@settings(max_examples=60, deadline=None)
def test_they_are_part_of_the_convolution(
    chain: tuple[list[NodeProto], dict[str, np.ndarray]], channels: int, depthwise: bool, taps: int
) -> None:
    nodes, constants = chain
    rng = np.random.default_rng(channels)
    groups = channels if depthwise else 1
    weights = rng.standard_normal((channels, channels // groups, taps, taps)).astype(np.float32)
    model = make(
        node("Conv", "x", "w", outputs=["b"], name="conv", group=groups, pads=[taps // 2] * 4),
        node("Sigmoid", "b", outputs=["a"], name="activation"),
        *nodes,
        shape=(2, channels, 5, 6),
        constants={"w": weights, **constants},
    )
    x = rng.standard_normal((2, channels, 5, 6)).astype(np.float32)
    expected = run_onnxruntime(model, {"x": x}, joins=False)["y"]
    compiled = sw.compile(model, tune="model", fallback=False)
    np.testing.assert_allclose(compiled.run({"x": x})["y"], expected, rtol=1e-4, atol=1e-4)
    assert [item.op for item in compiled.plan.graph.nodes] == ["conv"]
