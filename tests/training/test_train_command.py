"""``stridewise train``, and the example."""

from __future__ import annotations

import runpy
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

import stridewise as sw
from stridewise.api.checkpoints import read_checkpoint
from stridewise.cli.train import train
from stridewise.cli.training_data import Data, batches, pixels
from stridewise.errors import GraphError, InputError
from stridewise.runtime.machine.machine import this_machine

EXAMPLE = Path(__file__).parents[2] / "examples" / "train_shapes.py"


def run(*arguments: object) -> Result:
    options = ["--tune", "model", "--threads", "1"]
    found = CliRunner().invoke(train, [*map(str, arguments), *options], catch_exceptions=True)
    if found.exception is not None and not isinstance(found.exception, SystemExit):
        raise found.exception
    return found


@pytest.fixture
def model(tmp_path: Path) -> Path:
    b = sw.GraphBuilder("net")
    y = b.relu(b.conv2d(b.input("x", (8, 3, 6, 6)), 8, 3))
    sw.save(b.build([b.dense(b.flatten(b.global_avg_pool(y)), 2)]), tmp_path / "net.onnx")
    return tmp_path / "net.onnx"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, 40)
    x = rng.normal(size=(40, 3, 6, 6)) + labels.reshape(-1, 1, 1, 1)
    np.savez(tmp_path / "data.npz", x=x.astype(np.float32), labels=labels)
    return tmp_path / "data.npz"


def test_a_model_is_trained_and_continued(model: Path, data: Path, tmp_path: Path):
    paths = {key: tmp_path / name for key, name in (("-o", "out.onnx"), ("--curve", "c.svg"))}
    paths["--checkpoint"] = tmp_path / "c"
    given = [item for pair in paths.items() for item in pair]
    text = run(model, data, "--lr", 0.3, "--epochs", 8, "--test", data, *given).output
    assert "step 40: loss" in text
    assert float(text.rsplit("accuracy ", 1)[1]) > 0.9
    assert paths["--curve"].read_text().startswith("<svg")
    before, after = sw.load(model), sw.load(paths["-o"])
    assert len(before.constants) == len(after.constants)
    again = run(model, data, "--checkpoint", paths["--checkpoint"]).output
    assert "40 of 5 steps are done" in " ".join(again.split())


def _written(path: Path) -> int:
    """Return when a file was written, 0 if there is none."""
    return path.stat().st_mtime_ns if path.exists() else 0


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_a_training_that_was_killed_ends_as_one_that_was_not(
    optimizer: str, model: Path, data: Path, tmp_path: Path
):
    given = ("--epochs", 30, "--schedule", "cosine", "--seed", 3, "--optimizer", optimizer)
    run(model, data, *given, "--checkpoint", tmp_path / "whole", "-o", tmp_path / "whole.onnx")
    part = [model, data, *given, "--checkpoint", tmp_path / "part", "-o", tmp_path / "part.onnx"]
    code = "import sys; from stridewise.cli.train import train; train(sys.argv[1:])"
    checkpoint, before = tmp_path / "part", 0
    for _ in range(2):
        process = subprocess.Popen(
            [sys.executable, "-c", code, *map(str, part), "--tune", "model", "--threads", "1"],
            stdout=subprocess.DEVNULL,
        )
        while process.poll() is None and _written(checkpoint) == before:
            time.sleep(0.001)
        process.kill()
        process.wait()
        before = _written(checkpoint)
    assert "continued from" in run(*part).output
    found, wanted = (read_checkpoint(tmp_path / name) for name in ("part", "whole"))
    assert found.keys() == wanted.keys()
    for name, array in wanted.items():
        np.testing.assert_array_equal(found[name], array)
    assert (tmp_path / "part.onnx").read_bytes() == (tmp_path / "whole.onnx").read_bytes()


@given(
    st.integers(1, 40), st.integers(1, 9), st.integers(0, 2**48 - 1), st.integers(1, 4), st.data()
)
def test_batches_go_on_where_they_ended(count: int, size: int, seed: int, epochs: int, data: Any):
    items = Data(np.arange(count, dtype=np.float32).reshape(-1, 1), np.arange(count))
    if size > count:
        with pytest.raises(InputError, match=f"at least {size} items"):
            next(batches(items, size, seed, 0, epochs))
        return
    whole = [labels.tolist() for _, labels in batches(items, size, seed, 0, epochs)]
    steps = count // size
    assert len(whole) == epochs * steps
    for epoch in range(epochs):  # no item twice
        drawn = [item for batch in whole[epoch * steps : (epoch + 1) * steps] for item in batch]
        assert len(set(drawn)) == len(drawn)
    begin = data.draw(st.integers(0, len(whole) + 3))
    left = [labels.tolist() for _, labels in batches(items, size, seed, begin, epochs)]
    assert left == whole[begin:]


def test_a_model_is_trained_in_bfloat16(data: Path, tmp_path: Path):
    b = sw.GraphBuilder("net")
    y = b.relu(b.conv2d(b.relu(b.conv2d(b.input("x", (8, 3, 6, 6)), 32, 3, padding=1)), 32, 3))
    path = tmp_path / "wide.onnx"
    sw.save(b.build([b.dense(b.flatten(b.global_avg_pool(y)), 2)]), path)
    given = ("--clip-norm", 1, "--lr", 0.3, "--epochs", 8, "--test", data, "-o")
    trained: list[np.ndarray[Any, Any]] = []
    for dtype in ("bfloat16", "float32"):
        text = run(path, data, "--dtype", dtype, *given, tmp_path / "out.onnx").output
        assert float(text.rsplit("accuracy ", 1)[1]) > 0.9
        weights = sw.load(tmp_path / "out.onnx").constants.values()
        trained.append(np.concatenate([item.array.ravel() for item in weights]))
    assert trained[0].dtype == np.float32
    # Without products of bfloat16, all tensors may stay float32.
    assert (trained[0] != trained[1]).any() or not this_machine(2).has_bfloat16
    assert np.linalg.norm(trained[0] - trained[1]) < 2e-2 * np.linalg.norm(trained[1])


def test_a_folder_of_images_is_read(model: Path, tmp_path: Path):
    image_module = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
    rng = np.random.default_rng(0)
    for number, name in enumerate(("dark", "light")):
        (tmp_path / "images" / name).mkdir(parents=True)
        for index in range(8):
            pixels = rng.integers(0, 100, (9, 7, 3), np.uint8) + 150 * number
            path = tmp_path / "images" / name / f"{index}.png"
            image_module.fromarray(pixels.astype(np.uint8)).save(path)
    folder = tmp_path / "images"
    text = run(model, folder, "--lr", 0.3, "--epochs", 20, "--test", folder).output
    assert float(text.rsplit("accuracy ", 1)[1]) > 0.9


def test_images_of_any_mode_are_as_bright_as_they_are(tmp_path: Path):
    image_module = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
    grey = image_module.fromarray(np.full((9, 7), 100, np.uint8))
    made = {mode: grey.convert(mode) for mode in ("L", "LA", "P", "RGB", "RGBA", "CMYK", "YCbCr")}
    made["16"] = image_module.fromarray(np.full((9, 7), 100 * 257, np.uint16))
    for mode, image in made.items():
        path = tmp_path / f"{mode}.{'tif' if mode in ('CMYK', 'YCbCr') else 'png'}"
        image.save(path)
        for shape in ((3, 4, 5), (1, 4, 5), (4, 5, 3)):
            found = pixels(path, shape)
            assert found.shape == shape
            np.testing.assert_allclose(found, 100 / 127.5 - 1, atol=0.02, err_msg=mode)
    for dtype in (np.int32, np.float32):
        image_module.fromarray(np.ones((4, 5), dtype)).save(tmp_path / "wide.tif")
        with pytest.raises(InputError, match="numbers of 32 bits"):
            pixels(tmp_path / "wide.tif", (1, 4, 5))


def test_data_that_do_not_fit(model: Path, data: Path, tmp_path: Path):
    x, labels = np.zeros((4, 3, 6, 6), np.float32), np.zeros(4, int)
    wrong = {
        "at least 8 items": {"x": x, "labels": labels},
        "inputs of shape": {"x": x[:, :2], "labels": labels},
        r"x \[items, ...\] and labels": {"x": x, "labels": labels[:2]},
        "at least one item": {"x": x[:0], "labels": labels[:0]},
        "arrays x and labels": {"x": x},
        "finite numbers, found NaN": {"x": np.full_like(x, np.nan), "labels": labels},
        "finite numbers, found NaN or inf": {"x": np.full(x.shape, 1e300), "labels": labels},
        "labels from 0 to 1, as the model has 2 classes, found from 0 to 2": {
            "x": x, "labels": np.array([0, 1, 2, 0]),
        },
        "found from -1 to 0": {"x": x, "labels": np.array([0, -1, 0, 0])},
        "numbers x and integers labels, found float32 and float64": {"x": x, "labels": labels / 2},
        "found <U1 and int64": {"x": np.full((4, 3, 6, 6), "a"), "labels": labels},
    }  # fmt: skip
    for message, arrays in wrong.items():
        np.savez(tmp_path / "wrong.npz", allow_pickle=False, **arrays)
        with pytest.raises(InputError, match=message):
            run(model, tmp_path / "wrong.npz")
    np.save(tmp_path / "one.npy", x)
    for damaged in (data.read_bytes()[:100], b"", b"text", (tmp_path / "one.npy").read_bytes()):
        (tmp_path / "wrong.npz").write_bytes(damaged)
        with pytest.raises(InputError, match="arrays x and labels, found no archive"):
            run(model, tmp_path / "wrong.npz")
    middle = data.read_bytes()
    (tmp_path / "wrong.npz").write_bytes(middle[:300] + b"damaged" + middle[307:])
    with pytest.raises(InputError, match="arrays x and labels, found Bad CRC"):
        run(model, tmp_path / "wrong.npz")


def images(folder: Path, *classes: str) -> Path:
    image_module = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
    for name in classes:
        (folder / name).mkdir(parents=True)
        for index in range(4):
            pixels = np.random.default_rng(index).integers(0, 256, (6, 6, 3), np.uint8)
            image_module.fromarray(pixels).save(folder / name / f"{index}.png")
    return folder


def test_folders_that_do_not_fit(model: Path, tmp_path: Path):
    pytest.importorskip("PIL", reason="Pillow is not installed")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="found 0 images in 0 folders"):
        run(model, tmp_path / "empty")
    good, other = images(tmp_path / "good", "a", "b"), images(tmp_path / "other", "b", "c")
    with pytest.raises(InputError, match="the classes a, b, found b, c"):
        run(model, good, "--test", other)
    with pytest.raises(InputError, match="expected folders of images for two classes or more"):
        run(model, images(tmp_path / "one", "a"))
    (good / ".hidden").mkdir()
    (good / "a" / "._0.png").write_bytes(b"no image")
    run(model, good)
    (good / "c").mkdir()
    with pytest.raises(InputError, match="8 images in 3 folders, none in 'c'"):
        run(model, good)
    (good / "c").rmdir()
    many = images(tmp_path / "many", "a", "b", "c")
    with pytest.raises(InputError, match="the model has 2 classes, found from 0 to 2"):
        run(model, many)
    whole = (good / "a" / "0.png").read_bytes()
    for damaged in (b"", b"no image", whole[:40], whole[:90], whole[:30] + b"x" + whole[31:]):
        (good / "b" / "3.png").write_bytes(damaged)
        with pytest.raises(InputError, match=r"3\.png': expected a readable image"):
            run(model, good)


def test_what_is_written_needs_a_folder(model: Path, data: Path, tmp_path: Path):
    for option in ("--checkpoint", "--curve", "--output"):
        with pytest.raises(InputError, match="expected a folder for it"):
            run(model, data, option, tmp_path / "none" / "file")


def test_models_that_are_no_classifiers(data: Path, tmp_path: Path):
    b = sw.GraphBuilder("two")
    x, y = b.input("x", (8, 3)), b.input("y", (8, 3))
    sw.save(b.build([b.add(x, y)]), tmp_path / "two.onnx")
    b = sw.GraphBuilder("map")
    sw.save(b.build([b.conv2d(b.input("x", (8, 3, 6, 6)), 2, 3)]), tmp_path / "map.onnx")
    b = sw.GraphBuilder("none")
    none = b.op("identity", [b.constant(np.zeros((2, 3), np.float32))])
    sw.save(b.build([none]), tmp_path / "none.onnx")
    for name in ("two", "map", "none"):
        with pytest.raises(GraphError, match="one float32 input"):
            run(tmp_path / f"{name}.onnx", data)


def test_the_example_reaches_its_accuracy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    assert runpy.run_path(str(EXAMPLE))["main"](epochs=4, count=1024) > 0.8
    assert (tmp_path / "shapes.onnx").exists()
