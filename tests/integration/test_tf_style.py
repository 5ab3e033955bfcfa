"""Models as TensorFlow's exporters write them: a transpose before and behind every convolution."""

from __future__ import annotations

from collections import Counter
from functools import cache

import numpy as np
import onnx
import pytest
from onnx import ModelProto

import stridewise as sw
from stridewise.graph import Graph

from .models import (
    light_models,
    random_inputs,
    randomize,
    relative_error,
    run_onnxruntime,
    small_models,
)
from .tf_style import tf_style

LIGHT = light_models()
SMALL = {name: model for name, model in small_models().items() if name != "nhwc"}
MAPS = [
    name
    for name, model in SMALL.items()
    if len(model.graph.input[0].type.tensor_type.shape.dim) == 4
]
TOLERANCE = 1e-5


@cache
def randomized(name: str) -> ModelProto:
    return randomize(onnx.load(LIGHT[name])) if name in LIGHT else SMALL[name]


def kinds(graph: Graph) -> Counter[str]:
    """How often each kind of fused node occurs; views of flattened maps are counted apart."""
    names = ("+".join((node.op, *(post.op for post in node.post_ops))) for node in graph.nodes)
    return Counter(names)


def transposes(model: ModelProto) -> int:
    return sum(node.op_type == "Transpose" for node in model.graph.node)


def agrees_with_onnxruntime(model: ModelProto) -> None:
    compiled = sw.compile(model, tune="model", threads=2)
    feeds = random_inputs(compiled.plan.graph)
    found = compiled.run(feeds)
    for name, wanted in run_onnxruntime(model, feeds).items():
        assert relative_error(found[name], wanted) < TOLERANCE, name


@pytest.mark.parametrize("name", [*MAPS, "resnet50", "shufflenet", "squeezenet"])
def test_the_plan_is_that_of_the_original(name):
    """Between the same inputs and outputs, not one node, reorder or microsecond is added."""
    original, rewritten = randomized(name), tf_style(randomized(name), framed=True)
    assert transposes(rewritten) > transposes(original)
    ours, theirs = (sw.plan(model, tune="model", threads=2) for model in (rewritten, original))
    left = kinds(ours.graph) - kinds(theirs.graph)
    # What flattens a map, or ends at the model's rim, reads it in its own order: a free view.
    assert set(left) <= {"transpose"}
    assert kinds(theirs.graph) <= kinds(ours.graph)
    assert len(ours.reorders) <= len(theirs.reorders)
    assert ours.cost_ns <= theirs.cost_ns * (1 + 1e-9)


@pytest.mark.parametrize("name", [*MAPS, "resnet50", "shufflenet"])
def test_results_are_those_of_onnxruntime(name):
    agrees_with_onnxruntime(tf_style(randomized(name)))


def test_a_resnet_has_no_transpose_and_no_reorder_left():
    rewritten = tf_style(randomized("resnet50"))
    assert transposes(rewritten) > 200
    plan = sw.plan(rewritten, tune="model", threads=2)
    original = sw.plan(randomized("resnet50"), tune="model", threads=2)
    assert kinds(plan.graph) == kinds(original.graph)
    assert len(plan.reorders) <= len(original.reorders)
    convs = [node for node in plan.graph.nodes if node.op == "conv"]
    assert {node.get("data_format") for node in convs} == {"NHWC"}
    assert not [item for item in plan.refusals if item.rule == "sink_transposes"]


def test_the_rewriter_keeps_the_values_of_the_original():
    model = SMALL["resnet_17"]
    feeds = {"x": np.random.default_rng(0).normal(size=(2, 3, 14, 14)).astype(np.float32)}
    wanted = run_onnxruntime(model, feeds)
    found = run_onnxruntime(tf_style(model, framed=True), feeds)
    turned = {"x": np.ascontiguousarray(feeds["x"].transpose(0, 2, 3, 1))}
    last = run_onnxruntime(tf_style(model), turned)
    for name, expected in wanted.items():
        assert relative_error(found[name], expected) < TOLERANCE
        assert relative_error(last[name], expected) < TOLERANCE
