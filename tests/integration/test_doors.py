"""Whichever way a model comes in, it is planned, tuned, split and stored alike, or refused."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import stridewise as sw
from stridewise.graph import Graph
from stridewise.planner import derive
from stridewise.runtime.store.stored_models import settle

SHAPE = (4, 8, 9, 9)
OPTIONS: dict[str, Any] = {"threads": 2}


def network() -> Graph:
    b = sw.GraphBuilder("doors")
    x = b.input("x", SHAPE)
    y = b.relu(b.conv2d(x, 16, 3, padding=1))
    return b.build([b.relu(b.conv2d(y, 8, 1))])


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("model") / "doors.onnx"
    sw.save(network(), found)
    time.sleep(2.1)  # files that changed just now are not stored
    return found


def test_a_file_reaches_the_flow_by_the_calls_that_the_architecture_page_names(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[str] = []

    def derived(*args: Any) -> Any:
        modules = (frame.frame.f_globals["__name__"] for frame in inspect.stack()[1:])
        found.extend(name for name in modules if name.startswith("stridewise."))
        return derive(*args)

    monkeypatch.setattr("stridewise.compiler.derive", derived)
    sw.compile(path, cache_dir=tmp_path, tune="model", **OPTIONS)
    api = ("batches", "dynamic", "plans", "compiling")
    assert found == ["stridewise.compiler", *(f"stridewise.api.{name}" for name in api)]


def stored(folder: Path) -> int:
    settle()
    return len(list((folder / "models-v1").glob("*.model")))


def sources(path: Path) -> Mapping[str, Any]:
    return {
        "path": path,
        "text": str(path),
        "bytes": path.read_bytes(),
        "proto": onnx.load(path),
        "graph": sw.load(path),
    }


@pytest.mark.parametrize("door", ["path", "text", "bytes", "proto", "graph"])
@pytest.mark.parametrize(
    "wanted",
    [{}, {"input_formats": {"x": ["NHWC", "NCHW"]}}, {"origins": {"x": "NCHW"}}, {"tune": "model"}],
    ids=["plain", "formats", "origins", "estimated"],
)
def test_plan_is_the_plan_of_compile(
    door: str, wanted: dict[str, Any], path: Path, tmp_path: Path
) -> None:
    source = sources(path)[door]
    compiled = sw.compile(source, cache_dir=tmp_path, **OPTIONS, **wanted)
    planned = sw.plan(source, cache_dir=tmp_path, **OPTIONS, **wanted)
    assert isinstance(compiled, sw.CompiledModel)
    assert planned.cost_ns == compiled.plan.cost_ns
    assert planned.split == compiled.plan.split
    again = sw.compile(source, cache_dir=tmp_path, **OPTIONS, **wanted).plan
    for plan in (planned, again):
        assert [d.chosen.option for d in plan.decisions] == [
            d.chosen.option for d in compiled.plan.decisions
        ]
        assert plan.input_formats == compiled.plan.input_formats


@pytest.mark.parametrize("door", ["path", "text", "bytes", "proto"])
def test_plan_is_the_plan_of_compile_for_open_shapes(door: str, path: Path, tmp_path: Path) -> None:
    source = sources(path)[door]
    sw.compile(source, cache_dir=tmp_path, **OPTIONS)  # may find that parts are faster
    shapes = {"x": ("4|8", *SHAPE[1:])}
    compiled = sw.compile(source, cache_dir=tmp_path, shapes=shapes, **OPTIONS)
    planned = sw.plan(source, cache_dir=tmp_path, shapes=shapes, **OPTIONS)
    assert isinstance(compiled, sw.DynamicModel)
    assert planned.cost_ns == compiled.plan.cost_ns
    assert planned.split == compiled.plan.split
    with pytest.raises(sw.InputError, match="none for a graph, whose shapes are fixed"):
        sw.compile(sw.load(path), cache_dir=tmp_path, shapes=shapes)


@pytest.mark.parametrize("door", ["path", "text", "bytes", "proto", "graph"])
@pytest.mark.parametrize("decided", ["file", "plan"])
def test_a_plan_is_the_plan_of_compile(door: str, decided: str, path: Path, tmp_path: Path) -> None:
    source, file = sources(path)[door], tmp_path / "doors.plan.json"
    first = sw.plan(sw.load(path), cache_dir=tmp_path, **OPTIONS)
    first.save(file)
    options: dict[str, Any] = {"plan": file if decided == "file" else first, **OPTIONS}
    compiled = sw.compile(source, cache_dir=tmp_path, **options)
    assert isinstance(compiled, sw.CompiledModel)
    assert sw.plan(source, **options).cost_ns == compiled.plan.cost_ns == first.cost_ns
    assert stored(tmp_path) == 0


@pytest.mark.parametrize(
    "wanted",
    [{}, {"input_formats": {"x": ["NHWC"]}}, {"output_formats": {"relu.1": "NHWC"}},
     {"origins": {"x": "NCHW"}}],
    ids=["plain", "input formats", "output formats", "origins"],
)  # fmt: skip
def test_files_are_stored_whatever_is_wanted_of_them(
    wanted: dict[str, Any], path: Path, tmp_path: Path
) -> None:
    x = np.random.default_rng(0).standard_normal(SHAPE, np.float32)
    given = np.ascontiguousarray(x.transpose(0, 2, 3, 1)) if "input_formats" in wanted else x
    models = [sw.compile(path, cache_dir=tmp_path, **OPTIONS, **wanted) for _ in range(2)]
    assert stored(tmp_path) == 1
    assert [model.source.from_disk for model in models] == [False, True]
    first, second = (model(given) for model in models)
    assert np.array_equal(first, second)
    other = sw.compile(path, cache_dir=tmp_path, threads=1)  # is another model
    assert not other.source.from_disk
    assert stored(tmp_path) == 2
    assert models[0].plan.to_json() == models[1].plan.to_json()


@pytest.mark.parametrize("side", ["input_formats", "output_formats"])
def test_blocks_that_the_library_has_no_tag_for_are_refused(side: str) -> None:
    graph = network()
    (name,) = graph.inputs if side == "input_formats" else graph.outputs
    with pytest.raises(sw.FormatError, match="blocked ones that oneDNN has a tag for"):
        sw.compile(graph, tune="model", **{side: {name: "hnCw8c"}})


@pytest.mark.usefixtures("small_kernels")
def test_the_command_line_runs_what_compile_stores(path: Path, tmp_path: Path) -> None:
    def said(*arguments: str) -> Any:
        command = [sys.executable, "-m", "stridewise", *arguments, "--cache-dir", str(tmp_path)]
        done = subprocess.run(
            [*command, "--threads", "2"], capture_output=True, text=True, check=True
        )
        return done.stdout

    ran = json.loads(said("run", str(path), "--random", "--json"))
    assert stored(tmp_path) == 1
    model = sw.compile(path, cache_dir=tmp_path, **OPTIONS)
    assert model.source.from_disk
    assert json.loads(said("run", str(path), "--random", "--json")) == ran
    said("report", str(path), "-o", str(tmp_path / "report.html"), "--runs", "1")
    assert json.loads(said("bench", str(path), "--vs", "", "--runs", "1", "--json"))["timings"]
    assert stored(tmp_path) == 1
    planned = json.loads(said("plan", str(path), "--json"))
    assert planned == json.loads(model.plan.to_json())


def test_batches_of_the_command_line_run_in_parts_as_those_of_compile_do(
    path: Path, tmp_path: Path
) -> None:
    model = sw.compile(path, cache_dir=tmp_path, shapes={"x": SHAPE}, **OPTIONS)
    assert isinstance(model, sw.CompiledModel)
    command = [sys.executable, "-m", "stridewise", "bench", str(path), "--batch", "4", "--vs", ""]
    command += ["--runs", "1", "--json", "--cache-dir", str(tmp_path), "--threads", "2"]
    subprocess.run(command, capture_output=True, check=True)
    rebatched = sw.compile(path.read_bytes(), cache_dir=tmp_path, shapes={"x": SHAPE}, **OPTIONS)
    assert rebatched.plan.split == model.plan.split
