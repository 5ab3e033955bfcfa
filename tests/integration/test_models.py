"""Whole models: against their shipped outputs, and against ONNX Runtime."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import stridewise as sw
from stridewise.runtime.execution.executor import CompiledModel

from .models import (
    LIGHT_ATOL,
    LIGHT_RTOL,
    light_inputs,
    light_models,
    light_output,
    random_inputs,
    randomize,
    rebatch,
    relative_error,
    run_onnxruntime,
    run_reference,
    small_models,
    torch_models,
)

TOLERANCE = 1e-5
LIGHT, TORCH, SMALL = light_models(), torch_models(), small_models()
OLD_ISA = os.environ.get("ONEDNN_MAX_CPU_ISA", "")
HEAVY = ("bvlc_alexnet", "vgg19", "zfnet512")
"""Models with 200 MB of weights and more, and no operator that the others don't have."""

Array = np.ndarray[Any, np.dtype[Any]]


def compiled(source: Any) -> CompiledModel:
    return sw.compile(source, tune="model", threads=2)


def agree(model: CompiledModel, expected: dict[str, Array], feeds: dict[str, Array]) -> None:
    found = model.run(feeds)
    assert list(found) == list(dict.fromkeys(expected))
    for name, wanted in expected.items():
        assert found[name].shape == wanted.shape
        assert not np.isnan(found[name]).any()
        assert relative_error(found[name], wanted) < TOLERANCE, name


@cache
def randomized(name: str) -> onnx.ModelProto:
    return randomize(onnx.load(LIGHT[name]))


def first_of(batch: dict[str, Array]) -> dict[str, Array]:
    return {name: array[:1] for name, array in batch.items()}


def check_many_callers(model: CompiledModel) -> None:
    """Check that eight threads at once get the very same bits."""
    feeds = [random_inputs(model.plan.graph, seed) for seed in range(2)]
    alone = [model.run(feed) for feed in feeds]
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(lambda index: model.run(feeds[index % 2]), range(8)))
    for index, found in enumerate(together):
        for key, wanted in alone[index % 2].items():
            np.testing.assert_array_equal(found[key], wanted)


def test_all_nine_light_models_are_there():
    assert len(LIGHT) == 9
    assert len(TORCH) == 8


@pytest.mark.parametrize("name", LIGHT)
def test_light_models_give_their_shipped_outputs(name):
    model = compiled(LIGHT[name])
    found = model(*light_inputs(LIGHT[name]).values())
    wanted = light_output(LIGHT[name])
    np.testing.assert_allclose(found, wanted, rtol=LIGHT_RTOL, atol=LIGHT_ATOL)


@pytest.mark.parametrize("name", LIGHT)
def test_light_models_with_random_weights_agree_with_onnxruntime(name):
    """At a batch of one; all but the heaviest with many callers, and at a batch of three, too.

    Drawing the weights of a model, and compiling it here and there, take longest, so each is done
    once. Whatever the batch, an image gives what it gives among others.
    """
    model = compiled(randomized(name))
    # Neither callers nor batches have to do with the instruction set, nor with the size of weights.
    if OLD_ISA or name in HEAVY:
        feeds = random_inputs(model.plan.graph)
        agree(model, run_onnxruntime(randomized(name), feeds), feeds)
        return
    check_many_callers(model)
    proto = rebatch(randomized(name), 3)
    batches = compiled(proto)
    feeds = random_inputs(batches.plan.graph)
    expected = run_onnxruntime(proto, feeds)
    agree(batches, expected, feeds)
    agree(model, first_of(expected), first_of(feeds))


@pytest.mark.parametrize("name", TORCH)
def test_models_of_torch_agree_with_onnxruntime(name):
    model = compiled(TORCH[name])
    feeds = random_inputs(model.plan.graph)
    agree(model, run_onnxruntime(TORCH[name], feeds), feeds)


@pytest.mark.parametrize("name", SMALL)
def test_small_models_agree_with_onnxruntime_and_with_the_reference(name):
    model = compiled(SMALL[name])
    feeds = random_inputs(model.plan.graph)
    expected = run_onnxruntime(SMALL[name], feeds)
    agree(model, expected, feeds)
    agree(model, run_reference(sw.load(SMALL[name]), feeds), feeds)


@pytest.mark.skipif(bool(OLD_ISA), reason="measuring takes its time")
def test_a_measured_plan_agrees_with_onnxruntime_and_is_no_worse_than_uniform_ones(tmp_path):
    source = TORCH["torch_resnet_torchscript"]
    model = sw.compile(source, threads=2, cache_dir=tmp_path, tune="measure")
    feeds = random_inputs(model.plan.graph)
    agree(model, run_onnxruntime(source, feeds), feeds)
    # A uniform plan may have been chosen by measured time; the planned one is cheapest by costs.
    plan = sw.plan(source, threads=2, cache_dir=tmp_path, tune="measure")
    costs = {item.name: item.cost_ns for item in plan.compare()}
    uniform = [cost for name, cost in costs.items() if name.startswith("all ")]
    assert len(uniform) == 3
    assert costs["planned"] <= min(uniform) + 1e-6
    assert plan.under(()).gap <= 1e-9
    kernels = [cost for d in model.plan.decisions for cost in d.chosen.costs]
    assert {cost.source for cost in kernels} <= {"measured", "in place", "scaled"}
    assert not [cost for cost in kernels if cost.is_reference]


@pytest.mark.skipif(bool(OLD_ISA), reason="this is what starts the runs on older sets")
@pytest.mark.parametrize("isa", ["AVX2", "SSE41"])
def test_models_agree_on_older_instruction_sets(isa):
    here = Path(__file__)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--tb=short"]
    # Shipped weights are constants, so random ones find more. Networks of the zoo with layers like
    # those of the models that are left out run on older sets in test_zoo.py.
    wanted = "of_torch or random_weights and (inception or resnet50)"
    command += [str(here), "-k", wanted]
    done = subprocess.run(
        command,
        env={**os.environ, "ONEDNN_MAX_CPU_ISA": isa},
        cwd=here.parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-5000:]
    assert " passed" in done.stdout
