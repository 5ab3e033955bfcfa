"""Calls of models with open shapes, from Python and from the command line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import stridewise as sw

from .models import relative_error, run_onnxruntime
from .onnx_nodes import make, node
from .open_shapes import classifier, compiled, draw, reshaped, right

# --- calls ----------------------------------------------------------------------------------------


def test_calls_that_do_not_fit() -> None:
    model = compiled(classifier())
    image = draw(1, 3, 8, 8)
    for given, message in (
        ((), r"model 'test': expected 1 inputs \(x\), found 0"),
        ((image[0],), r"expected shape \(N, 3, H, W\), found \(3, 8, 8\)"),
        ((image.astype(np.float64),), "expected dtype float32, found float64"),
        (([1.0],), "expected an array .*, found list"),
    ):
        with pytest.raises(sw.InputError, match=message):
            model(*given)
    for call in (model.run, model.profile):
        with pytest.raises(sw.InputError, match="expected inputs x, found z"):
            call({"z": image})
        with pytest.raises(sw.InputError, match=r"a mapping .*, found ndarray; pass {'x': ...}"):
            call(image)


def test_a_profile_is_of_the_program_for_the_inputs() -> None:
    model = compiled(classifier(), shapes={"x": ([2, 4], 3, 8, 8)})
    profile = model.profile({"x": draw(3, 3, 8, 8)}, runs=2)
    assert {"conv1", "conv2"} <= {row.node.partition("+")[0] for row in profile.rows}
    assert (4, 3, 8, 8) in [program.shapes["x"] for program in model.programs.ready]


def test_formats_and_plans_are_for_the_default_shape() -> None:
    proto = classifier(("N", 3, 8, 8))
    plan = sw.plan(proto, tune="model")
    for arguments in (
        {"plan": plan},
        {"input_formats": {"x": ["NCHW", "NHWC"]}},
        {"target": "ascend"},
    ):
        model = sw.compile(proto, tune="model", **arguments)
        assert not isinstance(model, sw.DynamicModel)
        assert model.plan.graph.value("x").shape == (1, 3, 8, 8)


def test_a_file_is_read_once(tmp_path: Any) -> None:
    path = tmp_path / "net.onnx"
    onnx.save(classifier(), path)
    model = compiled(path)
    path.unlink()
    right(model, classifier(), {"x": draw(1, 3, 8, 8)})
    right(model, classifier(), {"x": draw(2, 3, 8, 8)})


# --- the command line -----------------------------------------------------------------------------


def stridewise(*arguments: Any) -> tuple[int, str]:
    """Return the status of a command, and what it printed."""
    command = [sys.executable, "-m", "stridewise", *map(str, arguments)]
    done = subprocess.run(command, text=True, check=False, timeout=600, capture_output=True)
    return done.returncode, done.stdout or done.stderr


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    onnx.save(classifier(), tmp_path / "net.onnx")
    onnx.save(reshaped(), tmp_path / "reshaped.onnx")
    np.save(tmp_path / "image.npy", draw(2, 3, 8, 12))
    np.save(tmp_path / "small.npy", draw(1, 3, 8, 8))
    np.save(tmp_path / "shape.npy", np.array([3, -1]))
    return tmp_path


def test_run_takes_open_shapes_from_its_inputs(folder: Path) -> None:
    command = ("run", folder / "net.onnx", "--tune", "model", "--input", folder / "image.npy")
    status, output = stridewise(*command, "--json", "--output", folder / "out.npz")
    assert status == 0, output
    expected = run_onnxruntime(classifier(), {"x": draw(2, 3, 8, 12)})["y"]
    assert relative_error(np.load(folder / "out.npz")["y"], expected) < 1e-5
    status, output = stridewise(*command, "--shape", "x=1..2,3,H,W")
    assert status == 0, output
    status, output = stridewise(*command, "--shape", "x=4..8,3,H,W")
    assert status == 1
    assert "expected shape (N=4..8, 3, H, W), found (2, 3, 8, 12)" in output


def test_run_takes_values_from_its_inputs(folder: Path) -> None:
    status, output = stridewise(
        "run", folder / "reshaped.onnx", "--tune", "model", "--json",
        "--input", f"x={folder / 'small.npy'}", "--input", f"shape={folder / 'shape.npy'}",
    )  # fmt: skip
    assert status == 0, output
    assert json.loads(output)["outputs"][0]["shape"] == [3, 64]


def test_plan_takes_values_and_limits(folder: Path) -> None:
    command = ("plan", folder / "reshaped.onnx", "--tune", "model", "--json")
    status, output = stridewise(*command, "--shape", "shape=2")
    assert status == 1
    assert "--value shape=1,2" in output
    status, output = stridewise(*command, "--value", "shape=2,-1", "--shape", "x=2..4,3,8,8")
    assert status == 0, output
    assert "[2,192]" in output
    for wrong in ("shape=a", "shape"):
        status, output = stridewise(*command, "--value", wrong)
        assert status == 1
        assert "--value: expected NAME=" in output


@pytest.mark.parametrize("tune", ["model", "auto"])
def test_nodes_on_the_numpy_fallback_take_every_shape(tune):
    model = make(node("CumSum", "x", "axis"), shape=("N", 3), opset=14, constants={"axis": 1})
    compiled = sw.compile(model, tune=tune)
    for batch in (2, 5, 1):
        x = draw(batch, 3, seed=batch)
        np.testing.assert_allclose(compiled(x), np.cumsum(x, 1), rtol=1e-6)
