"""Dropout: random numbers, the kernel against the reference, and training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import stridewise as sw
from stridewise.errors import GraphError, InputError, UnsupportedError
from stridewise.graph import Graph
from stridewise.ops.dropout import counter, philox
from stridewise.program import KernelStep
from stridewise.runtime.simulation.reference import run_reference

F32 = np.float32
CLASSES = 5

KNOWN = (
    ([0] * 4, [0] * 2, [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
    ([2**32 - 1] * 4, [2**32 - 1] * 2, [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
    (
        [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
        [0xA4093822, 0x299F31D0],
        [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1],
    ),
)
"""Counter, key and words. Source: the test vectors of Random123, philox4x32 with 10 rounds."""


@pytest.mark.parametrize(("words", "key", "wanted"), KNOWN)
def test_random_words_are_those_of_philox(words: list[int], key: list[int], wanted: list[int]):
    found = philox([np.array([word], np.uint64) for word in words], key)
    assert [int(word[0]) for word in found] == wanted


def drawing(shape: tuple[int, ...], share: float, stream: int = 0) -> Graph:
    b = sw.GraphBuilder("draw")
    x, numbers = b.input("x", shape), b.input("counter", (4,))
    attrs = {"share": share, "stream": stream}
    return b.build([b.op("dropout", [x, numbers], attrs, output="y")])


@settings(max_examples=40)
@given(
    st.lists(st.integers(1, 9), min_size=1, max_size=4).map(tuple),
    st.sampled_from([0.0, 0.1, 0.5, 0.999]),
    st.integers(0, 2**32 - 1),
    st.integers(0, 2**48 - 1),
    st.integers(0, 2**48 - 1),
    st.integers(1, 3),
)
def test_kernels_draw_what_the_reference_draws(
    shape: tuple[int, ...], share: float, stream: int, run: int, seed: int, threads: int
):
    graph = drawing(shape, share, stream)
    feeds = {"x": np.random.default_rng(0).normal(size=shape).astype(F32)}
    feeds["counter"] = counter(run, seed)
    model = sw.compile(graph, tune="model", threads=threads)
    kinds = [s.spec.kind for s in model.program.steps if isinstance(s, KernelStep)]
    assert kinds == ["dropout"]
    np.testing.assert_array_equal(model.run(feeds)["y"], run_reference(graph, feeds)["y"])


def test_threads_share_large_tensors():
    graph, ones = drawing((7, 3, 211, 97), 0.3), np.ones((7, 3, 211, 97), F32)
    feeds = {"x": ones, "counter": counter(3, 4)}
    found = [sw.compile(graph, tune="model", threads=n).run(feeds)["y"] for n in (1, 2)]
    np.testing.assert_array_equal(*found)
    np.testing.assert_array_equal(found[0], run_reference(graph, feeds)["y"])


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_masks_have_their_share_and_depend_on_nothing_else(share: float):
    size = 100_000
    ones = np.ones(size, F32)
    masks = [
        run_reference(drawing((size,), share, stream), {"x": ones, "counter": counter(run, seed)})
        for stream, run, seed in ((0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1), (0, 2**24, 0))
    ]
    kept = np.array([mask["y"] > 0 for mask in masks], float)
    deviation = (share * (1 - share) / size) ** 0.5
    assert np.abs(kept.mean(1) - (1 - share)).max() < 5 * deviation
    together = np.corrcoef(kept) - np.eye(len(masks))
    assert np.abs(together).max() < 5 / size**0.5
    neighbours = [np.corrcoef(mask[1:], mask[:-1])[0, 1] for mask in kept]
    assert np.abs(neighbours).max() < 5 / size**0.5
    np.testing.assert_allclose(np.unique(masks[0]["y"]), [0, 1 / (1 - share)], rtol=1e-6)


@pytest.mark.parametrize("values", [[np.nan, -1, 3, 5], [1e9, np.inf, -np.inf, 2**25]])
def test_counters_that_are_none_are_safe(values: list[float]):
    graph = drawing((33,), 0.5)
    feeds = {"x": np.ones(33, F32), "counter": np.array(values, F32)}
    found = sw.compile(graph, tune="model").run(feeds)["y"]
    np.testing.assert_array_equal(found, run_reference(graph, feeds)["y"])


# --- training ---------------------------------------------------------------------------------


def network(batch: int = 8, share: float = 0.5) -> Graph:
    b = sw.GraphBuilder("net", training=True)
    y = b.relu(b.batch_norm(b.conv2d(b.input("x", (batch, 3, 8, 8)), 16, 3, padding=1)))
    y = b.relu(b.conv2d(b.dropout(y, share), 16, 3, padding=1))
    return b.build([b.dense(b.dropout(b.flatten(b.global_avg_pool(y)), share), CLASSES)])


def trainer(graph: Graph | None = None, **options: Any) -> sw.Trainer:
    rule = options.pop("optimizer", sw.SGD(0.1, 0.9))
    return sw.Trainer(graph or network(), optimizer=rule, tune="model", **{"threads": 2, **options})


def batch(seed: int = 0) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(8, 3, 8, 8)).astype(F32), rng.integers(0, CLASSES, 8)


def losses(found: sw.Trainer, count: int = 4) -> list[float]:
    return [found.step(*batch(seed)) for seed in range(count)]


def test_gradients_pass_where_elements_were_kept():
    """One layer behind dropout, against the formula in NumPy with the same masks."""
    rng, share = np.random.default_rng(0), 0.4
    x, target = rng.normal(size=(6, 20)).astype(F32), rng.normal(size=(6, 3)).astype(F32)
    b = sw.GraphBuilder("line", training=True)
    dropped = b.dropout(b.input("x", (6, 20)), share)
    graph = b.build([b.dense(dropped, 3, bias=False, name="dense")])
    rule = sw.SGD(0.1)
    found = sw.Trainer(
        graph, optimizer=rule, loss="mean_squared_error", tune="model", seed=9, accumulate=2
    )
    weights = graph.parameters["dense.weights"].array.astype(float)
    inputs, targets = (np.concatenate([item, item]) for item in (x, target))
    for step in range(3):
        total = np.zeros_like(weights)
        for part in range(2):
            feeds = {"x": x, "counter": counter(2 * step + part, 9)}
            (masked,) = run_reference(drawing(x.shape, share), feeds).values()
            error = masked @ weights.T - target
            total += error.T @ masked * (2 / error.size)
        weights -= 0.1 * total / 2
        found.step(inputs, targets)
        np.testing.assert_allclose(found.model.parameters["dense.weights"], weights, rtol=1e-5)


def test_a_step_draws_by_its_number_and_the_seed_alone():
    wanted = trainer(seed=3)
    first = losses(wanted)
    others: list[dict[str, Any]] = [{"threads": 1}, {"memory_limit": wanted.nbytes - 1000}]
    for options in others:
        assert losses(trainer(seed=3, **options)) == pytest.approx(first, rel=1e-5)
    assert losses(trainer(seed=3)) == first
    assert losses(trainer(seed=4)) != pytest.approx(first, rel=1e-2)
    still = trainer(optimizer=sw.SGD(0.0))
    assert still.step(*batch()) != pytest.approx(still.step(*batch()), rel=1e-3)


def test_a_checkpoint_continues_with_the_masks_of_its_steps(tmp_path: Path):
    whole, part = trainer(), trainer()
    wanted = losses(whole)
    losses(part, 2)
    part.save(tmp_path / "checkpoint")
    again = trainer()
    again.load(tmp_path / "checkpoint")
    assert [again.step(*batch(seed)) for seed in (2, 3)] == wanted[2:]


def test_steps_run_natively_and_inference_drops_nothing(tmp_path: Path):
    found = trainer()
    steps = found.model.program.steps
    kinds = [step.spec.kind for step in steps if isinstance(step, KernelStep)]
    assert kinds.count("dropout") == 4
    assert "host" not in kinds
    losses(found, 2)
    x, graph = batch()[0], found.graph()
    (wanted,) = run_reference(graph, {"x": x}).values()
    model = sw.compile(graph, tune="model")
    assert "dropout" not in {node.op for node in model.plan.graph.nodes}
    np.testing.assert_allclose(model(x), wanted, rtol=1e-4, atol=1e-5)
    sw.save(graph, tmp_path / "net.onnx")
    again = sw.load(tmp_path / "net.onnx", training=True)
    assert [node.op for node in again.nodes].count("dropout") == 2
    (found_,) = run_reference(again, {"x": x}).values()
    np.testing.assert_allclose(found_, wanted, rtol=1e-5, atol=1e-6)


def test_dropout_trains_in_bfloat16():
    found, exact = trainer(dtype="bfloat16"), trainer()
    for seed in range(4):
        assert found.step(*batch(seed)) == pytest.approx(exact.step(*batch(seed)), rel=5e-2)


def test_what_does_not_fit():
    b = sw.GraphBuilder("net")
    x = b.input("x", (2, 3))
    for share in (-0.1, 1.0, float("nan")):
        with pytest.raises(GraphError, match="a share from 0 to below 1"):
            b.dropout(x, share)
    for seed in (-1, 2**48, 0.5, True):
        with pytest.raises(InputError, match="Trainer, seed: expected an integer"):
            trainer(seed=seed)
    with pytest.raises(UnsupportedError, match="one that draws"):
        sw.save(drawing((2, 3), 0.5), "none.onnx")
