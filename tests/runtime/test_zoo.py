"""Models of the zoo, compiled, against the NumPy reference and against themselves."""

from __future__ import annotations

import numpy as np
import pytest

import stridewise as sw
from stridewise import zoo
from stridewise.runtime.execution.loading import load, lower_plan
from stridewise.runtime.simulation.reference import run_reference

from .graphs import KINDS, error, forced_plan, inputs_of

TOLERANCE = 1e-4
"""Hundreds of float32 layers; the reference adds up in float64."""

SIZES = {
    "convnext_tiny": 32,
    "deeplabv3_resnet50": 32,
    "densenet121": 32,
    "mobilenet_v3_large": 32,
    "resnet50_fpn": 64,
    "shufflenet_v2": 64,
    "squeezenet1_1": 64,
    "unet": 32,
}


@pytest.mark.parametrize("name", SIZES)
def test_models_agree_with_the_reference(name):
    graph = zoo.build(name, batch=2, size=SIZES[name])
    feeds = inputs_of(graph)
    expected = run_reference(graph, feeds)
    found = sw.compile(graph, tune="model", threads=2).run(feeds)
    for output, wanted in expected.items():
        assert error(found[output], wanted) <= TOLERANCE
        # Activations have kept their size, and tell images apart.
        size = float(np.sqrt(np.mean(np.square(wanted))))
        assert 0.02 < size < 50
        assert np.abs(wanted[0] - wanted[1]).max() > 0.02 * size


@pytest.mark.parametrize("name", ["resnet18", "unet", "efficientnet_b0"])
def test_models_agree_in_every_kind_of_format(name):
    graph = zoo.build(name, size=32)
    feeds = inputs_of(graph)
    (first, *others) = (load(lower_plan(forced_plan(graph, kind))).run(feeds) for kind in KINDS)
    for other in others:
        for output, wanted in first.items():
            assert error(other[output], wanted) <= TOLERANCE
