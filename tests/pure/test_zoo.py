"""The zoo: as many parameters as published, and plans that prove themselves."""

from __future__ import annotations

import numpy as np
import pytest
from tests.simplified import simplify

from stridewise import zoo
from stridewise.errors import FormatError, GraphError, InputError
from stridewise.graph import Graph
from stridewise.graph.verify import verify
from stridewise.ops import infer
from stridewise.planner import derive
from stridewise.planner.derivation.provenance import Derived
from stridewise.planning import make_plan
from stridewise.targets.cost import Roofline
from stridewise.targets.machine import Machine
from stridewise.targets.onednn.target import onednn_cpu

MACHINE = Machine("some CPU", "AVX512_CORE", 2, "oneDNN 0")

AUXILIARY = 2_365_205
"""A second classifier that FCN and DeepLab have in training: FCN's head over 1024 channels."""

PARAMETERS = {
    # What torchvision documents, where the comment says nothing else.
    "alexnet": 60_965_224,  # Caffe's, with groups and local response normalization
    "convnext_tiny": 28_589_128,
    "deeplabv3_resnet50": 42_004_074 - AUXILIARY,
    "densenet121": 7_978_856,
    "efficientnet_b0": 5_288_548,
    "fcn_resnet50": 35_322_218 - AUXILIARY,
    "inception_v3": 27_161_264 - 3_326_696,  # without the auxiliary classifier
    "mobilenet_v2": 3_504_872,
    "mobilenet_v3_large": 5_483_032,
    "regnet_y_400mf": 4_344_144,
    "resnet18": 11_689_512,
    "resnet3d_18": 33_371_472,
    "resnet50": 25_557_032,
    # Faster R-CNN without its proposals and its head, with norms that are not frozen
    "resnet50_fpn": 41_755_286 - 593_935 - 14_362_055 + 53_120,
    "resnext101_32x8d": 88_791_336,
    "shufflenet_v2": 2_278_604,
    "squeezenet1_1": 1_235_496,
    "unet": 31_037_698,  # github.com/milesial/Pytorch-UNet
    "vgg16": 138_357_544,
}
BY_IMAGE = ("alexnet", "vgg16")
"""Models whose first fully connected layer is as wide as the image makes it."""

LEAST = {"inception_v3": 75, "alexnet": 67}
SIZE = 64


SHAPES = {
    "deeplabv3_resnet50": [(1, 21, SIZE, SIZE)],
    "fcn_resnet50": [(1, 21, SIZE, SIZE)],
    "resnet3d_18": [(1, 400)],
    "resnet50_fpn": [(1, 256, SIZE // step, SIZE // step) for step in (4, 8, 16, 32, 64)],
    "unet": [(1, 2, SIZE, SIZE)],
}
"""Shapes of outputs, where a model does not tell 1000 classes apart."""


def parameters(graph: Graph) -> int:
    """Count what would be trained: all constants but the epsilons of layer norms."""
    items = graph.constants.items()
    return sum(item.array.size for name, item in items if not name.startswith("epsilon"))


def test_all_models_are_listed():
    assert set(zoo.models()) == set(PARAMETERS)
    assert set(zoo.models()) | {"build", "models"} == set(zoo.__all__)


def check_plan(derived: Derived) -> None:
    """Check that a network has a plan, and that the plan proves that it is cheapest."""
    target = onednn_cpu(MACHINE)
    assert not derived.conflicts
    plan = make_plan(derived, target, MACHINE, Roofline(1e11, 4e10, target.efficiency))
    assert plan.gap <= 1e-9
    assert plan.cost_ns == pytest.approx(plan.lower_bound_ns)


@pytest.mark.parametrize("name", PARAMETERS)
def test_models_have_published_sizes_and_plans_that_prove_themselves_in_both_data_formats(name):
    """All of a network is tested at once, as drawing its weights takes longest.

    Data formats differ in the order of inputs and outputs, and in what it takes to flatten images.
    """
    graph = zoo.build(name, size=LEAST.get(name, SIZE))
    verify(graph, infer)
    published = zoo.build(name) if name in BY_IMAGE else graph
    verify(published, infer)
    assert parameters(published) == PARAMETERS[name]
    assert [graph.value(y).shape for y in graph.outputs] == SHAPES.get(name, [(1, 1000)])
    last = zoo.build(name, data_format="NHWC", size=LEAST.get(name, SIZE))
    verify(last, infer)
    assert parameters(last) == parameters(graph)
    first, other = (derive(simplify(net, check=True).graph) for net in (graph, last))
    assert [node.op for node in other.graph.nodes] == [node.op for node in first.graph.nodes]
    check_plan(first)
    check_plan(other)


def test_weights_depend_on_the_seed_alone():
    first, again, other = (zoo.squeezenet1_1(seed=seed, size=SIZE) for seed in (1, 1, 2))
    assert first == again
    assert first != other
    wide = zoo.squeezenet1_1(2, "NCHW", 1, size=80)
    assert wide.constants == first.constants
    assert wide.value("image").shape == (2, 3, 80, 80)


def test_volumes_have_frames():
    graph = zoo.build("resnet3d_18", size=32, frames=4)
    assert graph.value("image").shape == (1, 3, 4, 32, 32)


def test_batch_norms_have_statistics_of_their_own():
    scales = [
        item.array
        for name, item in zoo.resnet18(size=SIZE).constants.items()
        if name.startswith("scale")
    ]
    assert all(np.ptp(scale) > 0.1 * np.abs(scale).max() for scale in scales)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: zoo.build("lenet"), InputError, "zoo: expected one of alexnet, "),
        (lambda: zoo.resnet18(data_format="CHWN"), FormatError,
         "data_format: expected one of NCW, NCHW, NCDHW, NWC, NHWC, NDHWC, found 'CHWN'"),
        (lambda: zoo.unet(size=100), InputError, "size: expected a multiple of 16, found 100"),
        (lambda: zoo.inception_v3(size=60), GraphError, "a window that fits into the padded input"),
        (lambda: zoo.resnet18(batch=-1), GraphError, "input 'image': expected extents from 0"),
    ],
)  # fmt: skip
def test_arguments_that_do_not_fit_are_refused(call, error, message):
    with pytest.raises(error, match=message):
        call()
