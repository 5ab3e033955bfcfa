"""Training steps whose activations and gradients may be stored in bfloat16."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import stridewise as sw
from stridewise.dtypes import dtype_of
from stridewise.graph import Graph
from stridewise.program import KernelStep
from stridewise.runtime.machine.machine import this_machine

F32, BF16 = np.float32, dtype_of("bfloat16")
SHAPE, CLASSES = (8, 3, 16, 16), 5


def residual() -> Graph:
    b = sw.GraphBuilder("residual", training=True)
    x = b.relu(b.batch_norm(b.conv2d(b.input("x", SHAPE), 32, 3, padding=1)))
    y = b.batch_norm(b.conv2d(x, 32, 3, padding=1))
    y = b.max_pool2d(b.relu(b.add(x, y)), 2)
    return b.build([b.dense(b.flatten(b.global_avg_pool(y)), CLASSES)])


def depthwise() -> Graph:
    b = sw.GraphBuilder("depthwise", training=True)
    x = b.conv2d(b.input("x", SHAPE), 24, 3, strides=2, padding=1)
    x = b.batch_norm(b.conv2d(x, 24, 3, padding=1, groups=24))
    y = b.conv2d(b.sigmoid(x), 19, 1)
    return b.build([b.dense(b.flatten(b.global_avg_pool(y)), CLASSES)])


NETWORKS = (residual, depthwise)
each_network = pytest.mark.parametrize("network", NETWORKS, ids=lambda made: made.__name__)


def batch(seed: int = 0) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    rng = np.random.default_rng(seed)
    return rng.normal(size=SHAPE).astype(F32), rng.integers(0, CLASSES, SHAPE[0])


def trainer(graph: Graph, dtype: str, lr: float = 1.0, **options: Any) -> sw.Trainer:
    given: dict[str, Any] = {"optimizer": sw.SGD(lr=lr), "dtype": dtype, "threads": 2} | options
    return sw.Trainer(graph, tune="model", **given)


def changes(found: sw.Trainer, steps: int = 1) -> np.ndarray[Any, Any]:
    """Return by how much steps change the parameters."""
    before = {name: found.model.parameters[name].copy() for name in found.parameters}
    for seed in range(steps):
        found.step(*batch(seed))
    after = found.model.parameters
    return np.concatenate([(before[name] - after[name]).ravel() for name in found.parameters])


def distance(found: np.ndarray[Any, Any], right: np.ndarray[Any, Any]) -> float:
    return float(np.linalg.norm(found - right) / np.linalg.norm(right))


@each_network
def test_gradients_are_near_those_of_float32(network: Callable[[], Graph]):
    graph = network()
    narrow, wide = trainer(graph, "bfloat16"), trainer(graph, "float32")
    is_narrow = any(
        "bf16" in str(s.spec) for s in narrow.model.program.steps if isinstance(s, KernelStep)
    )
    if not this_machine(2).has_avx512 and not is_narrow:
        pytest.skip("without AVX-512 convolutions have no bfloat16 kernels; the step stays float32")
    assert is_narrow
    assert 0 < distance(changes(narrow), changes(wide)) < 2e-2
    np.testing.assert_allclose(narrow.losses, wide.losses, rtol=1e-2)
    for name, state in wide.model.states.items():  # running statistics
        np.testing.assert_allclose(narrow.model.states[name], state, rtol=1e-2, atol=1e-2)


@each_network
def test_steps_below_the_precision_of_bfloat16_are_kept(network: Callable[[], Graph]):
    graph = network()
    found = changes(trainer(graph, "bfloat16", 1e-4), 4)
    right = changes(trainer(graph, "float32", 1e-4), 4)
    assert np.median(np.abs(right)) < 2**-9 * 0.1  # half a digit of a weight of 0.1
    assert distance(found, right) < 2e-2


@each_network
@pytest.mark.parametrize("optimizer", [sw.SGD(0.1, 0.9, True, 1e-4), sw.AdamW(0.01)])
def test_the_loss_the_parameters_and_their_moments_are_float32(network: Any, optimizer: Any):
    found = trainer(network(), "bfloat16", optimizer=optimizer, clip_norm=1.0, accumulate=2)
    plan, graph = found.model.plan, found.model.plan.graph
    kept = {*graph.outputs, *graph.parameters, *graph.states, *graph.updates.values()}
    for name in kept:
        assert plan.storage(name).dtype.name == "float32", name
    assert all(array.dtype == F32 for array in found.model.parameters.values())
    x, labels = (np.concatenate(arrays) for arrays in zip(batch(0), batch(1), strict=True))
    losses = [found.step(x, labels) for _ in range(6)]
    assert losses[-1] < losses[0]


def test_what_gradients_are_clipped_by_is_float32():
    plan = trainer(residual(), "bfloat16", optimizer=sw.AdamW(0.01), clip_norm=1.0).model.plan
    graph, found = plan.graph, set[str]()
    for node in graph.nodes:  # from the sums of squares on, all belongs to clipping and updates
        if node.op == "reduce_sum_square":
            found |= {*node.inputs, *node.outputs}
        elif found.intersection(node.inputs):
            found.update(node.outputs)
    assert found.issuperset(graph.updates[name] for name in graph.parameters)
    for name in found:
        assert graph.values[name].exact, name
        assert plan.storage(name).dtype.name == "float32", name


@each_network
def test_two_trainings_have_the_same_bits(network: Callable[[], Graph]):
    first, second = (trainer(network(), "bfloat16", 0.1) for _ in range(2))
    for seed in range(3):
        assert first.step(*batch(seed)) == second.step(*batch(seed))


def test_own_norms_have_kernels_on_bfloat16_that_cost_half() -> None:
    plan = trainer(residual(), "bfloat16").model.plan
    norms = [node.name for node in plan.graph.nodes if node.op.startswith("batch_norm")]
    assert len(norms) == 4  # two norms, and their gradients
    for name in norms:
        costs = {c.option.algorithm: c.cost_ns for c in plan.candidates.nodes[name]}
        own = [found for found in costs if found.startswith("own ") and "bf16" not in found]
        assert own
        for algorithm in own:
            assert costs[f"{algorithm}, bf16"] < 0.7 * costs[algorithm]


@pytest.mark.skipif(
    not this_machine(2).has_avx512,
    reason="the CPU has no AVX-512, so convolutions around the norms have no bfloat16 kernels",
)
def test_norms_with_what_is_fused_into_them_have_no_conversions() -> None:
    model = trainer(residual(), "bfloat16").model
    plan, images = model.plan, set[str]()
    specs = [step.spec for step in model.program.steps if isinstance(step, KernelStep)]
    kinds = [spec.kind for spec in specs]
    assert kinds.count("fused_batch_norm") == 2  # with relu; with add and relu
    assert "fused_batch_norm_gradient" in kinds  # with the mask of the relu
    for spec in specs:
        if "batch_norm" in spec.kind:
            found = [m.dtype for _, m in spec.memories if len(m.dims) == 4]
            found += [post.operand.dtype for post in spec.post_ops if post.operand is not None]
            assert set(found) == {"bf16"}, str(spec)
    for node in plan.graph.nodes:
        if node.op.startswith("batch_norm"):
            names = {*node.inputs, *node.outputs}
            images |= {name for name in names if len(plan.graph.values[name].shape) == 4}
    assert {plan.made(name).dtype for name in images} == {BF16}
    # Weight gradients may be cheaper on float32 images; all else reads what is stored.
    read = {item.tensor for item in plan.reorders if item.target.dtype == BF16}
    assert not read & images


def test_plans_within_limits_of_memory_have_the_same_bits():
    # Winograd's scratchpad alone takes more than all else in a network of this size.
    options: dict[str, Any] = {"lr": 0.1, "accuracy": "exact"}
    found = trainer(residual(), "bfloat16", **options)
    losses = [found.step(*batch(seed)) for seed in range(2)]
    least, *_, fastest = found.model.plan.front()
    assert least.nbytes < fastest.nbytes == found.nbytes
    limited = trainer(residual(), "bfloat16", memory_limit=least.nbytes, **options)
    assert limited.nbytes == least.nbytes
    assert [limited.step(*batch(seed)) for seed in range(2)] == losses
    assert "bf16" in limited.to_html()
