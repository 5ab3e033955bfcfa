"""ONNX models in training mode, as PyTorch exports them: trained here, and given back."""

from __future__ import annotations

import io
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stridewise as sw
from stridewise.errors import InputError, ModelError

torch = pytest.importorskip("torch", reason="PyTorch is not installed (extra [torch])")
ort = pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")

nn, F = torch.nn, torch.nn.functional
SHAPE, CLASSES = (6, 3, 12, 12), 4


class Block(nn.Module):
    def __init__(self, channels: int):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn = nn.BatchNorm2d(channels, momentum=0.2)

    def forward(self, x: Any) -> Any:
        return F.relu(x + self.bn(self.conv(x)))


def network(share: float = 0.0) -> Any:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU(), Block(8), Block(8),
        nn.MaxPool2d(2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(share),
        nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Hardswish(), nn.Linear(16, CLASSES),
    )  # fmt: skip


class Shared(nn.Module):
    """A batch norm that is used twice, and one that keeps no statistics."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Conv2d(3, 6, 3), nn.Linear(6, CLASSES)
        self.bn = nn.BatchNorm2d(6, momentum=0.3)
        self.free = nn.BatchNorm2d(6, track_running_stats=False)

    def forward(self, x: Any) -> Any:
        y = self.bn(self.first(x))
        y = self.free(self.bn(F.relu(y) + y))
        return self.last(torch.tanh(y).mean((2, 3)))


def exported(net: Any, opset: int = 17) -> bytes:
    file = io.BytesIO()
    mode = torch.onnx.TrainingMode.TRAINING
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            net, (torch.zeros(SHAPE),), file, training=mode, do_constant_folding=False,
            input_names=["x"], dynamo=False, opset_version=opset,
        )  # fmt: skip
    return file.getvalue()


def batch(seed: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    rng = np.random.default_rng(seed)
    return rng.normal(size=SHAPE).astype(np.float32), rng.integers(0, CLASSES, SHAPE[0])


def same_losses(trainer: sw.Trainer, net: Any, optimizer: Any, steps: int) -> None:
    """Do steps of both, and compare the losses."""
    for seed in range(steps):
        x, labels = batch(seed)
        optimizer.zero_grad()
        loss = F.cross_entropy(net(torch.tensor(x)), torch.tensor(labels))
        loss.backward()
        optimizer.step()
        np.testing.assert_allclose(trainer.step(x, labels), float(loss.detach()), rtol=1e-4)


def test_a_model_is_trained_as_pytorch_trains_it_and_given_back(tmp_path: Path):
    net = network().train()
    model = exported(net)  # which moves the running statistics of the module, too
    rule = sw.SGD(0.05, 0.9, weight_decay=1e-3)
    graph = sw.load(model, training=True)
    trainer = sw.Trainer(graph, optimizer=rule, tune="model", threads=2)
    optimizer = torch.optim.SGD(net.parameters(), 0.05, momentum=0.9, weight_decay=1e-3)
    same_losses(trainer, net, optimizer, 6)
    own = {n: torch.tensor(a) for n, a in trainer.state_dict().items() if "optimizer" not in n}
    wanted = {n: t for n, t in net.state_dict().items() if "num_batches" not in n}
    assert own.keys() == wanted.keys()
    for name, tensor in wanted.items():
        torch.testing.assert_close(own[name], tensor, rtol=1e-3, atol=1e-4, msg=name)
    again = network()
    again.load_state_dict(own, strict=False)
    x = batch(9)[0]
    result = again.eval()(torch.tensor(x)).detach().numpy()
    sw.save(trainer.graph(), tmp_path / "net.onnx")
    (theirs,) = ort.InferenceSession(tmp_path / "net.onnx").run(None, {"x": x})
    np.testing.assert_allclose(theirs, result, rtol=1e-4, atol=1e-5)
    found = sw.compile(tmp_path / "net.onnx", tune="model", store_limit=0)(x)
    np.testing.assert_allclose(found, result, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("frozen", [False, True])
def test_batch_norms_that_are_shared_or_keep_no_statistics(frozen: bool):
    torch.manual_seed(0)
    net = Shared().train()
    graph = sw.load(exported(net), training=True)
    train = ["last.weight", "last.bias"] if frozen else None
    trainer = sw.Trainer(graph, optimizer=sw.SGD(0.1), tune="model", train=train)
    for name, parameter in net.named_parameters():
        parameter.requires_grad_(train is None or name in train)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    same_losses(trainer, net, optimizer, 4)
    own = trainer.state_dict()
    for name, tensor in net.state_dict().items():
        if name in own:
            np.testing.assert_allclose(own[name], tensor.numpy(), rtol=1e-3, atol=1e-4)
    assert {"bn.running_mean", "bn.running_var"} <= own.keys()


class Tied(nn.Module):
    """Weights that the exporter writes as they are, transposed, reshaped, and computed."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.last = nn.Conv2d(3, 6, 3, bias=False), nn.Linear(6, CLASSES)
        self.norm, self.slopes = nn.GroupNorm(2, 6), nn.PReLU(6)
        self.w, self.gain = nn.Parameter(torch.randn(6, 6) / 3), nn.Parameter(torch.rand(6) + 0.5)
        self.table = nn.Parameter(torch.randn(1, 100, 6) / 4)
        self.register_buffer("center", torch.randn(3, 1, 1))

    def forward(self, x: Any) -> Any:
        weight = self.conv.weight - self.conv.weight.mean((1, 2, 3), keepdim=True)
        y = self.slopes(self.norm(F.conv2d(x - self.center, weight)))
        y = y.flatten(2).transpose(1, 2) + self.table
        y = F.linear(torch.tanh(y @ self.w), self.w) * self.gain
        return self.last(y).mean(1)


def test_weights_that_models_share_move_or_compute():
    torch.manual_seed(0)
    net = Tied().train()
    graph = sw.load(exported(net), training=True)
    names = [name for name, _ in net.named_parameters()]
    with warnings.catch_warnings():
        warnings.simplefilter("error", sw.TrainingWarning)
        trainer = sw.Trainer(graph, optimizer=sw.SGD(0.1), tune="model", train=names)
    with pytest.warns(sw.TrainingWarning, match="no layer reads: center;"):
        default = sw.Trainer(graph, optimizer=sw.SGD(0.1), tune="model").parameters
    assert set(names) <= set(default)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    same_losses(trainer, net, optimizer, 4)
    own = trainer.state_dict()
    for name, tensor in net.named_parameters():
        np.testing.assert_allclose(own[name], tensor.detach().numpy(), rtol=1e-3, atol=1e-4)
    x = batch(9)[0]
    result = net.eval()(torch.tensor(x)).detach().numpy()
    found = np.asarray(sw.compile(trainer.graph(), tune="model")(x))
    np.testing.assert_allclose(found, result, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("opset", [9, 13, 17])
def test_batch_norms_of_old_opsets_are_in_training_mode(opset: int):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(400, 4))
    trainer = sw.Trainer(
        sw.load(exported(net.train(), opset), training=True), optimizer=sw.SGD(0.1), tune="model"
    )
    x, labels = batch(0)
    loss = F.cross_entropy(net(torch.tensor(x)), torch.tensor(labels))
    np.testing.assert_allclose(trainer.step(x, labels), float(loss.detach()), rtol=1e-5)
    mean = net[1].running_mean.numpy()
    np.testing.assert_allclose(trainer.state_dict()["1.running_mean"], mean, rtol=1e-5, atol=1e-6)


def test_weights_of_pytorch_are_loaded_by_name():
    net = network().train()
    graph = sw.load(exported(network()), training=True)
    trainer = sw.Trainer(graph, optimizer=sw.SGD(0.1), tune="model")
    with torch.no_grad():
        for tensor in (*net.parameters(), *net.buffers()):
            if tensor.is_floating_point():
                tensor.add_(0.1)
    given = {n: t.numpy() for n, t in net.state_dict().items() if "num_batches" not in n}
    trainer.load_state_dict({**given, "optimizer.step": np.array(0)})
    x, labels = batch(0)
    wanted = F.cross_entropy(net(torch.tensor(x)), torch.tensor(labels))
    np.testing.assert_allclose(trainer.step(x, labels), float(wanted.detach()), rtol=1e-5)


def test_dropout_of_a_model_is_active_in_steps_alone():
    model = exported(network(0.5))
    with pytest.raises(ModelError, match="training_mode=false"):
        sw.load(model, fallback=False)
    graph = sw.load(model, training=True)
    assert [node.attrs for node in graph.nodes if node.op == "dropout"] == [(("share", 0.5),)]
    trainer = sw.Trainer(graph, optimizer=sw.SGD(0.0), tune="model")
    assert trainer.model.program is not None
    assert trainer.step(*batch(0)) != pytest.approx(trainer.step(*batch(0)), rel=1e-3)
    assert "batch_norm" not in {node.op for node in trainer.graph().nodes}


def test_graphs_and_modules_are_not_read_for_training():
    b = sw.GraphBuilder("net")
    graph = b.build([b.relu(b.input("x", (1, 2)))])
    for source in (graph, network()):
        with pytest.raises(InputError, match="expected an ONNX model"):
            sw.load(source, training=True)
