"""What tests of the command line share: how commands run, and a small model."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import ModelProto

from stridewise.cli import main as entry

from .onnx_nodes import make, node

Array = np.ndarray[Any, np.dtype[Any]]
F32 = np.float32


# --- running --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Done:
    """What a command left behind."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Run = Callable[..., Done]


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep all tests, and the processes that they start, away from the user's cost cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Call the entry point in this process, which takes a tenth of the time of a new one."""
    monkeypatch.setenv("COLUMNS", "200")

    def call(*arguments: object) -> Done:
        monkeypatch.setattr(sys, "argv", ["stridewise", *map(str, arguments)])
        with pytest.raises(SystemExit) as stop:
            entry.main()
        printed = capsys.readouterr()
        return Done(int(stop.value.code or 0), printed.out, printed.err)

    return call


def start(*arguments: object, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run the command line as a process of its own."""
    command = [sys.executable, "-m", "stridewise.cli.main", *map(str, arguments)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    return subprocess.run(command, text=True, check=False, timeout=600, **pipes)


def fails(done: Done, *parts: str) -> None:
    """Check for status 1, one line on standard error that has all of these parts, nothing else."""
    assert done.status == 1
    assert done.out == ""
    assert done.err.startswith("error: ")
    assert done.err.count("\n") == 1
    assert done.err.endswith("\n")
    for part in parts:
        assert part in done.err


# --- models ---------------------------------------------------------------------------------------


def small_net() -> ModelProto:
    """A convolution and its activation; three input channels, eight output channels."""
    weights = np.random.default_rng(0).standard_normal((8, 3, 3, 3)).astype(F32)
    return make(
        node("Conv", "x", "w", outputs=["a"], pads=[1, 1, 1, 1], name="conv1"),
        node("Relu", "a", name="relu1"),
        constants={"w": weights},
    )


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "net.onnx"
    onnx.save(small_net(), path)
    return path


@pytest.fixture
def image(tmp_path: Path) -> Path:
    path = tmp_path / "image.npy"
    np.save(path, np.random.default_rng(1).standard_normal((1, 3, 8, 8)).astype(F32))
    return path


def saved(folder: Path, proto: ModelProto, name: str = "other.onnx") -> Path:
    onnx.save(proto, folder / name)
    return folder / name
