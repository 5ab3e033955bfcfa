"""The trainer: steps, what is learned, and what it refuses."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stridewise as sw
from stridewise.errors import ExecutionError, GraphError, InputError, ModelError
from stridewise.graph import Graph
from stridewise.program import KernelStep
from stridewise.runtime.simulation.reference import run_reference

F32 = np.float32
SHAPE, CLASSES = (8, 3, 12, 12), 5


def network(batch: int = 8, *, norm: bool = True, data_format: str = "NCHW") -> Graph:
    b = sw.GraphBuilder("net", data_format=data_format, training=True)
    channels, *size = SHAPE[1:]
    inner = (channels, *size) if data_format == "NCHW" else (*size, channels)
    y = b.conv2d(b.input("x", (batch, *inner)), 16, 3, strides=2, padding=1, name="conv")
    y = b.relu(b.batch_norm(y, name="norm") if norm else y)
    y = b.max_pool2d(b.conv2d(y, 8, 3, padding=1, groups=2, name="grouped"), 2)
    return b.build([b.dense(b.flatten(b.global_avg_pool(y)), CLASSES, name="dense")])


def trainer(graph: Graph | None = None, **options: Any) -> sw.Trainer:
    options.setdefault("optimizer", sw.SGD(lr=0.1, momentum=0.9))
    return sw.Trainer(graph or network(), tune="model", threads=2, **options)


def batch(count: int = 8, seed: int = 0) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(count, *SHAPE[1:])).astype(F32), rng.integers(0, CLASSES, count)


@pytest.mark.parametrize("optimizer", [sw.SGD(0.1, 0.9, True, 1e-4), sw.AdamW(0.01)])
def test_steps_lower_the_loss_on_native_kernels(optimizer: Any):
    found = trainer(optimizer=optimizer, clip_norm=10.0)
    steps = found.model.program.steps
    assert all(isinstance(step, KernelStep) and step.spec.kind != "host" for step in steps)
    x, labels = batch()
    losses = [found.step(x, labels) for _ in range(10)]
    assert losses[-1] < 0.7 * losses[0]
    assert found.losses == losses
    arrays = found.state_dict()
    stored, memory = sum(array.nbytes for array in arrays.values()) - 8, found.model.memory
    assert stored <= memory.mutable <= stored + 64 * len(arrays)  # each form is aligned
    assert found.nbytes == memory.arena + memory.packed_weights + memory.mutable
    assert found.steps == 10


def test_channels_last_graphs_are_trained_alike():
    first, last = trainer(), trainer(network(data_format="NHWC"))
    for seed in range(4):
        x, labels = batch(seed=seed)
        found = last.step(x.transpose(0, 2, 3, 1), labels)
        np.testing.assert_allclose(found, first.step(x, labels), rtol=1e-5)
    kinds = {s.spec.kind for s in last.model.program.steps if isinstance(s, KernelStep)}
    assert "host" not in kinds


def test_two_trainings_have_the_same_bits():
    first, second = trainer(), trainer()
    for seed in range(4):
        x, labels = batch(seed=seed)
        assert first.step(x, labels) == second.step(x, labels)
    for name, array in first.state_dict().items():
        np.testing.assert_array_equal(array, second.state_dict()[name])


@pytest.mark.parametrize("accumulate", [1, 4])
def test_profiles_change_nothing(accumulate: int):
    made = trainer(network(8 // accumulate), accumulate=accumulate)
    x, labels = batch()
    made.step(x, labels)
    before = made.state_dict()
    profile = made.profile(x, labels, runs=2)
    assert len(profile.rows) == len(made.model.program.steps)
    assert profile.measured_ns > 0
    for name, array in made.state_dict().items():
        np.testing.assert_array_equal(array, before[name], name)


def test_parts_of_a_batch_make_one_step():
    whole = trainer(network(norm=False), clip_norm=0.5)
    parts = trainer(network(2, norm=False), clip_norm=0.5, accumulate=4)
    for seed in range(3):
        x, labels = batch(seed=seed)
        np.testing.assert_allclose(parts.step(x, labels), whole.step(x, labels), rtol=1e-5)
    assert parts.steps == 3
    for name in whole.parameters:
        ours, theirs = parts.model.parameters[name], whole.model.parameters[name]
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-6)


def test_schedules_give_the_rate_of_each_step():
    asked: list[int] = []

    def rate(step: int) -> float:
        asked.append(step)
        return 0.0 if step < 2 else 0.1

    found = trainer(optimizer=sw.SGD(lr=rate))
    before = found.state_dict()
    x, labels = batch()
    found.step(x, labels)
    found.step(x, labels)
    np.testing.assert_array_equal(found.model.parameters["dense.weights"], before["dense.weights"])
    found.step(x, labels)
    assert (found.model.parameters["dense.weights"] != before["dense.weights"]).any()
    assert [step for step in asked if step] == [1, 2]


def test_only_the_named_parameters_are_trained():
    found = trainer(train=["dense.weights"])
    x, labels = batch()
    found.step(x, labels)
    before, after = network(), found.graph()
    for name, constant in after.parameters.items():
        same = np.array_equal(constant.array, before.parameters[name].array)
        assert same == (name != "dense.weights"), name


def test_initial_values_of_what_is_trained_are_dropped():
    graph = network()
    found, kept = trainer(graph, train=["conv.weights"]), trainer(graph, keep_originals=True)
    initial = graph.parameters["conv.weights"].array
    assert {**found.model.plan.graph.parameters}["conv.weights"].is_dropped
    assert found.model.plan.graph.states["optimizer.conv.weights.momentum"].is_dropped
    x, labels = batch()
    found.step(x, labels)
    assert not np.array_equal(found.graph().parameters["conv.weights"].array, initial)
    with pytest.raises(GraphError, match="keep_originals=True"):
        found.model.parameters.reset()
    kept.step(x, labels)
    kept.model.parameters.reset()
    np.testing.assert_array_equal(kept.model.parameters["conv.weights"], initial)


def test_the_trained_graph_has_running_statistics(tmp_path: Path):
    found = trainer()
    x, labels = batch()
    for seed in range(3):
        found.step(*batch(seed=seed))
    graph = found.graph()
    assert "batch_norm" not in {node.op for node in graph.nodes}
    assert not graph.updates
    values = found.state_dict()
    factor = values["norm.scale"] / np.sqrt(values["norm.variance"] + 1e-5)
    offset = values["norm.shift"] - values["norm.mean"] * factor
    scale, shift = next(node.inputs[1:] for node in graph.nodes if node.op == "scale_shift")
    np.testing.assert_allclose(graph.constants[scale].array, factor, rtol=1e-6)
    np.testing.assert_allclose(graph.constants[shift].array, offset, rtol=1e-5, atol=1e-7)
    (wanted,) = run_reference(graph, {"x": x}).values()
    np.testing.assert_allclose(sw.compile(graph, tune="model")(x), wanted, rtol=1e-4, atol=1e-5)
    sw.save(graph, tmp_path / "trained.onnx")
    again = sw.compile(tmp_path / "trained.onnx", tune="model", store_limit=0)
    np.testing.assert_allclose(again(x), wanted, rtol=1e-4, atol=1e-5)
    assert labels.shape == (8,)


def test_weights_of_a_loaded_model_are_trained(tmp_path: Path):
    b = sw.GraphBuilder("net")
    y = b.relu(b.batch_norm(b.conv2d(b.input("x", SHAPE), 8, 3)))
    sw.save(b.build([b.dense(b.flatten(b.global_avg_pool(y)), CLASSES)]), tmp_path / "net.onnx")
    found = trainer(sw.load(tmp_path / "net.onnx"))
    assert len(found.parameters) == 6
    x, labels = batch()
    losses = [found.step(x, labels) for _ in range(10)]
    assert losses[-1] < 0.8 * losses[0]


def test_mean_squared_errors_and_losses_of_ones_own():
    def loss(b: sw.GraphBuilder, prediction: str, target: str) -> str:
        difference = b.op("abs", [b.op("sub", [prediction, target])])
        return b.op("reduce_mean", [difference], {"axes": (0, 1), "keepdims": 0})

    x, _ = batch()
    wanted = np.random.default_rng(3).normal(size=(8, CLASSES)).astype(F32)
    for given in ("mean_squared_error", loss):
        found = trainer(loss=given)
        losses = [found.step(x, wanted) for _ in range(10)]
        assert losses[-1] < losses[0]


def test_states_continue_a_training(tmp_path: Path):
    first = trainer(optimizer=sw.AdamW(0.01))
    for seed in range(3):
        first.step(*batch(seed=seed))
    first.save(tmp_path / "checkpoint")
    second = trainer(optimizer=sw.AdamW(0.01))
    second.load(tmp_path / "checkpoint")
    assert second.steps == 3
    for seed in range(3, 6):
        assert first.step(*batch(seed=seed)) == second.step(*batch(seed=seed))


def test_states_may_have_another_order_of_bytes():
    found = trainer()
    wanted = {n: a + 1 if a.dtype == F32 else a for n, a in found.state_dict().items()}
    found.load_state_dict({n: a.astype(a.dtype.newbyteorder(">")) for n, a in wanted.items()})
    for name, array in found.state_dict().items():
        np.testing.assert_array_equal(array, wanted[name])


def test_states_of_another_training_change_nothing():
    found = trainer()
    before = found.state_dict()
    others: list[dict[str, Any]] = [
        {**before, "more": np.zeros(1)},
        {name: array for name, array in before.items() if name != "conv.weights"},
        {**before, "conv.weights": before["conv.weights"][:1]},
        {**before, "conv.weights": before["conv.weights"].astype(np.float64)},
    ]
    for arrays in others:
        with pytest.raises(ModelError, match="expected"):
            found.load_state_dict({**arrays, "dense.bias": np.ones(CLASSES, F32)})
    for name, array in found.state_dict().items():
        np.testing.assert_array_equal(array, before[name])


@pytest.mark.parametrize(
    ("x", "labels", "message"),
    [
        (np.zeros(SHAPE, F32), np.zeros(4, int), "expected integers of shape (8,)"),
        (np.zeros(SHAPE, F32), np.zeros((8, CLASSES)), "found float64 (8, 5)"),
        (np.zeros(SHAPE, F32), ["a"] * 8, "expected integers of shape (8,)"),
        (np.zeros((0, *SHAPE[1:]), F32), np.zeros(0, int), "found (0, 3, 12, 12)"),
        (np.full(SHAPE, np.nan, F32), np.zeros(8, int), "expected finite numbers"),
        ([[1.0], [2.0, 3.0]], np.zeros(8, int), "expected an array"),
        (np.zeros((4, *SHAPE[1:]), F32), np.zeros(8, int), "expected shape (8, 3, 12, 12)"),
        (np.zeros(SHAPE, F32), np.full(8, CLASSES), "from 5 to 5"),
        (np.zeros(SHAPE, F32), np.full(8, -1), "from -1 to -1"),
        ({"y": np.zeros(SHAPE, F32)}, np.zeros(8, int), "expected inputs x, found y"),
    ],
)
def test_arrays_that_do_not_fit(x: Any, labels: Any, message: str):
    found = trainer()
    with pytest.raises(InputError) as error:
        found.step(x, labels)
    assert message in str(error.value)
    assert found.steps == 0


def test_graphs_and_options_that_do_not_fit():
    b = sw.GraphBuilder("none")
    x = b.input("x", (2, 3))
    plain = b.build([b.relu(x)])
    with pytest.raises(GraphError, match="parameters to train"):
        trainer(plain)
    b = sw.GraphBuilder("two", training=True)
    y = b.dense(b.input("x", (2, 3)), 3)
    two = b.build([y, b.relu(y)])
    with pytest.raises(GraphError, match="one output"):
        trainer(two)
    with pytest.raises(InputError, match="names of parameters"):
        trainer(train=["dense"])
    with pytest.raises(InputError, match="mean_squared_error"):
        trainer(loss="hinge")
    wrong_options: dict[str, list[Any]] = {
        "accumulate": [0, 1.5, True],
        "clip_norm": [0, float("nan"), float("inf")],
        "optimizer": [None, sw.SGD],
        "loss": [None],
        "train": ["dense.weights"],
        "streams": [2],
    }
    for name, values in wrong_options.items():
        for value in values:
            with pytest.raises(InputError, match=f"Trainer, {name}: expected"):
                trainer(**{name: value})
    with pytest.raises(InputError, match="Trainer, graph"):
        trainer(Path("model.onnx"))  # pyright: ignore[reportArgumentType]
    with pytest.raises(InputError, match="learning rate of step 0"):
        trainer(optimizer=sw.SGD(lr=lambda _: float("nan")))
    with pytest.raises(InputError, match="pairs of inputs and labels"):
        trainer().fit([np.zeros(SHAPE)])  # pyright: ignore[reportArgumentType]
    for wrong in (
        lambda: sw.SGD(lr=-1.0),
        lambda: sw.SGD(lr=0.1, nesterov=True),
        lambda: sw.SGD(lr=0.1, momentum=1.0),
        lambda: sw.SGD(lr=0.1, momentum=float),
        lambda: sw.SGD(lr=0.1, momentum=0.9, dampening=-0.1),
        lambda: sw.SGD(lr=0.1, momentum=0.9, nesterov=True, dampening=0.1),
        lambda: sw.AdamW(betas=(0.9, 1.0)),
        lambda: sw.AdamW(betas=(0.9,)),  # pyright: ignore[reportArgumentType]
    ):
        with pytest.raises(InputError):
            wrong()


def test_what_is_not_finite_is_an_error_and_no_checkpoint(tmp_path: Path):
    found = trainer(network(norm=False), optimizer=sw.SGD(lr=1e30))
    found.save(tmp_path / "checkpoint")
    x, labels = batch()
    with pytest.raises(ExecutionError, match=r"step \d+: expected finite numbers"):
        found.fit([(x, labels)] * 20)
    found.model.parameters["dense.bias"] = np.full(CLASSES, np.nan, F32)
    with pytest.raises(ExecutionError, match="expected finite numbers"):
        found.save(tmp_path / "checkpoint")
    with pytest.raises(ExecutionError, match="graph of what was trained: expected finite"):
        found.graph()
    found.load(tmp_path / "checkpoint")
    assert found.steps == 0


@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("optimizer", [sw.SGD(0.1, 0.9, True, 1e-4), sw.AdamW(0.01)])
@pytest.mark.parametrize("shape", [(), (1,), (1, 1)])
def test_parameters_of_one_element(shape: tuple[int, ...], optimizer: Any, parts: int):
    b = sw.GraphBuilder("gain", training=True)
    gain = b.parameter(np.full(shape, 0.5, F32), "gain")
    y = b.mul(b.flatten(b.global_avg_pool(b.input("x", (8 // parts, *SHAPE[1:])))), gain)
    graph = b.build([b.dense(y, CLASSES)])
    for names in (["gain"], [name for name in graph.parameters if name != "gain"]):
        found = trainer(graph, optimizer=optimizer, accumulate=parts, train=names, clip_norm=1.0)
        losses = [found.step(*batch()) for _ in range(5)]
        assert losses[-1] < losses[0]
        assert found.graph().parameters["gain"].shape == shape


def test_threads_share_a_trainer():
    alone, shared = (trainer(network(4), accumulate=2) for _ in range(2))
    x, labels = batch()
    wanted = [alone.step(x, labels) for _ in range(8)]
    with ThreadPoolExecutor(4) as pool:
        found = [pool.submit(shared.step, x, labels) for _ in range(8)]
    assert sorted(task.result() for task in found) == sorted(wanted)
    assert shared.losses == wanted
    for name, array in alone.state_dict().items():
        np.testing.assert_array_equal(shared.state_dict()[name], array)
