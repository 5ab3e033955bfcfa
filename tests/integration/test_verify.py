"""Verification as users call it: of files, models from disk, many shapes, on the command line."""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import stridewise as sw
from stridewise.cli.main import cli
from stridewise.frontends.onnx.fallback import runtime as fallback
from stridewise.runtime.execution.executor import CompiledModel

from .mixed_models import detector, with_loop

SHAPE = (2, 17, 9, 9)


def network() -> sw.Graph:
    b = sw.GraphBuilder("small")
    x = b.input("x", SHAPE)
    return b.build([b.conv2d(b.relu(b.conv2d(x, 32, 3, padding=1)), 5, 1)])


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "small.onnx"
    sw.save(network(), path)
    past = path.stat().st_mtime - 3600
    os.utime(path, (past, past))
    return path


def of(path: Path, **options: Any) -> sw.Verification:
    return sw.verify(path, tune="model", threads=2, **options)


def compiled(source: Any, **options: Any) -> Any:
    return sw.compile(source, tune="model", threads=2, **options)


# --- sources --------------------------------------------------------------------------------------


def test_every_kind_of_source(source: Path) -> None:
    import onnx

    graph, proto = network(), onnx.load(source)
    found = [
        sw.verify(item, tune="model", threads=1, seed=2)
        for item in (source, str(source), source.read_bytes(), proto, sw.load(source), graph)
    ]
    assert all(item.ok for item in found)
    assert len({len(item.rows) for item in found}) == 1
    assert all(not item.from_disk for item in found)
    assert {item.threads for item in found} == {1}


def test_weights_that_were_dropped_are_read_again(source: Path) -> None:
    for options in ({}, {"input_formats": {"x": ["NHWC"]}}, {"shapes": {"x": SHAPE}}):
        model = compiled(source, **options)
        assert model.memory.originals < 1000
        assert sw.verify(model).ok
        assert model.memory.originals < 1000


def test_weights_that_no_file_has() -> None:
    graph = network()
    assert sw.verify(compiled(graph, keep_originals=True)).ok
    with pytest.raises(sw.InputError) as raised:
        sw.verify(compiled(graph))
    assert str(raised.value) == (
        "model 'small': expected its weights, to compute what it should give, found none, as "
        "packed ones have taken their place, and no file to read them from; compile with "
        "keep_originals=True, or verify the model file or graph instead"
    )


def test_a_file_that_has_changed(source: Path, tmp_path: Path) -> None:
    path = tmp_path / "own.onnx"
    shutil.copy(source, path)
    model = compiled(path)
    later = path.stat().st_mtime + 3600
    os.utime(path, (later, later))
    with pytest.raises(sw.PlanError) as raised:
        sw.verify(model)
    assert str(raised.value) == (
        "model 'small': expected own.onnx as it was when the model was compiled, found a file that "
        "has changed since; compile the model again"
    )
    path.unlink()
    with pytest.raises(sw.ModelError, match=r"own\.onnx"):
        sw.verify(model)


def test_a_model_from_disk(source: Path, tmp_path: Path) -> None:
    time.sleep(2.1)  # a file that has only just changed is not trusted to stay as it is
    first = sw.verify(source, threads=1, cache_dir=tmp_path)
    found = sw.verify(source, threads=1, cache_dir=tmp_path)
    given = sw.verify(sw.compile(source, threads=1, cache_dir=tmp_path))
    anew = sw.verify(source, threads=1, cache_dir=tmp_path, store_limit=0)
    assert [item.from_disk for item in (first, found, given, anew)] == [False, True, True, False]
    assert found.ok
    assert found == given
    assert "'small': ok; compiled by an earlier process, 1 thread, " in str(found)
    done = command(source, "--threads", 1, "--cache-dir", tmp_path)
    assert done.output == str(found)


def test_models_of_many_shapes(source: Path) -> None:
    shapes = {"x": ("1|2|4", 17, "H", "W")}
    with pytest.raises(sw.InputError, match="expected shapes of x, found none of x"):
        of(source, shapes=shapes)
    x = np.random.default_rng(0).standard_normal((3, 17, 7, 6)).astype(np.float32)
    assert of(source, shapes=shapes, inputs={"x": x}).ok
    model = compiled(source, shapes=shapes)
    assert isinstance(model, sw.DynamicModel)
    assert sw.verify(model, inputs={"x": x}).ok
    assert sw.verify(model, shapes={"x": (4, 17, 5, 5)}).ok
    assert sw.verify(model, shapes={"x": SHAPE}, against="onnxruntime").ok
    assert {info.shapes["x"] for info in model.programs.ready} == {
        (4, 17, 7, 6), (4, 17, 5, 5), SHAPE,
    }  # fmt: skip


def test_what_another_runtime_computes() -> None:
    inner, feeds = with_loop()
    found = sw.verify(inner, tune="model", inputs=feeds)
    assert found.ok
    assert not found.notes
    outer, feeds = detector()
    found = sw.verify(outer, tune="model", inputs=feeds)
    assert found.ok
    assert found.notes == ("what ONNX Runtime computes behind the program was not compared",)
    assert str(found).splitlines()[-1] == found.notes[0]


# --- arguments ------------------------------------------------------------------------------------


def test_arguments_that_do_not_fit(source: Path) -> None:
    model = compiled(source)
    x = np.zeros((1, 2), np.float32)
    wrong: list[tuple[str, dict[str, Any]]] = [
        (
            "against: expected 'reference' or 'onnxruntime' or 'pytorch', found 'torch'",
            {"against": "torch"},
        ),
        (
            "verify: expected no options for a model that is compiled, found threads; "
            "give them to stridewise.compile",
            {"threads": 1},
        ),
        ("model 'small': expected inputs among x, found y", {"inputs": {"y": x}}),
        (
            "input 'x': expected shape (2, 17, 9, 9), found (1, 2); give an array with 4 axes",
            {"inputs": {"x": x}},
        ),
    ]
    for message, options in wrong:
        with pytest.raises(sw.InputError) as raised:
            sw.verify(model, **options)
        assert str(raised.value) == message
    with pytest.raises(TypeError, match="unexpected keyword argument 'thread'"):
        sw.verify(source, thread=1)  # type: ignore[call-arg]
    with pytest.raises(sw.InputError) as raised:
        sw.verify(sw.compile(source, target="ascend"))
    assert str(raised.value) == (
        "verify: expected a target whose kernels run here, found ascend, which is simulated"
    )


# --- against ONNX Runtime -------------------------------------------------------------------------


def test_against_onnx_runtime(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for item in (source, source.read_bytes(), network(), compiled(source)):
        options = {} if isinstance(item, CompiledModel) else {"tune": "model"}
        found = sw.verify(item, against="onnxruntime", **options)
        assert found.ok
        assert found.against == "onnxruntime"
    with pytest.raises(sw.InputError) as raised:
        sw.verify(compiled(network(), keep_originals=True), against="onnxruntime")
    assert str(raised.value) == (
        "model 'small': expected a model that was compiled from a file, to run it in onnxruntime, "
        "found one that was in memory; verify what it is compiled from, with the same options"
    )
    monkeypatch.setattr(fallback, "is_installed", lambda: False)
    with pytest.raises(sw.DependencyError) as absent:
        of(source, against="onnxruntime")
    assert str(absent.value) == (
        "the model in ONNX Runtime: expected ONNX Runtime, to compare with, found no onnxruntime; "
        "pip install 'stridewise[fallback]'"
    )


def test_an_import_that_is_wrong_shows_in_the_outputs(
    source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = fallback.run_model
    monkeypatch.setattr(
        fallback,
        "run_model",
        lambda *given: {k: 1.001 * v for k, v in run(*given).items()},
    )
    found = of(source, against="onnxruntime")
    assert found.first is not None
    assert found.first.node == "run"
    with pytest.raises(sw.VerificationError, match=r"all layers agree with the graph that was imp"):
        found.check()


# --- the command line -----------------------------------------------------------------------------


def command(*arguments: object) -> Any:
    return CliRunner().invoke(cli, ["verify", *map(str, arguments)])


def test_the_command_line(source: Path, tmp_path: Path) -> None:
    done = command(source, "--tune", "model", "--threads", 1, "--accuracy", "exact")
    assert done.exit_code == 0
    assert done.output.startswith("'small': ok; compiled by this process, 1 thread, ")
    np.save(tmp_path / "x.npy", np.ones(SHAPE, np.float32))
    for extra in (("--input", tmp_path / "x.npy"), ("--against", "onnxruntime"), ("--seed", 7)):
        done = command(source, "--tune", "model", "--json", *extra)
        assert done.exit_code == 0
        document = json.loads(done.output)
        assert document["ok"]
        assert document["first"] is None
        assert len(document["rows"]) > 2
    assert document["seed"] == 7


def test_the_command_line_ends_with_an_error(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = CompiledModel.run_program
    monkeypatch.setattr(
        CompiledModel, "run_program", lambda self, inputs: [2 * y for y in run(self, inputs)]
    )
    done = command(source, "--tune", "model")
    assert isinstance(done.exception, sw.VerificationError)
    assert done.output.startswith("'small': differs from node 'run' on; ")
    assert re.fullmatch(
        r"model 'small', node 'run', tensor '.*': expected a relative error of at most \S+, "
        r"found 1.*, by all steps in NCHW; report it with the model; .*",
        str(done.exception),
    )
