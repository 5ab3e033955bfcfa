"""Models compiled from plans that were made before: what runs, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stridewise as sw
from stridewise import strategy
from stridewise.graph import Graph
from stridewise.runtime.execution.loading import load, lower_plan
from stridewise.runtime.machine.machine import this_machine
from stridewise.runtime.simulation.reference import run_reference
from stridewise.runtime.tuning import oracle, tuning
from stridewise.runtime.tuning.plan_race import Outcome

from .graphs import KINDS, Net, error, inputs_of

THREADS = 1


def network(seed: int = 0) -> Graph:
    """Return convolutions with a residual sum, a concat, a pooling and a classifier."""
    b = Net(1, 3, 12, 12)
    b.rng = np.random.default_rng(seed)
    y = b.op("relu", [b.conv(b.x, 32, 3)], output="stem")
    z = b.op("add", [b.conv(y, 32, 3), y], output="sum")
    both = b.op("concat", [b.conv(z, 16), b.conv(z, 16)], {"axis": 1}, name="cat")
    small = b.op("max_pool", [both], {"kernel": (2, 2), "strides": (2, 2)})
    flat = b.op("reshape", [b.op("sigmoid", [small])], {"shape": (1, 32 * 36)})
    return b.build([b.op("matmul", [flat, b.data(32 * 36, 10)], output="y")])


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> sw.Plan:
    folder = tmp_path_factory.mktemp("costs")
    return sw.plan(network(), threads=THREADS, cache_dir=folder)


@pytest.fixture
def file(planned: sw.Plan, tmp_path: Path) -> Path:
    path = tmp_path / "plan.json"
    planned.save(path)
    return path


@pytest.fixture
def nothing_is_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError("a plan file leaves nothing to be measured or raced")

    monkeypatch.setattr(oracle.MeasuringOracle, "costs", refuse)
    monkeypatch.setattr(tuning, "run_in_turn", refuse)
    monkeypatch.setattr(strategy, "tuned", refuse)
    monkeypatch.setattr(strategy, "remembered", refuse)


def answer(model: sw.CompiledModel, seed: int = 0) -> float:
    """Return how far a model is from the reference executor."""
    graph = network(seed)
    inputs = inputs_of(graph)
    return error(model.run(inputs)["y"], run_reference(graph, inputs)["y"])


@pytest.mark.usefixtures("nothing_is_timed")
def test_a_model_from_a_plan_file_is_the_same_model(planned: sw.Plan, file: Path) -> None:
    model = sw.compile(network(), plan=file, threads=THREADS)
    assert model.plan.decisions == planned.decisions
    assert model.plan.reorders == planned.reorders
    assert model.plan.cost_ns == planned.cost_ns
    assert model.plan.notes == ()
    assert model.program == load(lower_plan(planned)).program
    assert answer(model) < 1e-5


@pytest.mark.usefixtures("nothing_is_timed")
def test_plans_are_loaded_by_either_function(planned: sw.Plan, file: Path) -> None:
    by_name = sw.load_plan(str(file), network(), threads=THREADS)
    by_plan = sw.plan(network(), plan=file, threads=THREADS)
    by_object = sw.plan(network(), plan=planned, threads=THREADS)
    texts = {plan.to_json() for plan in (planned, by_name, by_plan, by_object)}
    assert len(texts) == 1
    assert str(by_name.why("cat")) == str(planned.why("cat"))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.usefixtures("nothing_is_timed")
def test_a_plan_under_a_wish_runs_and_is_right(planned: sw.Plan, kind: str, tmp_path: Path) -> None:
    wished = planned.what_if({"stem": kind, "cat": kind})
    wished.save(tmp_path / "wished.json")
    for plan in (wished, tmp_path / "wished.json"):
        model = sw.compile(network(), plan=plan, threads=THREADS)
        sw.assert_plan(model, formats={"stem": kind, "cat": kind})
        assert answer(model) < 1e-5


def test_other_weights_may_use_the_plan(planned: sw.Plan, file: Path) -> None:
    for decided in (planned, file):
        model = sw.compile(network(9), plan=decided, threads=THREADS)
        assert answer(model, 9) < 1e-5
        assert answer(model, 0) > 1e-2


def test_another_number_of_threads_is_a_warning(file: Path) -> None:
    wanted = "made for another machine .threads: 1, here 2.; costs"
    with pytest.warns(sw.PlanWarning, match=wanted) as compiling:
        model = sw.compile(network(), plan=file, threads=2)
    assert compiling[0].filename == __file__
    assert model.plan.machine.threads == 2
    assert "note: the plan was made for another machine (threads: 1, here 2)" in str(model.plan)
    assert answer(model) < 1e-5
    with pytest.warns(sw.PlanWarning) as caught:
        sw.load_plan(file, network(), threads=2)
    assert caught[0].filename == __file__


def changed(file: Path, **machine: Any) -> None:
    document = json.loads(file.read_text(encoding="utf-8"))
    document["machine"].update(machine)
    file.write_text(json.dumps(document), encoding="utf-8")


@pytest.mark.parametrize(
    ("key", "value"), [("cpu", "Zilog Z80"), ("library", "oneDNN 3.0.0"), ("threads", 77)]
)
def test_another_machine_is_a_warning(file: Path, key: str, value: Any) -> None:
    changed(file, **{key: value})
    with pytest.warns(sw.PlanWarning, match=f"{'CPU' if key == 'cpu' else key}: {value}, here"):
        plan = sw.load_plan(file, network(), threads=THREADS)
    assert plan.machine == this_machine(THREADS)


def test_a_plan_for_another_instruction_set_keeps_its_blocks(file: Path) -> None:
    """Its formats are those of the machine that it was made for; other blocks are another graph."""
    wide = this_machine(THREADS).has_avx512
    document = json.loads(file.read_text(encoding="utf-8"))
    blocked = "nChw16c" if wide else "nChw8c"
    changed(file, isa="AVX2" if wide else "AVX512_CORE")
    if blocked not in {fmt for node in document["nodes"] for fmt in node["output_formats"]}:
        with pytest.warns(sw.PlanWarning, match="isa: "):
            plan = sw.load_plan(file, network(), threads=THREADS)
        assert [kind.block for kind in plan.target.kinds] == [0, 0, 8 if wide else 16]
    else:
        with pytest.raises(sw.PlanError, match="does not exist here"):
            sw.load_plan(file, network(), threads=THREADS)


def rename(file: Path, names: Sequence[str], source: str = "measured") -> None:
    document = json.loads(file.read_text(encoding="utf-8"))
    for node in document["nodes"]:
        if node["op"] == "conv":
            node["implementations"] = list(names)
            node["cost_sources"] = [source] * len(names)
            for kernel in node["kernels"]:
                document["kernels"][kernel] |= {"implementation": names[0], "source": source}
    file.write_text(json.dumps(document), encoding="utf-8")


def test_an_implementation_that_the_library_lacks_is_refused(file: Path) -> None:
    rename(file, ["jit:avx1024"])
    with pytest.raises(sw.PlanError) as caught:
        sw.compile(network(), plan=file, threads=THREADS)
    assert str(caught.value).startswith(
        f"plan file {str(file)!r}: expected kernels that this library has, found kernel conv"
    )
    assert "jit:avx1024" in str(caught.value)
    assert str(caught.value).endswith(
        "plan again on this machine: stridewise plan MODEL --save FILE"
    )


@pytest.mark.usefixtures("nothing_is_timed")
def test_the_library_chooses_where_it_lacks_a_predicted_implementation(file: Path) -> None:
    rename(file, ["jit:avx1024"], "calibrated")
    model = sw.compile(network(), plan=file, threads=THREADS)
    assert answer(model) < 1e-5


def test_another_target_is_refused(file: Path) -> None:
    document = json.loads(file.read_text(encoding="utf-8"))
    document["target"] = "abacus"
    file.write_text(json.dumps(document), encoding="utf-8")
    with pytest.raises(
        sw.PlanError, match=r"a plan for target onednn-cpu, .*, found abacus; give target= the"
    ):
        sw.compile(network(), plan=file, threads=THREADS)


def test_a_node_too_many_is_refused(file: Path) -> None:
    document = json.loads(file.read_text(encoding="utf-8"))
    nodes = document["nodes"]
    nodes.append(next(node for node in nodes if node["cost_ns"] == 0))
    file.write_text(json.dumps(document), encoding="utf-8")
    with pytest.raises(sw.PlanError, match="field 'nodes': expected 9 nodes, found 10"):
        sw.compile(network(), plan=file, threads=THREADS)


def test_another_model_is_refused(file: Path) -> None:
    b = Net(1, 3, 12, 12)
    other = b.build([b.op("relu", [b.x], name="alone")])
    with pytest.raises(sw.PlanError, match=r"node 'alone': expected relu.x: f32.1,3,12,12.. -> "):
        sw.compile(other, plan=file, threads=THREADS)


def test_a_winner_of_the_clock_is_saved_as_such(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def times(models: Any) -> Outcome:
        return Outcome(
            {name: 10.0 if name == "all blocked" else 100.0 for name in models},
            {},
            is_disturbed=False,
        )

    monkeypatch.setattr(tuning, "_NEAR", 100.0)
    monkeypatch.setattr(tuning, "run_in_turn", times)
    model = sw.compile(network(), threads=THREADS, cache_dir=tmp_path)
    path = tmp_path / "plan.json"
    model.plan.save(path)
    found = sw.load_plan(path, network(), threads=THREADS)
    assert found.name == model.plan.name
    assert found.compare() == model.plan.compare()
    assert found.decisions == model.plan.decisions
