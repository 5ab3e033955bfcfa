"""Compiled graphs of gradients: against the NumPy reference, alone and with updates."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stridewise as sw
from stridewise.graph import Graph
from stridewise.program import KernelStep
from stridewise.runtime.simulation.reference import run_reference

from .test_mutable import F32, compiled, stepped


@pytest.mark.parametrize("data_format", ["NCHW", "NHWC"])
@pytest.mark.parametrize("keep_parameters", [False, True])
def test_gradients_of_an_image_run_on_native_kernels(data_format: str, keep_parameters: bool):
    b = sw.GraphBuilder("net", data_format=data_format)
    x = b.input("x", (2, 6, 9, 9) if data_format == "NCHW" else (2, 9, 9, 6))
    y = b.relu(b.conv2d(x, 16, 3, strides=2, padding=1))
    y = b.conv2d(y, 16, 3, padding=1, groups=4)
    y = b.dense(b.flatten(b.avg_pool2d(b.max_pool2d(y, 2), 2)), 7)
    y = b.op("log_softmax", [y], {"axis": 1})
    b.op("reduce_mean", [y], {"axes": (0, 1), "keepdims": 0}, output="loss")
    graph = sw.grad(b.build(["loss"]), "loss", ["x"])
    model = compiled(graph, keep_parameters=keep_parameters)
    kinds = [step.spec.kind for step in model.program.steps if isinstance(step, KernelStep)]
    # The gradient of the convolution of stride 1 is a convolution.
    assert kinds.count("deconvolution") == 1
    assert "host" not in kinds
    inputs = {"x": np.random.default_rng(0).normal(size=graph.value("x").shape).astype(F32)}
    found = model.run(inputs)
    for name, expected in run_reference(graph, inputs).items():
        np.testing.assert_allclose(found[name], expected, rtol=1e-3, atol=1e-6)


def test_a_graph_with_gradients_keeps_its_updates():
    b = sw.GraphBuilder("average")
    x, w = b.input("x", (3,)), b.parameter(np.ones(3, F32), "w")
    mean = b.state(np.zeros(3, F32), "mean")
    y = b.mul(x, w)
    b.update(mean, b.add(mean, y))
    b.op("reduce_sum", [y], {"axes": (0,), "keepdims": 0}, output="loss")
    backward = sw.grad(b.build(["loss"]), "loss", ["w"])
    assert backward.updates == {"mean": "add"}
    model = compiled(backward, keep_parameters=True)
    given_x = F32([1, 2, 3])
    np.testing.assert_array_equal(model(given_x)[1], given_x)
    np.testing.assert_array_equal(model.states["mean"], given_x)


def training_step() -> Graph:
    """A small network with its loss, gradients, and an update of each parameter by SGD."""
    rng = np.random.default_rng(0)
    drawn = lambda *shape: rng.normal(0, 0.3, shape).astype(F32)  # noqa: E731
    b = sw.GraphBuilder("train")
    x, labels = b.input("x", (4, 3, 8, 8)), b.input("labels", (4,), "int64")
    weights = [
        b.parameter(drawn(8, 3, 3, 3), "conv"),
        b.parameter(np.ones(8, F32), "scale"),
        b.parameter(np.zeros(8, F32), "shift"),
        b.parameter(drawn(8, 5), "dense"),
    ]
    y = b.op("conv", [x, weights[0]], {"pads": (1, 1, 1, 1)})
    y = b.relu(b.node("batch_norm", [y, *weights[1:3]])[0])
    y = b.flatten(b.global_avg_pool(b.max_pool2d(y, 2)))
    y = b.op("log_softmax", [b.op("matmul", [y, weights[3]])], {"axis": 1})
    chosen = b.op("one_hot", [labels, b.constant(F32([0, 1]), "off_on")], {"axis": 1, "depth": 5})
    losses = b.op("reduce_sum", [b.mul(y, chosen)], {"axes": (1,), "keepdims": 0})
    mean = b.op("reduce_mean", [losses], {"axes": (0,), "keepdims": 0})
    backward = sw.grad(b.build([b.op("neg", [mean], output="loss")]), "loss", weights)
    b = sw.GraphBuilder.of(backward)
    rate = b.constant(np.array(0.5, F32), "rate")
    for name in weights:
        b.update(name, b.op("sub", [name, b.mul(f"{name}.gradient", rate)]))
    return b.build(["loss"])


@pytest.mark.parametrize("tune", ["model", "measure"])
def test_a_network_is_trained_by_updates_of_its_parameters(tune: Any, tmp_path: Path):
    graph = training_step()
    model, kept = sw.compile(graph, tune=tune, cache_dir=tmp_path, threads=2), {}
    rng = np.random.default_rng(1)
    inputs = {"x": rng.normal(size=(4, 3, 8, 8)).astype(F32), "labels": np.array([0, 3, 1, 4])}
    losses: list[float] = []
    for _ in range(8):
        (expected,) = stepped(graph, inputs, kept).values()
        losses.append(float(model.run(inputs)["loss"]))
        np.testing.assert_allclose(losses[-1], expected, rtol=1e-3)
        for name in graph.parameters:
            np.testing.assert_allclose(model.parameters[name], kept[name], rtol=1e-2, atol=1e-3)
    assert losses[-1] < 0.6 * losses[0]
