"""Training beside PyTorch: losses, parameters and running statistics of small networks."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest

import stridewise as sw
from stridewise.program import KernelStep

torch = pytest.importorskip("torch", reason="PyTorch is not installed")


def _models() -> Any:
    """Return torchvision's networks, also where its own operators do not load."""
    register = torch.library.register_fake
    if find_spec("torchvision") is None:
        pytest.skip("torchvision is not installed", allow_module_level=True)
    try:
        return import_module("torchvision.models")
    except RuntimeError:
        torch.library.register_fake = lambda *_args, **_options: lambda function: function
        return import_module("torchvision.models")
    finally:
        torch.library.register_fake = register


models = _models()

from .module_graphs import graph_of  # noqa: E402

STEPS, CLASSES = 20, 7
RATES = {"resnet18": 1e-4, "resnet50": 3e-5}
"""Learning rates of losses that are compared over 20 steps with the same images, 1e-3 by default.
These networks learn the images within a few steps, and a loss that ends near 0 has no digits.

With other images in each step, losses say nothing soon: where a rounding error moves an activation
across 0, a gradient jumps, and batch norms of few elements multiply that a thousand times within
ten steps, in PyTorch as well."""


def _vgg() -> Any:
    features = models.vgg.make_layers([16, "M", 32, 32, "M", 48, "M"], batch_norm=True)
    head = torch.nn.Linear(48, CLASSES)
    pool = torch.nn.AdaptiveAvgPool2d(1)
    return torch.nn.Sequential(features, pool, torch.nn.Flatten(), head)


def _convnext() -> Any:
    block = models.convnext.CNBlockConfig
    settings = [block(24, 48, 1), block(48, None, 2)]
    return models.ConvNeXt(
        settings, stochastic_depth_prob=0.0, layer_scale=0.1, num_classes=CLASSES
    )


def _efficientnet() -> Any:
    block = models.efficientnet.MBConvConfig
    settings = [block(1, 3, 1, 16, 16, 1), block(4, 5, 2, 16, 24, 2)]
    return models.EfficientNet(
        settings, dropout=0.0, stochastic_depth_prob=0.0, num_classes=CLASSES, last_channel=64
    )


def _resnet(block: str) -> Any:
    kind = getattr(models.resnet, block)
    return models.ResNet(kind, [1, 1, 1, 1], num_classes=CLASSES, width_per_group=64)


def _mobilenet() -> Any:
    settings = [[1, 16, 1, 1], [6, 24, 2, 2], [6, 32, 2, 2]]
    return models.MobileNetV2(
        CLASSES, width_mult=0.5, inverted_residual_setting=settings, dropout=0.0
    )


NETWORKS: dict[str, Callable[[], Any]] = {
    "resnet18": partial(_resnet, "BasicBlock"),
    "resnet50": partial(_resnet, "Bottleneck"),
    "vgg_bn": _vgg,
    "mobilenet_v2": _mobilenet,
    "densenet": partial(models.DenseNet, 12, (3, 2), 16, num_classes=CLASSES),
    "efficientnet": _efficientnet,
    "convnext": _convnext,
}


def _nesterov(rate: float) -> tuple[Any, Callable[[Any], Any]]:
    """Return an optimizer of Stridewise, and that of PyTorch for parameters."""
    given = {"momentum": 0.9, "nesterov": True, "weight_decay": 1e-3}
    return sw.SGD(rate, **given), lambda parameters: torch.optim.SGD(parameters, rate, **given)


OPTIMIZERS: dict[str, tuple[Any, Callable[[Any], Any]]] = {
    "sgd": _nesterov(3e-4),
    "dampened": (
        sw.SGD(lr=0.1, momentum=0.8, dampening=0.4, weight_decay=1e-2),
        lambda parameters: torch.optim.SGD(
            parameters, 0.1, momentum=0.8, dampening=0.4, weight_decay=1e-2
        ),
    ),
    "adamw": (
        sw.AdamW(lr=1e-3, weight_decay=0.1),
        lambda parameters: torch.optim.AdamW(parameters, 1e-3, weight_decay=0.1),
    ),
}


def batch(size: int) -> tuple[Any, Any]:
    """Return images and classes."""
    rng = np.random.default_rng(0)
    images = rng.normal(size=(size, 3, 64, 64)).astype(np.float32)
    return images, rng.integers(0, CLASSES, size)


def _step_of_pytorch(net: Any, optimizer: Any, x: Any, labels: Any) -> float:
    optimizer.zero_grad()
    images = torch.tensor(x, dtype=next(net.parameters()).dtype)
    loss = torch.nn.functional.cross_entropy(net(images), torch.tensor(labels))
    loss.backward()
    optimizer.step()
    return float(loss.detach())


_ROLES = {
    "weights": "weight",
    "scale": "weight",
    "shift": "bias",
    "mean": "running_mean",
    "variance": "running_var",
}


def _load(net: Any, trainer: sw.Trainer) -> None:
    """Give a network of PyTorch what was trained here."""
    known, own = dict(net.state_dict()), trainer.state_dict()
    for name, array in own.items():
        layer, _, role = name.rpartition(".")
        key = f"{layer}.{_ROLES.get(role, role)}" if layer else name
        if not name.startswith("optimizer."):
            assert known[key].shape == array.shape
            known[key] = torch.tensor(array)
    net.load_state_dict(known)


@pytest.mark.parametrize("name", NETWORKS)
def test_losses_follow_pytorch(name):
    net = NETWORKS[name]().train()
    shape = (8, 3, 64, 64)
    rate = RATES.get(name, 1e-3)
    ours, theirs = OPTIMIZERS["adamw"] if name == "convnext" else _nesterov(rate)
    trainer = sw.Trainer(graph_of(net, shape), optimizer=ours, tune="model", threads=2)
    kinds = {s.spec.kind for s in trainer.model.program.steps if isinstance(s, KernelStep)}
    assert "host" not in kinds
    exact = copy.deepcopy(net).double()
    optimizer = theirs(exact.parameters())
    x, labels = batch(shape[0])
    found = [trainer.step(x, labels) for _ in range(STEPS)]
    wanted = [_step_of_pytorch(exact, optimizer, x, labels) for _ in range(STEPS)]
    np.testing.assert_allclose(found, wanted, rtol=1e-3)
    assert wanted[-1] < 0.98 * wanted[0]  # or the losses would say nothing about gradients
    _load(net.eval(), trainer)
    result = sw.compile(trainer.graph(), tune="model", threads=2)(x)
    expected = net(torch.tensor(x)).detach().numpy()
    assert np.abs(result - expected).max() <= 1e-4 * np.abs(expected).max()


def test_running_statistics_equal_those_of_pytorch():
    """One step: the batch is the same, so nothing but rounding may differ."""
    net = _vgg().train()
    shape = (8, 3, 16, 16)
    trainer = sw.Trainer(graph_of(net, shape), optimizer=sw.SGD(0.1), tune="model", threads=2)
    rng = np.random.default_rng(0)
    x, labels = rng.normal(size=shape).astype(np.float32), rng.integers(0, CLASSES, 8)
    trainer.step(x, labels)
    net(torch.tensor(x))
    known = dict(net.named_buffers())
    for state, array in trainer.model.states.items():
        key = state.replace(".mean", ".running_mean").replace(".variance", ".running_var")
        np.testing.assert_allclose(array, known[key].numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", [*OPTIMIZERS, "plain"])
def test_optimizers_clipping_and_accumulation_equal_pytorch(name):
    ours, theirs = OPTIMIZERS[name] if name != "plain" else (
        sw.SGD(0.5), lambda parameters: torch.optim.SGD(parameters, 0.5)
    )  # fmt: skip
    net = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(288, 4)
    )
    graph = graph_of(net, (2, 3, 8, 8))
    options: dict[str, Any] = {"clip_norm": 0.3, "accumulate": 3, "tune": "model", "threads": 2}
    trainer, optimizer = sw.Trainer(graph, optimizer=ours, **options), theirs(net.parameters())
    rng = np.random.default_rng(0)
    for _ in range(5):
        x, labels = rng.normal(size=(6, 3, 8, 8)).astype(np.float32), rng.integers(0, 4, 6)
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(net(torch.tensor(x)), torch.tensor(labels))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 0.3)
        optimizer.step()
        np.testing.assert_allclose(trainer.step(x, labels), float(loss.detach()), rtol=1e-5)
    for ours_, theirs_ in zip(trainer.parameters, net.parameters(), strict=True):
        wanted = theirs_.detach().numpy()
        np.testing.assert_allclose(trainer.model.parameters[ours_], wanted, rtol=1e-4, atol=1e-5)
