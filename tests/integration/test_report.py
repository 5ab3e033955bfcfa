"""The report of a compiled model, from the command line and from Python; profiles as traces."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stridewise as sw
from stridewise.cli import main as entry
from stridewise.graph import Graph
from stridewise.program import CopyStep, reorder_label
from stridewise.report import collect

from .models import light_model_with_reorders, light_models, random_inputs, small_models

F32 = np.float32
SMALL = small_models()


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep all tests away from the user's cost cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Call the command line and return what it printed; it must end with status 0."""

    def call(*arguments: object) -> str:
        monkeypatch.setattr(sys, "argv", ["stridewise", *map(str, arguments)])
        with pytest.raises(SystemExit) as stop:
            entry.main()
        printed = capsys.readouterr()
        assert not stop.value.code, printed.err
        return printed.out

    return call


def copying() -> Graph:
    """A graph with copies of every kind: pieces of concats, operands of sums, outputs."""
    b = sw.GraphBuilder("copying")
    x = b.input("x", (1, 8, 4, 4))
    y = b.op("relu", [x])
    half = b.op("slice", [y], {"starts": (0, 0, 0, 0), "stops": (1, 4, 4, 4), "steps": (1,) * 4})
    both = b.op("concat", [half, b.op("exp", [y])], {"axis": 1})
    total = b.op("add", [b.op("conv", [y, b.constant(np.ones((8, 8, 1, 1), F32))]), y])
    return b.build([both, total, y, x, b.constant(np.ones((2,), F32))])


def data_of(page: str) -> dict[str, Any]:
    _, _, rest = page.partition('<script type="application/json" id="data">')
    return json.loads(rest.partition("</script>")[0])


# --- the data of models that ran ------------------------------------------------------------------


def check_measured(model: sw.CompiledModel, inputs: dict[str, Any]) -> None:
    profile = model.profile(inputs, runs=2)
    report = collect(model.plan, model.program, profile)
    assert report.unattributed_ns == 0
    found = sum(vertex.measured_ns or 0.0 for vertex in report.vertices)
    assert found == pytest.approx(profile.measured_ns)
    assert report.runs == 2
    decided = [move.nbytes for move in model.plan.moves if move.kind == "copy"]
    added = [step.nbytes for step in model.program.steps if isinstance(step, CopyStep)]
    assert [move.nbytes for move in report.moves if move.kind == "copy"] == decided + added
    assert report.arena is not None
    assert len(report.arena.steps) == len(model.program.steps)
    assert len(report.arena.blocks) == len(model.program.blocks)


@pytest.mark.parametrize("name", SMALL)
def test_all_measured_time_belongs_to_something_in_the_drawing(name: str):
    model = sw.compile(SMALL[name], tune="model", threads=2)
    check_measured(model, random_inputs(model.plan.graph))


def test_copies_belong_to_the_node_that_needs_them():
    model = sw.compile(copying(), tune="model", threads=1)
    labels = [step.node for step in model.program.steps if isinstance(step, CopyStep)]
    assert any("(piece" in label for label in labels)
    assert any("(to the caller)" in label for label in labels)
    assert any("(constant)" in label for label in labels)
    check_measured(model, random_inputs(model.plan.graph))


def test_the_blocks_of_densenet_fold():
    report = collect(sw.plan(light_models()["densenet121"], tune="model"))
    repeated = [group.count for group in report.groups if group.length >= 4]
    assert repeated == [6, 12, 24, 16]


def test_a_model_draws_itself_with_and_without_times():
    model = sw.compile(next(iter(SMALL.values())), tune="model")
    without, with_times = (
        data_of(model.report_html(inputs)) for inputs in (None, random_inputs(model.plan.graph))
    )
    assert without["measured_ns"] is None
    assert with_times["measured_ns"] > 0
    assert without["arena"]["nbytes"] == with_times["arena"]["nbytes"] == model.memory.arena
    assert "<iframe" in model._repr_html_()
    with pytest.raises(sw.InputError, match="expected inputs"):
        model.report_html({"nobody": np.zeros(1, F32)})


# --- traces ---------------------------------------------------------------------------------------


def check_trace(text: str, model: sw.CompiledModel) -> None:
    """Follow the Trace Event Format: complete events on one track, none before the last ended."""
    document = json.loads(text)
    events = [event for event in document["traceEvents"] if event["ph"] == "X"]
    named = {event["name"] for event in document["traceEvents"] if event["ph"] == "M"}
    assert named == {"process_name", "thread_name"}
    assert [event["name"] for event in events] == [step.node for step in model.program.steps]
    assert len({(event["pid"], event["tid"]) for event in events}) == 1
    end = 0.0
    for event in events:
        assert event["ts"] == pytest.approx(end)
        assert event["dur"] >= 0
        assert set(event["args"]) == {"kernel", "formats", "predicted_us"}
        end = event["ts"] + event["dur"]


def test_a_profile_becomes_a_trace():
    path = light_models()[light_model_with_reorders()]
    model = sw.compile(path, tune="model", threads=2)
    profile = model.profile(random_inputs(model.plan.graph), runs=2)
    text = profile.to_chrome_trace()
    check_trace(text, model)
    events = {event["name"]: event for event in json.loads(text)["traceEvents"][2:]}
    last = list(events.values())[-1]
    assert last["ts"] + last["dur"] == pytest.approx(profile.measured_ns / 1e3)
    reorder = model.plan.reorders[0]
    args = events[reorder_label(reorder)]["args"]
    assert args["formats"] == f"{reorder.source} -> {reorder.target}"
    assert args["predicted_us"] == pytest.approx(reorder.cost_ns / 1e3)
    convolutions = [event for event in events.values() if event["cat"] == "convolution"]
    assert all(" -> " in event["args"]["formats"] for event in convolutions)


# --- the command line -----------------------------------------------------------------------------


@pytest.fixture
def model_file(tmp_path: Path) -> Path:
    path = tmp_path / "some.onnx"
    path.write_bytes(next(iter(SMALL.values())).SerializeToString())
    return path


def test_the_command_writes_a_page(run: Callable[..., str], model_file: Path, tmp_path: Path):
    page = tmp_path / "page.html"
    printed = run("report", model_file, "-o", page, "--tune", "model", "--runs", 2)
    assert printed.strip().endswith("page.html")
    data = data_of(page.read_text("utf-8"))
    assert data["runs"] == 2
    assert data["arena"] is not None
    assert any(vertex["measured_ns"] for vertex in data["vertices"])


def test_the_command_names_the_page_after_the_model_and_need_not_run(
    run: Callable[..., str], model_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    run("report", model_file, "--tune", "model", "--no-run")
    data = data_of((tmp_path / "some.html").read_text("utf-8"))
    assert data["measured_ns"] is None
    assert data["arena"] is not None


def test_run_writes_a_trace(run: Callable[..., str], model_file: Path, tmp_path: Path):
    trace = tmp_path / "trace.json"
    printed = run("run", model_file, "--random", "--tune", "model", "--trace", trace)
    assert "trace in" in printed
    check_trace(trace.read_text("utf-8"), sw.compile(model_file, tune="model"))


@pytest.mark.parametrize(
    ("command", "option"), [(("report",), "--output"), (("run", "--random"), "--trace")]
)
def test_a_file_that_cannot_be_written_is_one_line(
    command: tuple[str, ...],
    option: str,
    model_file: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
):
    where = str(tmp_path / "nowhere" / "file")
    arguments = [*command, str(model_file), "--tune", "model", option, where]
    monkeypatch.setattr(sys, "argv", ["stridewise", *arguments])
    with pytest.raises(SystemExit) as stop:
        entry.main()
    assert stop.value.code == 1
    printed = capsys.readouterr().err
    assert printed.startswith(f"error: {option} {where!r}: expected a file that can be written")
    assert f"no directory {str(tmp_path / 'nowhere')!r}" in printed
    assert printed.count("\n") == 1
