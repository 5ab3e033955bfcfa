"""What a start of a stored model checks: all at first, and later what changed since."""

from __future__ import annotations

import dataclasses
import logging
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import stridewise as sw
from stridewise.api import stored
from stridewise.program import KernelStep
from stridewise.runtime.binding.kernels import Kernels
from stridewise.runtime.binding.program import check_layouts
from stridewise.runtime.execution.executor import CompiledModel
from stridewise.runtime.execution.stored import with_names
from stridewise.runtime.store import checks
from stridewise.runtime.store import stored_models as store_module
from stridewise.runtime.store.checks import Checks
from stridewise.runtime.tuning.cost_cache import CostCache
from stridewise.runtime.tuning.cost_file import cache_path, cache_state
from stridewise.targets.machine import Machine

from .graphs import Net

SHAPE = (1, 17, 6, 6)
MACHINE = Machine("a processor", "AVX2", 1, "a library")
UNNEEDED = {
    "difflib", "email", "importlib.metadata", "json", "numpy.random", "onnx", "secrets", "sqlite3",
    "statistics", "stridewise.api.modules", "stridewise.compiler", "stridewise.frontends",
    "stridewise.ops.registry", "stridewise.passes", "stridewise.planning",
    "stridewise.quantization", "stridewise.report", "stridewise.strategy",
    "stridewise.targets.onednn.target", "stridewise.tensor.moves", "stridewise.training",
}  # fmt: skip
START = """
    import sys
    import numpy as np
    import stridewise as sw
    model = sw.compile(sys.argv[1], cache_dir=sys.argv[2], threads=1, tune="measure")
    assert model.source.from_disk
    np.save(sys.argv[3], model(np.ones(SHAPE, np.float32)))
    print(*sys.modules)
"""


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "small.onnx"
    b = Net(*SHAPE)
    sw.save(b.build([b.conv(b.op("relu", [b.conv(b.x, 8, 3)]), 5, 1)]), path)
    time.sleep(2.1)  # files that changed just now are not kept
    return path


def checked_file(folder: Path) -> Path:
    (path,) = (folder / "models-v1").glob("*.checked")
    return path


@pytest.fixture
def runs(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[int, int]]:
    """Store a model; return what starts it, and counts its runs and its readings of costs.

    What the process has checked that stored it is forgotten.
    """
    sw.compile(source, cache_dir=tmp_path, threads=1)
    store_module.settle()
    checked_file(tmp_path).unlink()
    count = {"run": 0, "costs": 0}
    fingerprint, is_decided = stored.fingerprint, stored.StoreEntry._checked_costs

    def counted(name: str, function: Callable[..., object]) -> Callable[..., object]:
        def call(*args: object) -> object:
            count[name] += 1
            return function(*args)

        return call

    monkeypatch.setattr(stored, "fingerprint", counted("run", fingerprint))
    monkeypatch.setattr(stored.StoreEntry, "_checked_costs", counted("costs", is_decided))

    def start(**options: bool) -> tuple[int, int]:
        count.update(run=0, costs=0)
        model = sw.compile(source, cache_dir=tmp_path, threads=1, **options)
        assert model.source.from_disk
        return count["run"], count["costs"]

    return start


def test_the_first_start_checks_and_later_ones_rely_on_it(
    runs: Callable[..., tuple[int, int]],
) -> None:
    assert [runs(), runs(), runs()] == [(1, 1), (0, 0), (0, 0)]


def test_the_process_that_stores_a_model_makes_the_first_check(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded: list[bool] = []
    load_stored = stored.load_stored

    def counted(*args: Any, anew: bool) -> CompiledModel:
        loaded.append(anew)
        return load_stored(*args, anew=anew)

    monkeypatch.setattr(stored, "load_stored", counted)
    sw.compile(source, cache_dir=tmp_path, threads=1)
    store_module.settle()
    (file,) = (tmp_path / "models-v1").glob("*.model")
    found = store_module.ModelStore(file.parent, 1 << 30).find(file.stem)
    assert found is not None
    assert found.is_sound
    costs = cache_state(cache_path(tmp_path))
    written = Checks.read(checked_file(tmp_path), found.stored.digest)
    assert written == Checks(found.stored.digest, costs, checks.system_state())
    assert loaded == [True]
    monkeypatch.setattr(stored, "fingerprint", pytest.fail)
    assert sw.compile(source, cache_dir=tmp_path, threads=1).source.from_disk
    assert loaded == [True, False]


@pytest.mark.parametrize("reason", ["verify", "time"])
def test_the_first_check_is_left_to_the_next_start(
    reason: str, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if reason == "time":
        monkeypatch.setattr(stored, "_CHECKED_S", 0.0)
    sw.compile(source, cache_dir=tmp_path, threads=1, verify=reason != "verify")
    store_module.settle()
    assert list((tmp_path / "models-v1").glob("*.model"))
    assert not list((tmp_path / "models-v1").glob("*.checked"))


def test_a_stored_model_that_computes_something_else_is_dropped_at_once(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    keep = store_module.ModelStore.keep

    def wrong(store: Any, key: str, model: store_module.StoredModel, weights: Any) -> bool:
        (output,) = model.outputs
        means = (output.means[0] + 1e-3 * output.magnitude, *output.means[1:])
        found = dataclasses.replace(model, outputs=(dataclasses.replace(output, means=means),))
        return keep(store, key, found, weights)

    monkeypatch.setattr(store_module.ModelStore, "keep", wrong)
    with caplog.at_level(logging.WARNING, "stridewise"):
        sw.compile(source, cache_dir=tmp_path, threads=1)
        store_module.settle()
    assert "differs by" in caplog.text
    assert not list((tmp_path / "models-v1").iterdir())


def test_a_start_without_a_run_vouches_for_none(runs: Callable[..., tuple[int, int]]) -> None:
    assert [runs(verify=False), runs(), runs(verify=False)] == [(0, 1), (1, 0), (0, 0)]


def test_changed_costs_are_read(runs: Callable[..., tuple[int, int]], tmp_path: Path) -> None:
    runs()
    CostCache(MACHINE, tmp_path).store({"of another machine": [("a", 1.0)]})
    assert [runs(), runs()] == [(0, 1), (0, 0)]


def test_another_system_runs_again(
    runs: Callable[..., tuple[int, int]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    runs()
    monkeypatch.setenv("ONEDNN_NEW_SETTING", "1")
    assert [runs(), runs()] == [(1, 0), (0, 0)]
    monkeypatch.setattr(checks, "_BOOT", tmp_path / "none")
    assert [runs(), runs()] == [(1, 0), (1, 0)]


@pytest.mark.parametrize("content", [b"", b"\xff", b"a\nb", b"another model\n\n", None])
def test_other_files_vouch_for_nothing(
    content: bytes | None, runs: Callable[..., tuple[int, int]], tmp_path: Path
) -> None:
    runs()
    path = checked_file(tmp_path)
    path.unlink()
    if content is None:
        path.mkdir()  # nor can one be written
    else:
        path.write_bytes(content)
    assert runs() == (1, 1)
    assert runs() == ((1, 1) if content is None else (0, 0))


def test_a_model_that_goes_takes_its_checks_along(
    runs: Callable[..., tuple[int, int]], tmp_path: Path
) -> None:
    runs()
    folder = tmp_path / "models-v1"
    (path,) = folder.glob("*.model")
    store_module.ModelStore(folder, 1 << 30).forget(path.stem)
    assert not list(folder.iterdir())


@given(st.lists(st.text("abc123 ", max_size=9), min_size=3, max_size=3))
def test_checks_are_read_as_they_were_written(
    tmp_path_factory: pytest.TempPathFactory, words: list[str]
) -> None:
    path = tmp_path_factory.mktemp("checks") / "a.checked"
    Checks(*words).write(path)
    assert Checks.read(path, words[0]) == Checks(*words)
    assert Checks.read(path, f"{words[0]}x") == Checks(f"{words[0]}x")


def test_every_change_of_the_cost_cache_shows(tmp_path: Path) -> None:
    path, cache = cache_path(tmp_path), CostCache(MACHINE, tmp_path)
    found = [cache_state(path)]
    for number in range(20):
        cache.store({"a": [("b", float(number % 2))]})
        found.append(cache_state(path))
        cache.load()
        assert cache_state(path) == found[-1]
    assert found[0] == ""
    assert len(set(found)) == len(found)


def test_a_start_imports_only_what_it_needs(source: Path, tmp_path: Path) -> None:
    for _ in range(2):
        model = sw.compile(source, cache_dir=tmp_path, threads=1, tune="measure")
        store_module.settle()
    code = textwrap.dedent(START).replace("SHAPE", repr(SHAPE))
    command = [sys.executable, "-c", code, str(source), str(tmp_path), str(tmp_path / "y.npy")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert sorted(UNNEEDED & set(done.stdout.split())) == []
    assert np.array_equal(np.load(tmp_path / "y.npy"), model(np.ones(SHAPE, np.float32)))


def test_programs_are_stored_with_the_names_of_all_kernels() -> None:
    b = Net(1, 16, 9, 9)
    y = b.conv(b.op("relu", [b.conv(b.x, 16, 3)]), 24, 1)
    program = sw.compile(b.build([y]), tune="model", threads=1).program
    named = with_names(program, 1)
    check_layouts(named, Kernels(1, anew=True))
    before = [step for step in program.steps if isinstance(step, KernelStep)]
    after = [step for step in named.steps if isinstance(step, KernelStep)]
    assert not all(step.implementation for step in before)
    for old, new in zip(before, after, strict=True):
        assert new.implementation == Kernels(1).get(old.spec, old.implementation).impl
    assert all(item.implementation for item in named.constants if item.spec is not None)
