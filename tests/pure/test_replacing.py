"""Files are replaced at once or not at all, and errors name the file that the caller asked for."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from stridewise.replacing import reason, replacing


def folder(path: Path) -> Path:
    (path / "file").mkdir()
    return path / "file"


def pipe(path: Path) -> Path:
    os.mkfifo(path / "file")
    return path / "file"


PLACES: dict[str, tuple[Callable[[Path], Path], str]] = {
    "folder": (folder, "Is a directory"),
    "pipe": (pipe, "Not a regular file"),
    "missing": (lambda path: path / "no" / "file", "no directory "),
    "inside of a file": (lambda _: Path(__file__) / "file", "no directory "),
    "long": (lambda path: path / ("a" * 300), "File name too long"),
}


@pytest.mark.parametrize("place", PLACES)
def test_places_that_no_file_can_take(tmp_path: Path, place: str) -> None:
    make, text = PLACES[place]
    path = make(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(OSError, match=text) as found, replacing(path):
        pass
    assert found.value.filename == str(path)
    assert reason(found.value).startswith(text)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("name", ["a" * 255, "\u00e4" * 127, "a b\n.x", "[*]?", "-"])
def test_every_name_that_a_file_may_have(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    for content in (b"one", b"two"):
        with replacing(path) as file:
            file.write(content)
        assert path.read_bytes() == content
    assert list(tmp_path.iterdir()) == [path]


def test_a_failure_leaves_the_old_file_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"), replacing(path) as file:
        file.write(b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_errors_never_name_the_draft(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def refused(self: Path, *_: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(self))

    path = tmp_path / "file"
    for step in ("open", "replace"):
        with monkeypatch.context() as patch:
            patch.setattr(Path, step, refused)
            with pytest.raises(PermissionError) as found, replacing(path):
                pass
        assert (found.value.filename, found.value.errno) == (str(path), errno.EACCES)
    assert not list(tmp_path.iterdir())
