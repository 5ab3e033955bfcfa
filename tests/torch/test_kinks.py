"""Gradients where functions have corners or are flat, and where the gradient behind is infinite."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import stridewise as sw
from stridewise.runtime.simulation.reference import run_reference

torch = pytest.importorskip("torch", reason="PyTorch is not installed (extra [torch])")

F = torch.nn.functional

X = [-7, -6, -3, -1, -0.5, -0.25, -0.0, 0, 0.25, 0.5, 1, 3, 6, 7]
GRADIENTS = [1.5, -np.inf, np.inf, np.nan]

UNARY = {
    "relu": ({}, F.relu),
    "leaky_relu": ({"alpha": 0.1}, lambda x: F.leaky_relu(x, 0.1)),
    "clip": ({"alpha": -1.0, "beta": 6.0}, lambda x: x.clamp(-1, 6)),
    "hard_sigmoid": ({"alpha": 1 / 6, "beta": 0.5}, F.hardsigmoid),
    "hard_swish": ({}, F.hardswish),
    "thresholded_relu": ({"alpha": 0.5}, lambda x: F.threshold(x, 0.5, 0)),
    "shrink": ({"alpha": 0.5}, lambda x: F.hardshrink(x, 0.5)),
    "selu": ({}, F.selu),
    "celu": ({"alpha": 1.5}, lambda x: F.celu(x, 1.5)),
    "elu": ({"alpha": 1.5}, lambda x: F.elu(x, 1.5)),
    "power": ({"alpha": 0.0}, lambda x: x**0.0),
    "round": ({}, torch.round),
    "floor": ({}, torch.floor),
    "ceil": ({}, torch.ceil),
    "sign": ({}, torch.sign),
}
BINARY = {
    "maximum": torch.maximum,
    "minimum": torch.minimum,
    "prelu": lambda x, slope: torch.where(x > 0, x, slope * x),
    "pow": torch.pow,
    "where": lambda x, y: torch.where(x > 0, x, y),
}


def _executed(graph, feeds):
    """Yield the results of the reference and of native kernels."""
    yield run_reference(graph, feeds)
    yield sw.compile(graph, tune="model").run(feeds)


def _agree(b, y, feeds, function):
    """Compare gradients by all inputs but the last, which is the gradient of the result."""
    *names, dy = feeds
    axes = tuple(range(len(b.type(y).shape)))
    product = b.op("mul", [y, b.input(dy, b.type(y).shape)])
    loss = b.op("reduce_sum", [product], {"axes": axes, "keepdims": 0}, output="loss")
    graph = sw.grad(b.build([loss]), loss, names)
    tensors = [torch.tensor(feeds[name], requires_grad=True) for name in names]
    wanted = torch.autograd.grad(function(*tensors), tensors, torch.tensor(feeds[dy]))
    for found in _executed(graph, feeds):
        for name, theirs in zip(names, wanted, strict=True):
            ours = found[f"{name}.gradient"]
            np.testing.assert_allclose(ours, theirs.numpy(), rtol=1e-5, atol=1e-6, err_msg=name)


@pytest.mark.parametrize("op", UNARY)
def test_functions_of_one_operand(op):
    attrs, function = UNARY[op]
    x, dy = np.array(list(itertools.product(X, GRADIENTS)), np.float32).T.copy()
    b = sw.GraphBuilder("kinks")
    _agree(b, b.op(op, [b.input("x", x.shape)], attrs), {"x": x, "dy": dy}, function)


@pytest.mark.parametrize("op", BINARY)
def test_functions_of_two_operands(op):
    x, y, dy = np.array(list(itertools.product(X, X, GRADIENTS)), np.float32).T.copy()
    b = sw.GraphBuilder("kinks")
    operands = [b.input("x", x.shape), b.input("y", y.shape)]
    if op == "where":
        operands.insert(0, b.op("greater", ["x", b.constant(np.float32(0))]))
    feeds = {"x": x, "y": y, "dy": dy}
    _agree(b, b.op(op, operands), feeds, BINARY[op])


@pytest.mark.parametrize(("op", "function"), [("max", torch.amax), ("min", torch.amin)])
def test_equal_elements_share_the_gradient_of_an_extreme(op, function):
    x = np.array([[1, 3, 3, -1], [2, 2, 2, 2], [-0.0, 0, -5, -6]], np.float32)
    b = sw.GraphBuilder("kinks")
    y = b.op(f"reduce_{op}", [b.input("x", x.shape)], {"axes": (1,), "keepdims": 0})
    dy = np.array([1.5, -2, 7], np.float32)
    _agree(b, y, {"x": x, "dy": dy}, lambda x: function(x, 1))
