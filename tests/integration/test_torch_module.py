"""Graphs as PyTorch modules, compared with the results of Stridewise."""

from __future__ import annotations

from types import ModuleType

import numpy as np
import pytest
from benchmarks.peers import PEERS
from benchmarks.peers.torch_module import FUNCTIONS, to_torch

import stridewise as sw
from stridewise import zoo
from stridewise.cli.run import random_inputs
from stridewise.ops import OPS

from .models import relative_error

SIZES = {"alexnet": 67, "inception_v3": 75, "resnet50_fpn": 64}
"""Pixels a side, where 32 are too few for the layers."""


NETWORKS = (
    "alexnet", "convnext_tiny", "densenet121", "efficientnet_b0", "fcn_resnet50", "inception_v3",
    "mobilenet_v3_large", "resnet3d_18", "resnet50_fpn", "shufflenet_v2", "squeezenet1_1", "unet",
)  # fmt: skip
"""Two thirds of the zoo, and every operator of it."""


@pytest.fixture(scope="module")
def torch() -> ModuleType:
    return pytest.importorskip("torch", reason="PyTorch is not installed: stridewise[torch]")


def small(name: str, batch: int = 1, data_format: str = "NCHW") -> sw.Graph:
    sizes = {"size": SIZES.get(name, 32)} | ({"frames": 4} if name == "resnet3d_18" else {})
    return zoo.build(name, batch, data_format, **sizes)


def check(torch: ModuleType, graph: sw.Graph) -> None:
    inputs = random_inputs(graph, 0)
    wanted = sw.compile(graph, tune="model", threads=2, accuracy="exact").run(inputs)
    with torch.inference_mode():
        found = to_torch(graph)(*(torch.from_numpy(inputs[name]) for name in graph.inputs))
    assert len(found) == len(graph.outputs)
    for name, tensor in zip(graph.outputs, found, strict=True):
        assert relative_error(tensor.numpy(), wanted[name]) < 1e-4, name


def test_every_conversion_is_of_an_operator() -> None:
    assert set(FUNCTIONS) <= set(OPS)


@pytest.mark.parametrize("name", NETWORKS)
def test_networks_agree_with_ours(torch: ModuleType, name: str) -> None:
    check(torch, small(name))


def test_a_channels_last_network_agrees_with_ours(torch: ModuleType) -> None:
    check(torch, small("unet", 2, "NHWC"))


def _pooled(b: sw.GraphBuilder, x: str) -> str:
    y = b.max_pool2d(x, 3, strides=2, padding=(0, 1, 1, 0))
    return b.avg_pool2d(y, 2, strides=1, padding=(0, 1, 0, 0), count_padding=True)


@pytest.mark.parametrize(
    "make",
    [
        _pooled,
        lambda b, x: b.conv2d(x, 5, 3, padding=(0, 1, 2, 0), strides=2),
        lambda b, x: b.softmax(x, axis="C"),
        lambda b, x: b.op("tanh", [b.op("transpose", [x], {"perm": (0, 2, 3, 1)})]),
        lambda b, x: b.op("slice", [x], {"starts": (0, 1, 0, 2), "stops": (2, 4, 8, 8),
                                         "steps": (1, 2, 1, 3)}),
        lambda b, x: b.batch_norm(x, scale=np.arange(4.0), shift=np.ones(4)),
    ],
    ids=["pools", "conv", "softmax", "transpose", "slice", "scale_shift"],
)  # fmt: skip
def test_forms_that_the_zoo_lacks_agree(torch: ModuleType, make) -> None:
    b = sw.GraphBuilder("form")
    check(torch, b.build([make(b, b.input("x", (2, 4, 8, 8)))]))


@pytest.mark.usefixtures("torch")
def test_an_unknown_operator_is_refused_by_its_name() -> None:
    b = sw.GraphBuilder("unknown")
    graph = b.build([b.op("erf", [b.input("x", (2, 4))], name="odd")])
    with pytest.raises(sw.UnsupportedError, match=r"'odd' \(erf\)"):
        to_torch(graph)


def test_the_peer_runs_a_model_file(torch: ModuleType, tmp_path) -> None:
    graph = small("squeezenet1_1")
    path = tmp_path / "model.onnx"
    sw.save(graph, path)
    inputs = random_inputs(graph, 0)
    peer = PEERS["torch"](path, inputs, 2, 1)
    assert (peer.name, peer.version) == ("torch", torch.__version__)
    assert torch.get_num_threads() == 2
    wanted = sw.compile(path, tune="model", threads=2).run(inputs)
    (found,) = peer.run(1)
    assert relative_error(found, wanted[graph.outputs[0]]) < 1e-4
