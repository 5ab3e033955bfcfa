"""Networks of the zoo, saved as ONNX models, in Stridewise and in other runtimes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import stridewise as sw
from stridewise import zoo

from .models import relative_error, run_onnxruntime

DATA_FORMATS = ("NCHW", "NHWC")
SIZES = {"alexnet": 67, "inception_v3": 75, "resnet50_fpn": 64}
"""Pixels a side, where 32 are too few for the layers, or leave maps of one pixel everywhere."""

OLDER = (
    "alexnet", "convnext_tiny", "densenet121", "efficientnet_b0", "mobilenet_v3_large",
    "regnet_y_400mf", "resnet18", "shufflenet_v2", "squeezenet1_1", "unet",
)  # fmt: skip
"""Networks that are tried on older instruction sets: half of all, and every operator."""

FULL = ("mobilenet_v2", "squeezenet1_1")
"""Networks that are tried at the size they were made for, too."""

Arrays = dict[str, np.ndarray]


def images(batch: int, extents: tuple[int, ...], data_format: str) -> np.ndarray:
    """The same images in either data format."""
    drawn = np.random.default_rng(0).standard_normal((batch, 3, *extents), np.float32)
    last = np.moveaxis(drawn, 1, -1) if data_format == "NHWC" else drawn
    return np.ascontiguousarray(last)


def saved(name: str, data_format: str, folder: Path, **sizes: int) -> tuple[Path, np.ndarray]:
    """A model in a file, and three images for it."""
    graph = zoo.build(name, 3, data_format, **sizes)
    shape = graph.value("image").shape
    extents = shape[1:-1] if data_format == "NHWC" else shape[2:]
    path = folder / f"{name}.onnx"
    sw.save(graph, path)
    return path, images(3, extents, data_format)


def small(name: str) -> dict[str, int]:
    return {"size": SIZES.get(name, 32)} | ({"frames": 4} if name == "resnet3d_18" else {})


def ours(path: Path, given: np.ndarray) -> Arrays:
    model = sw.compile(path, shapes={"image": given.shape}, tune="model", threads=2)
    return model.run({"image": given})


def agrees(found: Arrays, wanted: Arrays) -> None:
    assert set(found) == set(wanted)
    for name, array in found.items():
        # Whatever the batch, an image gives what it gives among others.
        assert relative_error(array, wanted[name][: len(array)]) < 1e-5, name


@pytest.mark.parametrize("data_format", DATA_FORMATS)
@pytest.mark.parametrize("name", zoo.models())
def test_networks_agree_with_onnx_runtime(name: str, data_format: str, tmp_path: Path):
    path, given = saved(name, data_format, tmp_path, **small(name))
    wanted = run_onnxruntime(path, {"image": given})
    # Each network has both batches, and each data format has both among its networks.
    alternates = DATA_FORMATS.index(data_format) + zoo.models().index(name)
    agrees(ours(path, given[: (1, 3)[alternates % 2]]), wanted)


@pytest.mark.parametrize("data_format", DATA_FORMATS)
@pytest.mark.parametrize("name", FULL)
def test_networks_of_full_size_agree_with_onnx_runtime(name: str, data_format: str, tmp_path: Path):
    path, given = saved(name, data_format, tmp_path)
    agrees(ours(path, given), run_onnxruntime(path, {"image": given}))


@pytest.mark.parametrize("isa", ["AVX2", "SSE41"])
def test_networks_agree_on_an_older_instruction_set(isa: str):
    """Each network runs on both sets, in one data format on each, and each set has both formats."""
    suite, shift = Path(__file__), ["AVX2", "SSE41"].index(isa)
    cases = [f"{name}-{DATA_FORMATS[(at + shift) % 2]}" for at, name in enumerate(OLDER)]
    names = " or ".join(cases)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-x", "--tb=short"]
    command += ["-n0", str(suite), "-k", f"test_networks_agree_with_onnx_runtime and ({names})"]
    done = subprocess.run(
        command,
        env={**os.environ, "ONEDNN_MAX_CPU_ISA": isa},
        cwd=suite.parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-5000:]
    assert f"{len(OLDER)} passed" in done.stdout


@pytest.mark.parametrize("data_format", DATA_FORMATS)
@pytest.mark.parametrize("name", ["mobilenet_v3_large", "shufflenet_v2", "squeezenet1_1", "unet"])
def test_openvino_loads_what_is_saved(name: str, data_format: str, tmp_path: Path):
    openvino = pytest.importorskip("openvino")
    path, given = saved(name, data_format, tmp_path, **small(name))
    core = openvino.Core()
    hint = {"INFERENCE_PRECISION_HINT": "f32"}
    model = core.compile_model(core.read_model(str(path)), "CPU", hint)
    found = model([given])
    theirs = {name: found[index] for index, name in enumerate(sw.load(path).outputs)}
    for output, array in ours(path, given).items():
        assert relative_error(array, theirs[output]) < 1e-4, output


@pytest.mark.parametrize("name", ["alexnet", "unet", "resnet3d_18", "convnext_tiny"])
def test_both_data_formats_are_one_model(name: str):
    outputs = []
    for data_format in DATA_FORMATS:
        graph = zoo.build(name, data_format=data_format, **small(name))
        rank = len(graph.value("image").shape)
        extents = (4, 32, 32) if rank == 5 else (small(name)["size"],) * 2
        model = sw.compile(graph, tune="model", threads=2)
        (found,) = model.run({"image": images(1, extents, data_format)}).values()
        maps = data_format == "NHWC" and found.ndim > 2
        outputs.append(np.moveaxis(found, -1, 1) if maps else found)
    assert relative_error(*outputs) < 1e-5
