"""Verification: healthy models pass, and a planted error is found at the node that has it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from tests.networks import networks

import stridewise as sw
from stridewise.graph import Graph
from stridewise.planner.split import Split
from stridewise.program import KernelStep
from stridewise.runtime.execution.executor import CompiledModel
from stridewise.runtime.execution.loading import load, lower_plan
from stridewise.targets.onednn.winograd import KIND

from .graphs import CASES, KINDS, Net, forced_plan
from .health import check_health, healthy
from .test_splits import SPLITS, X, network, split_model

SIZES = {"alexnet": 72, "inception_v3": 76, "resnet3d_18": 16, "unet": 16}
"""Pixels a side of networks that take no images of 32, or take long for them."""
EXACT = ("densenet121", "inception_v3", "mobilenet_v3_large", "resnet18", "squeezenet1_1", "unet")

Array = np.ndarray[Any, Any]


def compiled(graph: Graph, **options: Any) -> CompiledModel:
    return sw.compile(graph, tune="model", keep_originals=True, **{"threads": 2, **options})


# --- healthy models -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "accuracy"),
    [*((name, "fast") for name in sw.zoo.models()), *((name, "exact") for name in EXACT)],
)
def test_networks_are_healthy(name: str, accuracy: str) -> None:
    graph = sw.zoo.build(name, size=SIZES.get(name, 32))
    threads = 1 + (accuracy == "fast")
    found = healthy(compiled(graph, accuracy=accuracy, threads=threads))
    assert found.threads == threads
    # Where they are healthy, there is a margin, too.
    assert all(row.local_error <= 0.9 * row.local_tolerance for row in found.rows)


@pytest.mark.parametrize("case", CASES)
def test_all_kernels_are_healthy(case: str) -> None:
    """Those of other plans, too: see tests/runtime/test_execute.py."""
    graph = CASES[case]()
    check_health(graph, compiled(graph))


@settings(max_examples=30, suppress_health_check=[HealthCheck.too_slow])
@given(graph=networks())
def test_random_networks_are_healthy(graph: Graph) -> None:
    for how in ("model", *KINDS):
        model = compiled(graph) if how == "model" else load(lower_plan(forced_plan(graph, how)))
        assert sw.verify(model).ok


@pytest.mark.parametrize("split", SPLITS, ids=str)
def test_batches_in_parts_are_healthy(split: Split) -> None:
    model = split_model(split)
    (name,) = model.input_names
    whole = healthy(compiled(network()), inputs={name: X})
    found = healthy(model, inputs={name: X})
    # Whether the input is reordered, and so stored a second time, is up to each plan.
    assert {row.name for row in found.rows} ^ {row.name for row in whole.rows} <= {name}


@pytest.mark.parametrize("fmt", ["NHWC", "CHWN", "nChw16c", "nChw8c"])
def test_inputs_and_outputs_in_other_formats(fmt: str) -> None:
    b = Net(2, 16, 6, 5)
    graph = b.build([b.op("relu", [b.conv(b.conv(b.x, 33, 3), 32)], output="y")])
    model = compiled(graph, input_formats={"x": fmt}, output_formats={"y": fmt})
    x = np.random.default_rng(1).standard_normal((2, 16, 6, 5)).astype(np.float32)
    made = healthy(model)
    for given_ in (x, sw.reorder(x, "NCHW", fmt)):
        found = healthy(model, inputs={"x": given_})
        assert [row.name for row in found.rows] == [row.name for row in made.rows]
    assert found.rows[-1].format == str(sw.Format.parse(fmt))


def test_one_pixel_and_squeeze_and_excite() -> None:
    b = Net(1, 17, 1, 1)
    y = b.conv(b.x, 33, 1)
    gate = b.op("reduce_mean", [y], {"axes": (2, 3), "keepdims": 1})
    gate = b.op("sigmoid", [b.conv(b.op("relu", [b.conv(gate, 5, 1)]), 33, 1)])
    healthy(compiled(b.build([b.op("mul", [y, gate])])))


def test_values_that_jump_are_judged_by_what_their_node_had() -> None:
    b = Net(1, 9, 6, 6)
    y = b.conv(b.x, 16, 3)
    steps = b.op("round", [b.op("mul", [y, b.constant(np.full((1,), 50, np.float32))])])
    best = b.op("arg_max", [y], {"axis": 1, "keepdims": 0})
    values = b.op("floor", [b.conv(steps, 8, 1)])
    found = sw.verify(compiled(b.build([steps, best, values])))
    assert found.ok


def test_nan_and_infinity_of_the_caller() -> None:
    b = Net(1, 16, 24, 24)
    graph = b.build([b.conv(b.conv(b.x, 32, 3), 32, 3)])
    x = np.ones((1, 16, 24, 24), np.float32)
    x[0, 3, 5, 6], x[0, 4, 20, 20] = np.nan, np.inf
    for accuracy in ("fast", "exact"):
        assert sw.verify(compiled(graph, accuracy=accuracy), inputs={"x": x}).ok


# --- planted errors -------------------------------------------------------------------------------


def weights(model: CompiledModel, node: str, role: str) -> tuple[KernelStep, Array]:
    """Return the step of a node, and the packed constant that it reads in a role."""
    step = next(s for s in model.program.steps if isinstance(s, KernelStep) and s.node == node)
    index = next(item.ref.index for item in step.bindings if item.role == role)
    buffer, offset = model.weights.places[index]
    memory = step.spec.memory(role)
    assert memory is not None
    count = prod(memory.dims)
    return step, model.weights.buffers[buffer].array()[offset:].view(np.float32)[:count]


def planted(model: CompiledModel, node: str, role: str, change: Callable[[Array], object]) -> str:
    """Damage a constant and return what is said of the first wrong tensor, once for all others."""
    _, array = weights(model, node, role)
    change(array)
    found = sw.verify(model)
    assert not found.ok
    assert found.first is not None
    assert found.first.node == node
    assert [row.node for row in found.rows if row.verdict == "differs"] == [node]
    with pytest.raises(sw.VerificationError) as raised:
        found.check()
    assert f"differs from node {node!r} on" in str(found)
    return str(raised.value)


def chain(accuracy: str = "exact", activation: str = "relu") -> CompiledModel:
    b = Net(1, 16, 28, 28)
    x = b.x
    for _ in range(5):
        x = b.op(activation, [b.conv(x, 32, 3)])
    return compiled(b.build([x]), accuracy=accuracy)


def middle(model: CompiledModel) -> str:
    return model.plan.graph.nodes[2].name


def scaled(factor: float) -> Callable[[Array], object]:
    return lambda array: np.multiply(array, np.float32(factor), out=array)


@pytest.mark.parametrize("accuracy", ["fast", "exact"])
@pytest.mark.parametrize("factor", [1.001, 0.0, -1.0])
def test_weights_that_are_off(accuracy: str, factor: float) -> None:
    model = chain(accuracy)
    node = middle(model)
    step, _ = weights(model, node, "weights")
    assert (step.spec.kind == KIND) == (accuracy == "fast")
    message = planted(model, node, "weights", scaled(factor))
    assert message.startswith(f"model 'net', node {node!r}, tensor ")


def test_weights_that_are_swapped() -> None:
    def swap(array: Array) -> None:
        array[:] = array[::-1].copy()

    model = chain()
    planted(model, middle(model), "weights", swap)


def test_a_bias_that_is_off_by_one_percent() -> None:
    b = Net(1, 17, 9, 9)
    bias = b.constant(np.linspace(1, 2, 33).astype(np.float32))
    w = b.constant(np.random.default_rng(0).standard_normal((33, 17, 3, 3)).astype(np.float32))
    y = b.op("conv", [b.x, w, bias], {"pads": (1, 1, 1, 1)})
    model = compiled(b.build([b.conv(b.op("relu", [y]), 8, 1)]))
    planted(model, model.plan.graph.nodes[0].name, "bias", scaled(1.01))


def test_one_channel_of_one_layer() -> None:
    graph = sw.zoo.build("resnet18", size=48)
    model = compiled(graph, accuracy="exact")
    conv = [node for node in model.plan.graph.nodes if node.op == "conv"][7]

    def one(array: Array) -> None:
        array[5] += np.float32(0.1)

    message = planted(model, conv.name, "bias", one)
    assert "at axis 1, index 5, by direct, " in message


def test_messages_name_node_kernel_and_formats() -> None:
    b = Net(1, 8, 16, 16)
    graph = b.build(
        [b.op("conv", [b.x, b.constant(np.ones((8, 8, 1, 1), np.float32))], output="y")]
    )
    model = compiled(graph, accuracy="exact")
    node, kernel = graph.nodes[0].name, model.plan.decisions[0].chosen
    message = planted(model, node, "weights", scaled(2))
    assert re.sub(r"most [0-9.e-]+|axis \d, index \d+", "T", message) == (
        f"model 'net', node {node!r}, tensor 'y': expected a relative error of at T, found 1 at T, "
        f"by {kernel.algorithm} [{kernel.implementation}] in {kernel.option.outputs[0]}; "
        "report it with the model; plan.why(node) names other kernels"
    )
    disk = replace(sw.verify(model), from_disk=True)
    with pytest.raises(sw.VerificationError, match=r"store_limit=0, and verify that$"):
        disk.check()


def test_reorders_padding_and_plain_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    model = load(lower_plan(forced_plan(CASES["conv_2d_17"](), "blocked")))
    moved = model.plan.reorders[0]
    original = CompiledModel.trace

    def damaged(at: str) -> sw.Verification:
        def trace(self: CompiledModel, inputs: Any, callback: Any) -> Any:
            def changed(written: Any, stored: Array) -> None:
                fmt = written.desc.storage.format
                stored = stored.copy()
                if at == "padding" and stored.size > prod(written.desc.shape):
                    stored.reshape(-1)[-1] = 1
                if at == "reorder" and (written.value, fmt) == (moved.tensor, moved.target.format):
                    stored *= np.float32(1 + 2.0**-22)
                callback(written, stored)

            return original(self, inputs, changed)

        with monkeypatch.context() as patch:
            patch.setattr(CompiledModel, "trace", trace)
            return sw.verify(model)

    first = damaged("padding").first
    assert first is not None
    assert first.where == "the padding, where 1 are not 0"
    first = damaged("reorder").first
    assert first is not None
    assert first.node == f"{moved.tensor}: {moved.source} -> {moved.target}"
    assert first.kernel.startswith("reorder [")
    run = CompiledModel.run_program
    monkeypatch.setattr(
        CompiledModel, "run_program", lambda self, inputs: [2 * y for y in run(self, inputs)]
    )
    first = sw.verify(model).first
    assert first is not None
    assert (first.node, first.kernel) == ("run", "all steps")


def test_errors_of_one_part_of_a_batch() -> None:
    model = split_model(Split(3))
    node = model.plan.graph.nodes[0].name
    planted(model, node, "weights", scaled(1.01))


# --- what comes out -------------------------------------------------------------------------------


def test_the_same_seed_gives_the_same_rows() -> None:
    model = chain("fast")
    assert sw.verify(model, seed=4) == sw.verify(model, seed=4)
    assert sw.verify(model, seed=4) != sw.verify(model, seed=5)


def test_what_comes_out_as_text_and_json() -> None:
    model = chain(activation="sigmoid")
    _, array = weights(model, middle(model), "weights")
    array[0] = np.nan
    found = sw.verify(model)
    document = found.to_dict()
    assert not document["ok"]
    assert document["first"]["local_error"] is None
    assert "NaN" not in found.to_json()
    assert "Infinity" not in found.to_json()
    lines = str(found).splitlines()
    assert len(lines) <= 12
    assert lines[0].startswith(
        f"{found.model!r}: differs from node {middle(model)!r} on; compiled "
    )
    assert " differs " in lines[2]


@pytest.mark.parametrize("wrong", [[X], X, "x", 0])
def test_inputs_are_a_mapping(wrong: Any) -> None:
    with pytest.raises(sw.InputError, match="expected a mapping from names to arrays, found"):
        sw.verify(compiled(CASES["dense"]()), inputs=wrong)
