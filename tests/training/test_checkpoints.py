"""Checkpoints: whole after a kill at any moment, and checked when they are read."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from stridewise.api.checkpoints import read_checkpoint, write_checkpoint
from stridewise.errors import InputError, ModelError

ARRAYS = {
    "conv.weights": np.arange(24, dtype=np.float32).reshape(2, 3, 4),
    "file": np.zeros((0, 3)),
    "a/b": np.array(7),
}

WRITER = """
import sys
import numpy as np
from stridewise.api.checkpoints import write_checkpoint
number = 0
while True:
    number += 1
    write_checkpoint(sys.argv[1], {"a": np.full(200_000, number), "b": np.array(number)})
    print(number, flush=True)
"""


def test_arrays_come_back(tmp_path: Path):
    write_checkpoint(tmp_path / "c", ARRAYS)
    found = read_checkpoint(tmp_path / "c")
    assert list(found) == list(ARRAYS)
    for name, array in ARRAYS.items():
        assert found[name].dtype == array.dtype
        np.testing.assert_array_equal(found[name], array)


def test_a_kill_at_any_moment_leaves_a_whole_checkpoint(tmp_path: Path):
    path, rng = tmp_path / "c", random.Random(0)
    for _ in range(6):
        command = [sys.executable, "-c", WRITER, str(path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            process.stdout.readline()
            time.sleep(rng.uniform(0, 0.1))
            process.kill()
            last = max(map(int, process.stdout.read().split()), default=1)
        found = read_checkpoint(path)
        number = int(found["b"])
        # What was reported as written is there; the one after it may be, too.
        assert last <= number <= last + 1
        assert (found["a"] == number).all()


def test_damage_is_found_wherever_it_is(tmp_path: Path):
    path, rng = tmp_path / "c", random.Random(1)
    write_checkpoint(path, ARRAYS)
    whole = path.read_bytes()
    for _ in range(200):
        damaged = bytearray(whole)
        damaged[rng.randrange(len(whole))] ^= 1 << rng.randrange(8)
        path.write_bytes(damaged)
        with pytest.raises(ModelError, match="a whole checkpoint"):
            read_checkpoint(path)
    for length in (0, 1, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(ModelError, match="a whole checkpoint"):
            read_checkpoint(path)


def test_files_that_are_none(tmp_path: Path):
    with pytest.raises(InputError, match="No such file"):
        read_checkpoint(tmp_path / "none")
    with pytest.raises(InputError, match="a file that can be written"):
        write_checkpoint(tmp_path / "none" / "c", ARRAYS)
    np.savez(tmp_path / "other.npz", a=np.zeros(3))
    with pytest.raises(ModelError, match="a whole checkpoint"):
        read_checkpoint(tmp_path / "other.npz")


def test_drafts_of_killed_writers_are_removed_once_they_are_old(tmp_path: Path):
    drafts = [tmp_path / f".{name}.draft" for name in ("c.1.a", "c.2.b", "d.3.c")]
    for draft in drafts:
        draft.write_bytes(b"half")
    for draft in (drafts[0], drafts[2]):
        os.utime(draft, (1000, 1000))
    write_checkpoint(tmp_path / "c", ARRAYS)
    assert [draft.exists() for draft in drafts] == [False, True, True]


def test_a_file_does_not_replace_what_is_none(tmp_path: Path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path, tmp_path / "a\0b"):
        with pytest.raises(InputError, match="a file that can be written"):
            write_checkpoint(path, ARRAYS)
    assert (tmp_path / "pipe").is_fifo()


def test_a_full_disk_leaves_the_old_checkpoint(tmp_path: Path):
    resource = pytest.importorskip("resource", reason="limits of files are those of Unix")
    path = tmp_path / "c"
    write_checkpoint(path, ARRAYS)
    whole, limits = path.read_bytes(), resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        for most in (1, 60, 300, len(whole) // 2, len(whole) - 1):
            resource.setrlimit(resource.RLIMIT_FSIZE, (most, limits[1]))
            with pytest.raises(InputError, match="File too large"):
                write_checkpoint(path, ARRAYS)
            assert list(tmp_path.iterdir()) == [path]
            assert path.read_bytes() == whole
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
