"""The compiled-model store: a stored model computes what compiling gives, or is compiled again."""

from __future__ import annotations

import dataclasses
import logging
import os
import pickle
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import stridewise as sw
from stridewise.graph import Graph
from stridewise.runtime.binding.library import load_core
from stridewise.runtime.execution.executor import CompiledModel
from stridewise.runtime.execution.stored import with_names
from stridewise.runtime.store import stored_models as store_module
from stridewise.runtime.store.fingerprint import OutputSums
from stridewise.runtime.tuning import kernel_times
from stridewise.runtime.tuning.cost_file import cache_path

from .graphs import Net

SHAPE = (1, 17, 6, 6)
Change = Callable[[store_module.StoredModel], store_module.StoredModel]
INPUT = np.random.default_rng(0).standard_normal(SHAPE).astype(np.float32)


def network(outputs: int = 8) -> Graph:
    """Return a graph with packed weights, a concat in place and a reorder-free tail."""
    b = Net(*SHAPE)
    y = b.conv(b.x, outputs, 3)
    return b.build([b.conv(b.op("relu", [y]), 5, 1)])


def settled(path: Path) -> Path:
    """Let a file look as if it had not changed for long; its state cannot be turned back."""
    time.sleep(2.1)
    return path


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "small.onnx"
    sw.save(network(), path)
    return settled(path)


@pytest.fixture
def cache(tmp_path: Path, source: Path) -> Path:
    """Return a folder with the stored model of the source."""
    compiled(source, tmp_path)
    assert len(files(tmp_path)) == 1
    return tmp_path


def compiled(source: Path | str, folder: Path, **options: Any) -> CompiledModel:
    model = sw.compile(source, cache_dir=folder, threads=1, **options)
    assert isinstance(model, CompiledModel)
    return model


def files(folder: Path) -> list[Path]:
    store_module.settle()
    return sorted((folder / "models-v1").glob("*.model"))


def rewrite(path: Path, content: bytes) -> None:
    """Put another file in the place of one, which may be in use and is read only."""
    path.unlink()
    path.write_bytes(content)


def was_stored(*args: Any, **options: Any) -> bool:
    """Compile, and return whether a stored model was used."""
    model = compiled(*args, **options)
    assert model(INPUT).shape == (1, 5, 6, 6)
    return model.source.from_disk


def test_it_is_what_a_search_gives(
    tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled(source, tmp_path, store_limit=0)  # so that all costs of both come from the cache
    searched = compiled(source, tmp_path)
    assert len(files(tmp_path)) == 1
    with monkeypatch.context() as patch:
        patch.setattr("stridewise.api.plans.open_model", pytest.fail)  # nothing is even read
        found = compiled(source, tmp_path)
    assert np.array_equal(found(INPUT), searched(INPUT))
    # Biases stay with a plan that was searched; that of a stored model is not restored yet.
    assert found.memory == dataclasses.replace(searched.memory, originals=0)
    named = with_names(searched.program, 1)
    assert str(found.program) == str(named)
    assert found.program == named
    assert (found.input_names, found.output_names) == (searched.input_names, searched.output_names)
    assert found.plan.to_json() == searched.plan.to_json()
    assert repr(found) == repr(searched)
    assert found.plan is found.plan
    (name,) = found.input_names
    assert found.profile({name: INPUT}, 2).rows
    seen: list[str] = []
    found.trace({name: INPUT}, lambda written, _: seen.append(written.value))
    assert seen


def test_a_limit_of_zero_neither_uses_nor_keeps(tmp_path: Path, source: Path) -> None:
    compiled(source, tmp_path, store_limit=0)
    assert not files(tmp_path)
    assert not was_stored(source, tmp_path)
    assert was_stored(source, tmp_path)
    assert not was_stored(source, tmp_path, store_limit=0)


@pytest.mark.parametrize("limit", [-1, True])
def test_a_wrong_limit_is_refused(limit: int, source: Path) -> None:
    with pytest.raises(sw.InputError, match="store_limit: expected a number of bytes, 0 or more"):
        sw.compile(source, store_limit=limit)


def test_every_argument_that_decides_has_its_own(cache: Path, source: Path) -> None:
    assert not was_stored(source, cache, accuracy="exact")
    assert not was_stored(source, cache, weight_memory_limit=0)
    assert not was_stored(source, cache, memory_limit=1 << 30)
    assert len(files(cache)) == 4
    assert was_stored(source, cache, accuracy="exact")
    two = sw.compile(source, cache_dir=cache, threads=2)
    assert len(files(cache)) == 5
    assert isinstance(two, CompiledModel)
    assert two.plan.machine.threads == 2
    assert not was_stored(source, cache, tune="model")
    assert not was_stored(source, cache, origins={"x": "NCHW"})
    assert len(files(cache)) == 6  # estimates are not kept
    assert was_stored(source, cache, origins={"x": "NCHW"})


def test_a_model_that_changed_is_compiled_anew(tmp_path: Path) -> None:
    path = tmp_path / "changing.onnx"
    sw.save(network(8), path)
    settled(path)
    old = compiled(path, tmp_path)
    assert was_stored(path, tmp_path)
    before = path.stat()
    other = sw.load(path)
    doubled = {name: type(item)(2 * item.array) for name, item in other.constants.items()}
    import dataclasses

    sw.save(dataclasses.replace(other, constants=doubled), path)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))  # as some tools set it
    assert path.stat().st_size == before.st_size
    changed = compiled(path, tmp_path)
    assert not np.array_equal(changed(INPUT), old(INPUT))


def test_a_file_that_is_just_being_written_is_not_kept(tmp_path: Path) -> None:
    path = tmp_path / "fresh.onnx"
    sw.save(network(), path)
    compiled(path, tmp_path)
    assert not files(tmp_path)


def test_the_plan_says_when_the_model_is_gone(tmp_path: Path) -> None:
    path = tmp_path / "going.onnx"
    sw.save(network(), path)
    settled(path)
    compiled(path, tmp_path)
    model = compiled(path, tmp_path)
    path.unlink()
    assert model(INPUT).shape == (1, 5, 6, 6)
    with pytest.raises(sw.PlanError, match="found a file that has changed since, or none"):
        _ = model.plan


def test_other_costs_are_searched_again(cache: Path, source: Path) -> None:
    import sqlite3
    from contextlib import closing

    with closing(sqlite3.connect(cache_path(cache))) as connection, connection:
        connection.execute("INSERT INTO costs VALUES ('another machine', 'a', '[]')")
        # Kept costs decide, whatever is measured for other models.
        connection.execute("DELETE FROM costs WHERE spec LIKE 'convolution%'")
    assert was_stored(source, cache)
    with closing(sqlite3.connect(cache_path(cache))) as connection, connection:
        row = "SELECT spec FROM costs WHERE spec LIKE 'auto %'"
        ((spec,),) = connection.execute(row).fetchall()
        connection.execute("UPDATE costs SET entries = '[[\"x\", 1.0]]' WHERE spec = ?", (spec,))
        connection.execute("DELETE FROM costs WHERE spec = ?", (spec,))
    assert not was_stored(source, cache)
    cache_path(cache).unlink()
    assert not was_stored(source, cache)


def test_other_code_does_not_count(
    cache: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stridewise.api.stored._code", lambda: "of tomorrow")
    assert not was_stored(source, cache)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.data())
def test_damage_is_found(cache: Path, data: st.DataObject) -> None:
    (path,) = files(cache)
    whole = path.read_bytes()
    how = data.draw(st.sampled_from(("byte", "cut", "longer", "empty")))
    at = data.draw(st.integers(0, len(whole) - 1))
    flipped = bytes([whole[at] ^ data.draw(st.integers(1, 255))])
    damaged = {
        "byte": whole[:at] + flipped + whole[at + 1 :],
        "cut": whole[:at],
        "longer": whole + b"\0",
        "empty": b"",
    }[how]
    try:
        rewrite(path, damaged)
        store = store_module.ModelStore(path.parent, 1 << 30)
        found = store.find(path.stem, data.draw(st.integers(1, 3)))
        if found is not None and found.is_sound:
            # Zeros between the program and the weights tell nothing.
            assert found.weights.own_nbytes == found.stored.nbytes
            assert how == "byte"
            assert whole[at] == 0
    finally:
        rewrite(path, whole)


def test_a_damaged_file_is_written_anew(
    cache: Path, source: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (path,) = files(cache)
    whole = path.read_bytes()
    rewrite(path, whole[:-1] + bytes([whole[-1] ^ 1]))
    with caplog.at_level(logging.WARNING, "stridewise"):
        assert not was_stored(source, cache)
    assert "is damaged (another" in caplog.text or "is damaged (checksum of the weights)" in (
        caplog.text
    )
    assert was_stored(source, cache)


class Evil:
    """Would call something when it is read."""

    def __reduce__(self) -> tuple[Callable[..., object], tuple[str]]:
        return os.system, ("false",)


@pytest.mark.parametrize("content", [Evil(), print, {"a": 1}, store_module.StoredModel, Path("x")])
def test_nothing_is_called(content: object, cache: Path, caplog: pytest.LogCaptureFixture) -> None:
    import hashlib

    (path,) = files(cache)
    text = pickle.dumps(content)
    digest = hashlib.sha256(text).digest()
    head = store_module._HEADER.pack(store_module._MAGIC, digest, len(text), 0)
    rewrite(path, head + text)
    with caplog.at_level(logging.WARNING, "stridewise"):
        assert store_module.ModelStore(path.parent, 1 << 30).find(path.stem) is None
    assert "is damaged" in caplog.text


@pytest.mark.parametrize("offset", [1 << 40, -64])
def test_a_program_that_leaves_its_memory_is_refused(
    offset: int, cache: Path, source: Path
) -> None:
    """Checksums detect corruption, not tampering; the core checks addresses."""
    import dataclasses

    (path,) = files(cache)
    store = store_module.ModelStore(path.parent, 1 << 30)
    found = store.find(path.stem)
    assert found is not None
    assert found.is_sound
    wrong = dataclasses.replace(found.stored, offsets=(offset,) * len(found.stored.offsets))
    assert store.keep(path.stem, wrong, found.weights)
    assert not was_stored(source, cache)
    assert was_stored(source, cache)


def test_the_least_used_go_first(tmp_path: Path, source: Path) -> None:
    compiled(source, tmp_path)
    (path,) = files(tmp_path)
    nbytes = path.stat().st_size
    store = store_module.ModelStore(path.parent, 3 * nbytes)
    found = store.find(path.stem)
    assert found is not None
    assert found.is_sound
    model = found.stored, found.weights
    path.unlink()
    for age, key in enumerate(("a", "b", "c")):
        assert store.keep(key, *model)
        os.utime(path.with_name(f"{key}.model"), (1000 + age, 1000 + age))
    again = store.find("a")
    assert again is not None  # and is the latest by that
    assert again.is_sound
    assert store.keep("d", *model)
    assert [item.stem for item in files(tmp_path)] == ["a", "c", "d"]
    assert not store_module.ModelStore(path.parent, nbytes - 1).keep("e", *model)
    assert len(files(tmp_path)) == 3


def test_what_interrupted_writers_leave_is_removed(cache: Path) -> None:
    (path,) = files(cache)
    store = store_module.ModelStore(path.parent, 1 << 30)
    found = store.find(path.stem)
    assert found is not None
    drafts = [path.with_name(f".{name}.draft") for name in ("old", "new")]
    for draft in drafts:
        draft.write_bytes(b"half")
    os.utime(drafts[0], (1000, 1000))
    assert found.is_sound
    store.keep(path.stem, found.stored, found.weights)
    assert [draft.exists() for draft in drafts] == [False, True]


@pytest.mark.parametrize("step", ["write", "replace"])
def test_a_full_disk_is_no_error(
    step: str, tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch, caplog.at_level(logging.WARNING, "stridewise"):
        if step == "write":
            patch.setattr(store_module, "_view", full)
        else:
            patch.setattr(Path, "replace", full)
        model = sw.compile(source, cache_dir=tmp_path, threads=1)
        store_module.settle()
    assert "is not written: [Errno 28]" in caplog.text
    assert isinstance(model, CompiledModel)
    assert not files(tmp_path)
    assert not list((tmp_path / "models-v1").glob(".*"))


def test_a_file_of_another_version_is_not_used(cache: Path, source: Path) -> None:
    (path,) = files(cache)
    whole = path.read_bytes()
    assert whole.startswith(store_module._MAGIC)
    rewrite(path, b"stridewise mdl 1" + whole[16:])
    assert not was_stored(source, cache)
    assert was_stored(source, cache)


def test_files_that_were_exchanged_are_not_used(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    sources = [tmp_path / f"{name}.onnx" for name in ("one", "two")]
    for factor, path in enumerate(sources, 1):
        graph = network()
        changed = {name: type(c)(factor * c.array) for name, c in graph.constants.items()}
        sw.save(dataclasses.replace(graph, constants=changed), path)
    settled(sources[1])
    expected = [compiled(path, tmp_path)(INPUT) for path in sources]
    assert not np.array_equal(*expected)
    one, two = files(tmp_path)
    one.rename(tmp_path / "other")
    two.rename(one)
    (tmp_path / "other").rename(two)
    with caplog.at_level(logging.WARNING, "stridewise"):
        found = [compiled(path, tmp_path) for path in sources]
    assert not any(model.source.from_disk for model in found)
    assert caplog.text.count("the file of another model") == 2
    for model, wanted in zip(found, expected, strict=True):
        assert np.allclose(model(INPUT), wanted, rtol=1e-4, atol=1e-5)


@settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.data())
def test_damage_anywhere_gives_no_other_results(
    cache: Path, source: Path, data: st.DataObject
) -> None:
    """The whole start, with the file of checks that make later starts shorter."""
    expected, found = compiled(source, cache)(INPUT), files(cache)
    checked = [path.with_suffix(".checked") for path in found]
    path = data.draw(st.sampled_from([*found, *checked]))
    whole = path.read_bytes()
    at = data.draw(st.integers(0, len(whole) - 1))
    flipped = bytes([whole[at] ^ data.draw(st.integers(1, 255))])
    rewrite(path, whole[:at] + flipped + whole[at + 1 :])
    assert np.allclose(compiled(source, cache)(INPUT), expected, rtol=1e-4, atol=1e-5)
    store_module.settle()


def test_processes_store_a_model_at_once(source: Path, tmp_path: Path) -> None:
    code = textwrap.dedent(
        """
        import sys
        import numpy as np
        import stridewise as sw
        model = sw.compile(sys.argv[1], cache_dir=sys.argv[2], threads=1)
        print(np.abs(model(np.ones((1, 17, 6, 6), np.float32))).sum())
        """
    )
    command = [sys.executable, "-c", code, str(source), str(tmp_path)]
    started = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    outcomes = [process.communicate() for process in started]
    assert [error for _, error in outcomes] == [""] * 3
    results = np.array([float(output) for output, _ in outcomes])
    assert np.allclose(results, results[0], rtol=1e-4)
    assert len(files(tmp_path)) == 1
    assert was_stored(source, tmp_path)


def test_weights_are_mapped_and_the_file_may_go(cache: Path, source: Path) -> None:
    (path,) = files(cache)
    assert path.stat().st_mode & 0o222 == 0  # no writes by accident
    model = compiled(source, cache)
    (buffer,) = model.weights.buffers
    assert buffer.is_mapped
    assert not buffer.array().flags.writeable
    expected = model(INPUT)
    content = path.read_bytes()
    path.unlink()
    assert np.array_equal(model(INPUT), expected)
    other = compiled(source, cache, store_limit=0)
    assert np.array_equal(other(INPUT), expected)
    path.write_bytes(bytes(len(content)))  # another file of that name
    assert np.array_equal(model(INPUT), expected)


def test_a_file_that_is_cut_off_in_use_ends_in_an_error(cache: Path, source: Path) -> None:
    (path,) = files(cache)
    model = compiled(source, cache)
    expected = model(INPUT)
    whole = path.read_bytes()
    path.chmod(0o600)
    os.truncate(path, len(whole) - 1)
    (name,) = model.input_names
    for run in (
        lambda: model(INPUT),
        lambda: model.profile({name: INPUT}, 1),
        lambda: model.trace({name: INPUT}, lambda *_: None),
    ):
        with pytest.raises(sw.ExecutionError, match="was cut off"):
            run()
    path.write_bytes(whole)
    assert np.array_equal(model(INPUT), expected)


def test_weights_are_read_where_no_file_can_be_mapped(
    cache: Path, source: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (path,) = files(cache)
    expected = compiled(source, cache)(INPUT)
    core = load_core()

    class Buffer:
        """As on a file system that others share."""

        def __new__(cls, nbytes: int) -> Any:
            return core.Buffer(nbytes)

        @staticmethod
        def map(*_: int) -> None:
            return None

    monkeypatch.setattr(store_module, "load_core", lambda: SimpleNamespace(Buffer=Buffer))
    model = compiled(source, cache)
    assert not model.weights.buffers[0].is_mapped
    assert np.array_equal(model(INPUT), expected)
    whole = path.read_bytes()
    rewrite(path, whole[:-1] + bytes([whole[-1] ^ 1]))
    with caplog.at_level(logging.WARNING, "stridewise"):
        found = store_module.ModelStore(path.parent, 1 << 30).find(path.stem)
        assert found is not None
        assert not found.is_sound
    assert "is damaged (checksum of the weights)" in caplog.text


def test_a_read_only_folder_is_no_error(tmp_path: Path, source: Path) -> None:
    (tmp_path / "models-v1").write_text("a file, where a folder is wanted")
    assert compiled(source, tmp_path)(INPUT).shape == (1, 5, 6, 6)


def test_a_model_in_a_read_only_folder_is_used(
    cache: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object, **__: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(os, "utime", refused)
    assert was_stored(source, cache)


def test_processes_share_a_folder(tmp_path: Path, source: Path) -> None:
    script = textwrap.dedent(
        """
        import sys, numpy as np, stridewise as sw
        model = sw.compile(sys.argv[1], cache_dir=sys.argv[2], threads=1)
        np.save(sys.argv[3], model(np.load(sys.argv[4])))
        """
    )
    np.save(tmp_path / "x.npy", INPUT)
    command = [sys.executable, "-c", script, str(source), str(tmp_path)]
    running = [
        subprocess.Popen([*command, str(tmp_path / f"{number}.npy"), str(tmp_path / "x.npy")])
        for number in range(3)
    ]
    assert [process.wait(600) for process in running] == [0, 0, 0]
    expected = compiled(source, tmp_path, store_limit=0)(INPUT)
    for number in range(3):
        result = np.load(tmp_path / f"{number}.npy")
        assert np.allclose(result, expected, atol=1e-4)
    assert len(files(tmp_path)) == 1


def tampered(
    cache: Path, change: Callable[[store_module.StoredModel], store_module.StoredModel]
) -> None:
    """Write the stored model anew, with right checksums, and something else in its program."""
    (path,) = files(cache)
    store = store_module.ModelStore(path.parent, 1 << 30)
    found = store.find(path.stem)
    assert found is not None
    assert found.is_sound
    assert store.keep(path.stem, change(found.stored), found.weights)


def other_layout(stored: store_module.StoredModel) -> store_module.StoredModel:
    constants = list(stored.program.constants)
    at = next(i for i, item in enumerate(constants) if item.spec is not None)
    layout = constants[at].layout.replace("strides", "other strides")
    constants[at] = dataclasses.replace(constants[at], layout=layout)
    program = dataclasses.replace(stored.program, constants=tuple(constants))
    return dataclasses.replace(stored, program=program)


def other_weights(stored: store_module.StoredModel) -> store_module.StoredModel:
    """All constants at the place of the first and largest: the program is valid, and wrong."""
    return dataclasses.replace(stored, offsets=(0,) * len(stored.offsets))


def other_outputs(stored: store_module.StoredModel) -> store_module.StoredModel:
    (sums,) = stored.outputs
    means = (sums.means[0] + 3e-6 * sums.magnitude, *sums.means[1:])
    return dataclasses.replace(stored, outputs=(dataclasses.replace(sums, means=means),))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (other_layout, "which they are packed in, found f32 "),
        (other_weights, "differs by "),
        (other_outputs, "differs by 3.0e-06 of its mean magnitude"),
    ],
)
def test_a_stored_model_that_would_compute_something_else_is_compiled_again(
    change: Change, reason: str, cache: Path,
    source: Path, caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    right = compiled(source, cache)(INPUT)
    tampered(cache, change)
    with caplog.at_level(logging.WARNING, "stridewise"):
        found = compiled(source, cache)
    assert f"stored model of {source} is dropped and compiled again: " in caplog.text
    assert reason in caplog.text
    assert np.array_equal(found(INPUT), right)
    assert was_stored(source, cache)  # and it is stored again


def test_outputs_are_not_compared_where_that_is_not_wanted(cache: Path, source: Path) -> None:
    right = compiled(source, cache)(INPUT)
    tampered(cache, other_weights)
    assert not np.array_equal(compiled(source, cache, verify=False)(INPUT), right)
    assert np.array_equal(compiled(source, cache)(INPUT), right)


@settings(max_examples=100, deadline=None)
@given(
    shape=st.lists(st.integers(0, 40), max_size=3).map(tuple),
    seed=st.integers(0, 100),
    scale=st.sampled_from([1e-20, 1.0, 1e20]),
    odd=st.sampled_from([None, np.nan, np.inf, -np.inf]),
    data=st.data(),
)
def test_sums_of_outputs_show_any_element_that_is_wrong(
    shape: tuple[int, ...], seed: int, scale: float, odd: float | None, data: st.DataObject
) -> None:
    array = np.random.default_rng(seed).standard_normal(shape, np.float32) * np.float32(scale)
    if odd is not None and array.size:
        array.reshape(-1)[data.draw(st.integers(0, array.size - 1))] = odd
    sums = OutputSums.of("y", array)
    assert sums.difference(OutputSums.of("y", array.copy())) == 0
    if not array.size:
        return
    wrong = array.copy().reshape(-1)
    at = data.draw(st.integers(0, array.size - 1))
    wrong[at] = scale if not np.isfinite(wrong[at]) else wrong[at] + np.float32(0.01 * scale)
    assert sums.difference(OutputSums.of("y", wrong)) > 1e-5


def test_a_model_that_other_work_disturbed_is_compiled_again_after_an_hour(
    tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = SimpleNamespace(is_disturbed=True, add=lambda _: None)
    monkeypatch.setattr(kernel_times, "Waits", lambda _: watch)
    model = compiled(source, tmp_path, tune="measure")
    assert any("other work" in note for note in model.plan.notes)
    for _ in range(2):
        assert was_stored(source, tmp_path, tune="measure")
    watch.is_disturbed = False
    later = time.time() + 3601
    monkeypatch.setattr("stridewise.runtime.tuning.cost_cache.time.time", lambda: later)
    model = compiled(source, tmp_path, tune="measure")
    assert not model.source.from_disk
    assert not any("other work" in note for note in model.plan.notes)
    assert len(files(tmp_path)) == 1
    assert was_stored(source, tmp_path, tune="measure")
