"""Other runtimes that Stridewise is compared with, and the command that knows all of them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from benchmarks.peers import PEERS, USUAL, runtimes

import stridewise as sw
from stridewise.cli.bench import bench_command
from stridewise.cli.main import main
from stridewise.cli.report import MOVING, moves_of_onnxruntime
from stridewise.frontends.onnx.fallback import runtime as onnx_runtime

from .models import light_models


@pytest.mark.parametrize("name", [name for name in PEERS if name != "onnxruntime"])
def test_a_missing_peer_says_how_to_install_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> None:
        raise ImportError(f"No module named {name!r}")

    monkeypatch.setattr(runtimes.importlib, "import_module", absent)
    extra = "bench" if name == "openvino" else "torch"
    fix = rf"peer '{name}'.*pip install 'stridewise\[{extra}\]'"
    with pytest.raises(sw.DependencyError, match=fix) as caught:
        PEERS[name](b"", {}, 1, 1)
    assert isinstance(caught.value, ImportError)


def test_without_onnx_runtime_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnx_runtime, "is_installed", lambda: False)
    with pytest.raises(sw.DependencyError, match=r"pip install 'stridewise\[fallback\]'"):
        PEERS["onnxruntime"](b"", {}, 1, 1)
    with pytest.raises(sw.DependencyError, match=r"pip install 'stridewise\[fallback\]'"):
        moves_of_onnxruntime(b"", 1)


@pytest.mark.parametrize("name", USUAL)
def test_a_model_that_a_peer_refuses(name: str) -> None:
    pytest.importorskip(name)
    with pytest.raises(sw.StridewiseError, match=r"load the model|ONNX Runtime"):
        PEERS[name](b"no model", {}, 1, 1)


def test_moves_of_onnxruntime_are_read_from_its_own_optimized_graph() -> None:
    """Channel concats of SqueezeNet's fire modules stay; ONNX Runtime has eight of them."""
    pytest.importorskip("onnxruntime")
    path = light_models()["squeezenet"]
    for model in (path, path.read_bytes()):
        found = moves_of_onnxruntime(model, 1)
        assert found["Concat"] == 8
        assert set(found) <= set(MOVING)
    with pytest.raises(sw.ModelError, match="expected nodes that ONNX Runtime takes"):
        moves_of_onnxruntime(b"no model", 1)


@pytest.mark.parametrize("streams", [1, 2])
def test_the_command_of_the_benchmarks_knows_all_peers(
    streams: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    path = tmp_path / "net.onnx"
    sw.save(sw.zoo.build("squeezenet1_1", size=32), path)
    arguments = [str(path), "--vs", "torch", "--runs", "1", "--tune", "model", "--threads", "2"]
    monkeypatch.setattr(sys, "argv", ["bench", *arguments, "--streams", str(streams)])
    if streams == 1:
        pytest.importorskip("torch", reason="PyTorch is not installed: stridewise[torch]")
    with pytest.raises(SystemExit) as stop:
        main(bench_command(PEERS, USUAL))
    printed = capsys.readouterr()
    if streams == 1:
        assert stop.value.code == 0
        assert "torch" in printed.out
    else:
        assert stop.value.code == 1
        assert "--vs: expected some of onnxruntime, openvino" in printed.err
