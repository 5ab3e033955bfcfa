"""The cost cache: shared, and never in the way."""

from __future__ import annotations

import logging
import os
import sqlite3
import subprocess
import sys
import textwrap
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stridewise as sw
from stridewise.graph import Graph
from stridewise.runtime.tuning.cost_cache import CostCache
from stridewise.runtime.tuning.cost_file import cache_path
from stridewise.targets.machine import Machine

from .graphs import Net

HERE = Machine("this CPU", "AVX2", 2, "oneDNN 3.2.0")
ENTRIES = {"kernel a": (("jit", 1.5), ("gemm", 2.0)), "kernel b": ()}


def small() -> Graph:
    """Return a graph of a few kernels that are fast to time."""
    b = Net(1, 4, 4, 4)
    y = b.op("tanh", [b.op("max_pool", [b.x], {"kernel": (2, 2)})])
    return b.build([b.op("lrn", [y], {"size": 3})])


class Calls:
    """Counts what progress says, and may interrupt."""

    def __init__(self, stop: int | None = None) -> None:
        self.stop = stop
        self.seen: list[tuple[int, int, str]] = []

    def __call__(self, done: int, total: int, kind: str) -> None:
        if done == self.stop:
            raise KeyboardInterrupt
        self.seen.append((done, total, kind))


def measured(folder: Path, progress: Calls) -> sw.CompiledModel:
    return sw.compile(small(), threads=1, tune="measure", cache_dir=folder, progress=progress)


def sources(model: sw.CompiledModel) -> set[str]:
    return {cost.source for d in model.plan.decisions for cost in d.chosen.costs}


def works(model: sw.CompiledModel) -> None:
    assert (
        model(np.ones((1, 4, 4, 4), np.float32)).shape == (1, 4, 2, 2)
        or len(model.output_names) == 1
    )


def test_a_second_compilation_measures_nothing(tmp_path):
    first, second = Calls(), Calls()
    model = measured(tmp_path, first)
    total = first.seen[0][1]
    assert total > 3
    assert [done for done, _, _ in first.seen] == list(range(total + 1))
    assert first.seen[-1] == (total, total, "")
    assert sources(model) <= {"measured", "in place", "scaled"}
    again = measured(tmp_path, second)
    assert second.seen == []
    assert sources(again) <= {"cached", "in place", "scaled"}
    assert again.plan.cost_ns == pytest.approx(model.plan.cost_ns)
    assert [d.chosen.implementation for d in again.plan.decisions] == [
        d.chosen.implementation for d in model.plan.decisions
    ]
    assert cache_path(tmp_path).is_file()


def test_what_was_measured_before_an_interruption_is_kept(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        measured(tmp_path, Calls(stop=3))
    rest, all_of_it = Calls(), Calls()
    measured(tmp_path / "other", all_of_it)
    measured(tmp_path, rest)
    assert rest.seen[0][1] == all_of_it.seen[0][1] - 3


def test_entries_come_back_as_they_were_stored(tmp_path):
    cache = CostCache(HERE, tmp_path)
    assert cache.load() == {}
    assert not cache.path.exists()
    cache.store({})
    assert not cache.path.exists()
    cache.store(ENTRIES)
    assert CostCache(HERE, tmp_path).load() == ENTRIES
    cache.store({"kernel a": (("new", 1.0),)})
    assert CostCache(HERE, tmp_path).load() == {**ENTRIES, "kernel a": (("new", 1.0),)}


@pytest.mark.parametrize(
    "other",
    [
        Machine("another CPU", "AVX2", 2, "oneDNN 3.2.0"),
        Machine("this CPU", "AVX512_CORE", 2, "oneDNN 3.2.0"),
        Machine("this CPU", "AVX2", 4, "oneDNN 3.2.0"),
        Machine("this CPU", "AVX2", 2, "oneDNN 3.3.0"),
    ],
)
def test_entries_of_other_machines_are_ignored(tmp_path, other):
    CostCache(HERE, tmp_path).store(ENTRIES)
    assert CostCache(other, tmp_path).load() == {}
    CostCache(other, tmp_path).store({"kernel a": (("theirs", 9.0),)})
    assert CostCache(HERE, tmp_path).load() == ENTRIES


def test_processes_that_write_at_once_lose_nothing(tmp_path):
    code = """
        import sys
        from pathlib import Path
        from stridewise.targets.machine import Machine
        from stridewise.runtime.tuning.cost_cache import CostCache
        cache = CostCache(Machine("this CPU", "AVX2", 2, "oneDNN 3.2.0"), Path(sys.argv[1]))
        for number in range(25):
            cache.store({f"{sys.argv[2]} {number}": [("jit", float(number))]})
        """
    command = [sys.executable, "-c", textwrap.dedent(code), str(tmp_path)]
    writers = [
        subprocess.Popen([*command, str(index)], stderr=subprocess.PIPE, text=True)
        for index in range(4)
    ]
    for writer in writers:
        _, errors = writer.communicate()
        assert (writer.returncode, errors) == (0, "")
    found = CostCache(HERE, tmp_path).load()
    assert len(found) == 100
    assert found["3 24"] == (("jit", 24.0),)


# --- what is wrong with it ------------------------------------------------------------------------


def garbage(path: Path) -> None:
    path.write_bytes(b"this is no database" * 100)


def truncated(path: Path) -> None:
    CostCache(HERE, path.parent).store({f"kernel {n}": (("jit", 1.0),) for n in range(500)})
    path.write_bytes(path.read_bytes()[:5000])


def other_table(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE costs (something TEXT)")


@pytest.mark.parametrize("damage", [garbage, truncated])
def test_a_damaged_cache_is_put_aside_and_started_anew(tmp_path, caplog, damage):
    path = cache_path(tmp_path)
    damage(path)
    calls = Calls()
    with caplog.at_level(logging.WARNING, "stridewise"):
        works(measured(tmp_path, calls))
    assert calls.seen
    assert [record.getMessage() for record in caplog.records] == [
        f"cost cache {path} was damaged and is started again"
    ]
    assert path.with_suffix(".damaged").is_file()
    calls = Calls()
    works(measured(tmp_path, calls))
    assert calls.seen == []


def folder_in_a_file(folder: Path) -> Path:
    (folder / "file").write_text("")
    return folder / "file" / "cache"


def path_is_a_folder(folder: Path) -> Path:
    cache_path(folder).mkdir()
    return folder


def foreign_table(folder: Path) -> Path:
    other_table(cache_path(folder))
    return folder


@pytest.mark.parametrize("prepare", [folder_in_a_file, path_is_a_folder, foreign_table])
def test_a_cache_that_cannot_be_used_costs_one_warning_and_nothing_else(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, prepare: Callable[[Path], Path]
):
    folder = prepare(tmp_path)
    for _ in range(2):
        calls = Calls()
        with caplog.at_level(logging.WARNING, "stridewise"):
            works(measured(folder, calls))
        assert calls.seen
        (message,) = [record.getMessage() for record in caplog.records]  # the first call's
        assert message.startswith(f"cost cache {cache_path(folder)} is not used: ")
        assert message.endswith("; costs are measured again")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_folder_costs_one_warning(tmp_path, caplog):
    tmp_path.chmod(0o500)
    with caplog.at_level(logging.WARNING, "stridewise"):
        works(measured(tmp_path, Calls()))
    assert len(caplog.records) == 1


def test_a_full_disk_costs_one_warning(tmp_path, caplog, monkeypatch):
    def fail(*_args: Any, **_options: Any) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(sqlite3, "connect", fail)
    with caplog.at_level(logging.WARNING, "stridewise"):
        works(measured(tmp_path, Calls()))
    (message,) = [record.getMessage() for record in caplog.records]
    assert "is not used: database or disk is full; costs are measured again" in message


NONSENSE = [
    "{not json", "", "null", "7", '"text"', '{"jit": 1}', "[[]]", '[["jit"]]', '[["jit", 1, 2]]',
    '[["jit", "1"]]', "[[1, 1]]", '[["jit", null]]', '[["jit", true]]', '[["jit", NaN]]',
    '[["jit", Infinity]]', '[["jit", -1]]', '[["jit", 1e300]]', '[["jit", [1]]]', "[" * 100_000,
    b"[\xff\xfe]", b"\x00", 7, 1.5,
]  # fmt: skip


@pytest.mark.parametrize("entries", NONSENSE, ids=lambda item: repr(item)[:20])
def test_rows_that_make_no_sense_are_measured_again(tmp_path, caplog, entries):
    cache = CostCache(HERE, tmp_path)
    cache.store({**ENTRIES, "bad": (("jit", 1.0),)})
    with closing(sqlite3.connect(cache.path)) as connection, connection:
        connection.execute("UPDATE costs SET entries = ? WHERE spec = 'bad'", (entries,))
    with caplog.at_level(logging.WARNING, "stridewise"):
        found = CostCache(HERE, tmp_path)
        assert found.load() == found.load() == ENTRIES
    assert [record.getMessage() for record in caplog.records] == [
        f"cost cache {cache.path}: 1 of 3 entries are invalid and are measured again"
    ]
    found.store({"bad": (("jit", 2.0),)})
    caplog.clear()
    assert CostCache(HERE, tmp_path).load() == {**ENTRIES, "bad": (("jit", 2.0),)}
    assert not caplog.records


def test_names_of_kernels_that_are_no_text(tmp_path, caplog):
    cache = CostCache(HERE, tmp_path)
    cache.store(ENTRIES)
    with closing(sqlite3.connect(cache.path)) as connection, connection:
        (key,) = connection.execute("SELECT DISTINCT machine FROM costs").fetchone()
        rows = [(key, b"\xff\xfe", "[]"), (key, 7, "[]")]
        connection.executemany("INSERT INTO costs VALUES (?, ?, ?)", rows)
        connection.execute("UPDATE costs SET spec = CAST(x'ff' AS TEXT) WHERE spec = 'kernel b'")
    assert CostCache(HERE, tmp_path).load() == {"kernel a": ENTRIES["kernel a"], "7": ()}
    assert len(caplog.records) == 1


def test_costs_that_are_no_times_are_not_stored(tmp_path):
    cache = CostCache(HERE, tmp_path)
    for cost in (float("nan"), float("inf"), -1.0, 1e300):
        cache.store({"kernel a": (("jit", cost),), "kernel b": (("jit", 2.0),)})
        assert cache.load() == CostCache(HERE, tmp_path).load() == {"kernel b": (("jit", 2.0),)}


def test_what_was_measured_counts_where_nothing_can_be_written(tmp_path, caplog):
    cache = CostCache(HERE, folder_in_a_file(tmp_path))
    cache.store(ENTRIES)
    cache.store({"kernel b": (("jit", 2.0),)})
    assert cache.load() == {**ENTRIES, "kernel b": (("jit", 2.0),)}
    assert len(caplog.records) == 1


def test_outcomes_of_other_versions_are_decided_again(tmp_path):
    measured(tmp_path, Calls())
    path = cache_path(tmp_path)
    with closing(sqlite3.connect(path)) as connection, connection:
        query = "UPDATE costs SET entries = ? WHERE spec LIKE 'tuned %'"
        for entries in ('[["all purple", 1.0]]', '[["planned", 2.0], ["all purple", 1.0]]', "[]"):
            assert connection.execute(query, (entries,)).rowcount == 1
            connection.commit()
            calls = Calls()
            works(measured(tmp_path, calls))
            assert calls.seen == []


def test_a_file_that_another_process_keeps_locked(tmp_path, caplog, monkeypatch):
    monkeypatch.setattr("stridewise.runtime.tuning.cost_cache._PATIENCE_S", 0.1)
    cache = CostCache(HERE, tmp_path)
    cache.store(ENTRIES)
    with closing(sqlite3.connect(cache.path)) as connection:
        connection.execute("BEGIN EXCLUSIVE")
        found = CostCache(HERE, tmp_path)
        assert found.load() == {}
        found.store({"kernel c": (("jit", 1.0),)})
        assert found.load() == {"kernel c": (("jit", 1.0),)}
        (message,) = [record.getMessage() for record in caplog.records]
        assert "is not used: database is locked" in message
        connection.rollback()
    assert CostCache(HERE, tmp_path).load() == ENTRIES


def test_a_damaged_file_is_replaced_once(tmp_path, caplog):
    path = cache_path(tmp_path)
    garbage(path)
    slow = CostCache(HERE, tmp_path)
    before = slow._identity()
    assert CostCache(HERE, tmp_path).load() == {}
    CostCache(HERE, tmp_path).store(ENTRIES)
    slow._discard_damaged(before)  # it has seen the damage, too, but comes late
    assert CostCache(HERE, tmp_path).load() == ENTRIES
    assert len(caplog.records) == 1


@pytest.mark.parametrize("name", ["a b", "a?b#c%20", "file:x?mode=ro", "\u00e4\n'\"", ":memory:"])
def test_folders_of_any_name(tmp_path, name):
    folder = tmp_path / name
    CostCache(HERE, folder).store(ENTRIES)
    assert CostCache(HERE, folder).load() == ENTRIES
    assert cache_path(folder).is_file()


def test_a_folder_that_cannot_be(tmp_path, caplog):
    cache = CostCache(HERE, tmp_path / "nul\0")
    cache.store(ENTRIES)
    assert cache.load() == ENTRIES
    assert len(caplog.records) == 1


def test_a_file_that_may_not_grow(tmp_path):
    """Let the system refuse to write, as it does where a disk is full."""
    code = """
        import resource, sys
        from pathlib import Path
        from stridewise.targets.machine import Machine
        from stridewise.runtime.tuning.cost_cache import CostCache
        cache = CostCache(Machine("this CPU", "AVX2", 2, "oneDNN 3.2.0"), Path(sys.argv[1]))
        cache.store({"kernel a": [("jit", 1.0)]})
        resource.setrlimit(resource.RLIMIT_FSIZE, (cache.path.stat().st_size,) * 2)
        for turn in range(3):
            cache.store({f"kernel {turn} {n} {'x' * 100}": [("jit", 1.0)] for n in range(500)})
        assert len(cache.load()) == 1501
        """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("is not used") == 1
    assert CostCache(HERE, tmp_path).load() == {"kernel a": (("jit", 1.0),)}


def test_processes_that_find_damage_at_once(tmp_path):
    code = """
        import sys
        from pathlib import Path
        from stridewise.targets.machine import Machine
        from stridewise.runtime.tuning.cost_cache import CostCache
        for number in range(20):
            cache = CostCache(Machine("this CPU", "AVX2", 2, "oneDNN 3.2.0"), Path(sys.argv[1]))
            cache.load()
            cache.store({f"{sys.argv[2]} {number}": [("jit", float(number))]})
            if number == 9 and sys.argv[2] == "0":
                cache.path.write_bytes(b"this is no database" * 100)
        """
    command = [sys.executable, "-c", textwrap.dedent(code), str(tmp_path)]
    writers = [
        subprocess.Popen([*command, str(index)], stderr=subprocess.PIPE, text=True)
        for index in range(3)
    ]
    for writer in writers:
        _, errors = writer.communicate()
        assert writer.returncode == 0, errors
        assert "Traceback" not in errors
    CostCache(HERE, tmp_path).load()
    CostCache(HERE, tmp_path).store(ENTRIES)
    assert CostCache(HERE, tmp_path).load().items() >= ENTRIES.items()
