"""What the command line says where something is wrong."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto

from .commands import (
    Array,
    Done,
    Run,
    fails,
    image,
    model,
    own_cache,
    run,
    saved,
    start,
)
from .onnx_nodes import make, node

__all__ = ["image", "model", "own_cache", "run"]

# --- what is wrong --------------------------------------------------------------------------------

COMMANDS = (("run", "--random"), ("plan",), ("bench", "--vs", "onnxruntime", "--runs", "1"))
every_command = pytest.mark.parametrize("command", COMMANDS, ids=[c[0] for c in COMMANDS])


def on(command: tuple[str, ...], path: Path) -> tuple[object, ...]:
    return (command[0], path, *command[1:], "--tune", "model")


@every_command
def test_a_missing_file(run: Run, tmp_path: Path, command: tuple[str, ...]) -> None:
    fails(run(*on(command, tmp_path / "no.onnx")), "no.onnx", "an ONNX file", "no such file")


@every_command
def test_a_truncated_file(run: Run, model: Path, command: tuple[str, ...]) -> None:
    model.write_bytes(model.read_bytes()[:-200])
    fails(run(*on(command, model)), "net.onnx", "truncated or not ONNX")


@every_command
def test_a_text_file(run: Run, model: Path, command: tuple[str, ...]) -> None:
    model.write_text("[net]\nbatch=1\n", encoding="ascii")
    fails(run(*on(command, model)), "net.onnx", "found lines of text")


@every_command
def test_an_unknown_operator(run: Run, tmp_path: Path, command: tuple[str, ...]) -> None:
    path = saved(tmp_path, make(node("Dream", "x", name="night", domain="mine")))
    fails(run(*on(command, path)), "node 'night' (Dream)", "a supported operator")


@every_command
@pytest.mark.parametrize(
    ("op", "dtype", "name"),
    [("Relu", TensorProto.DOUBLE, "float64"), ("Identity", TensorProto.INT8, "int8")],
)
def test_another_dtype(
    run: Run, tmp_path: Path, command: tuple[str, ...], op: str, dtype: int, name: str
) -> None:
    path = saved(tmp_path, make(node(op, "x"), dtype=dtype))
    done = run(*on(command, path))
    assert done.status == 0, done.err
    if command[0] == "plan" and op == "Relu":
        assert f"input 0 is {name}, kernels take bfloat16, float16, float32\n" in done.out


@every_command
def test_inputs_that_are_no_numbers(run: Run, tmp_path: Path, command: tuple[str, ...]) -> None:
    path = saved(tmp_path, make(node("StringNormalizer", "x", locale="C"), shape=(3,), dtype=8))
    done = run(*on(command, path))
    if command[0] == "plan":
        assert "tail: 1 node (StringNormalizer)" in done.out
    else:
        fails(done, "inputs that are tensors of numbers, found 'x'", "from Python")


@every_command
@pytest.mark.parametrize(
    ("shape", "parts"),
    [
        ("x", ("--shape", "NAME=VALUE")),
        ("x=1,3,a b,8", ("--shape", "NAME=1,3,224,224", "x=1,3,a b,8")),
        ("x=1,3,-8,8", ("--shape", "NAME=1,3,224,224")),
        ("x=", ("--shape", "NAME=1,3,224,224")),
        ("z=1,3,8,8", ("names of inputs ('x')", "'z'")),
        ("x=1,3", ("input 'x'", "rank 4", "(1, 3)")),
        ("x=1,3,0,8", ("node 'conv1'", "f32[1,3,0,8]")),
        ("x=1,4,8,8", ("node 'conv1'", "3 input channels")),
    ],
)
def test_bad_shapes(
    run: Run, model: Path, command: tuple[str, ...], shape: str, parts: tuple[str, ...]
) -> None:
    fails(run(*on(command, model), "--shape", shape), *parts)


def test_an_open_extent_says_which_option_fixes_it(run: Run, tmp_path: Path) -> None:
    path = saved(tmp_path, make(node("Relu", "x"), shape=("N", 3, "H", "W")))
    fails(run("plan", path, "--tune", "model"), "(N, 3, H, W)", "--shape x=1,3,224,224")
    done = run("plan", path, "--tune", "model", "--shape", "x=1,3,4,4")
    assert done.status == 0


def wrong_shape(x: Array) -> Array:
    return x[:, :, :5]


def wrong_dtype(x: Array) -> Array:
    return x.astype(np.float64)


@pytest.mark.parametrize(
    ("change", "parts"),
    [
        (wrong_shape, ("input 'x'", "shape (1, 3, 8, 8)", "(1, 3, 5, 8)", "compile with shapes")),
        (wrong_dtype, ("input 'x'", "float32", "float64", "astype")),
    ],
)
def test_inputs_that_do_not_fit(
    run: Run, model: Path, image: Path, change: Callable[[Array], Array], parts: tuple[str, ...]
) -> None:
    np.save(image, change(np.load(image)))
    fails(run("run", model, "--input", f"x={image}", "--tune", "model"), *parts)


def test_inputs_of_wrong_names(run: Run, model: Path, image: Path) -> None:
    options = ("--input", f"z={image}", "--tune", "model")
    fails(run("run", model, *options), "inputs x", "found z", "--input x=FILE.npy")
    fails(run("run", model, *options, "--random"), "inputs x", "found z")


def test_no_input_at_all(run: Run, model: Path) -> None:
    fails(run("run", model, "--tune", "model"), "inputs x", "--input x=FILE.npy", "--random")


@pytest.mark.parametrize(
    ("content", "found"),
    [(None, "no such file"), (b"abc", "x.npy"), (b"\x93NUMPY\x01\x00", "x.npy")],
    ids=["missing", "text", "truncated"],
)
def test_inputs_that_are_no_arrays(
    run: Run, model: Path, tmp_path: Path, content: bytes | None, found: str
) -> None:
    path = tmp_path / "x.npy"
    if content is not None:
        path.write_bytes(content)
    fails(run("run", model, "--input", f"x={path}", "--tune", "model"), "a .npy file", found)


def test_an_archive_is_no_input(model: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", x=np.zeros(3))
    done = start("run", model, "--input", f"x={tmp_path / 'x.npz'}", "--tune", "model")
    wrong = Done(done.returncode, done.stdout, done.stderr)
    fails(wrong, "one array", "an archive", "numpy.save")


@pytest.mark.parametrize(
    "arguments",
    [
        ("run", "MODEL", "--random", "--output", "MODEL"),
        ("run", "MODEL", "--random", "--trace", "MODEL"),
        ("run", "MODEL", "--input", "x=IMAGE", "--output", "IMAGE"),
        ("plan", "MODEL", "--save", "MODEL"),
        ("plan", "MODEL", "--html", "MODEL"),
        ("plan", "MODEL", "--dot", "MODEL"),
        ("plan", "MODEL", "--annotated-onnx", "MODEL"),
        ("report", "MODEL", "--output", "MODEL"),
        ("quantize", "MODEL", "--calibration", "IMAGE", "--output", "MODEL"),
        ("quantize", "MODEL", "--calibration", "IMAGE", "--output", "IMAGE"),
    ],
    ids=" ".join,
)
def test_no_file_is_written_over_one_that_is_read(
    run: Run, model: Path, image: Path, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    link = tmp_path / "link"
    link.symlink_to(tmp_path, target_is_directory=True)
    before = model.read_bytes(), image.read_bytes()
    paths = {"MODEL": model, "IMAGE": image}
    given = [paths.get(item, item) for item in arguments]
    given = [f"x={image}" if item == "x=IMAGE" else item for item in given]
    fails(run(*given), "another file than that of")
    last = max(index for index, item in enumerate(given) if isinstance(item, Path))
    given[last] = link / given[last].name  # the same file by another name
    fails(run(*given), "another file than that of")
    assert (model.read_bytes(), image.read_bytes()) == before


def test_an_output_that_cannot_be_written(run: Run, model: Path, tmp_path: Path) -> None:
    output = tmp_path / "no" / "out.npz"
    done = run("run", model, "--random", "--tune", "model", "--output", output)
    fails(done, str(output))


@pytest.mark.parametrize(
    "arguments",
    [
        ("walk",),
        ("run",),
        ("plan", "net.onnx", "--tune", "guess"),
        ("plan", "net.onnx", "--threads", "0"),
        ("bench", "net.onnx", "--runs", "0"),
        ("info", "--fast"),
    ],
)
def test_wrong_usage(run: Run, arguments: tuple[str, ...]) -> None:
    done = run(*arguments)
    assert done.status == 2
    assert done.out == ""
    assert done.err.startswith("Usage: ")
    assert "Traceback" not in done.err


def test_a_broken_archive_is_no_input(run: Run, model: Path, tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    path.write_bytes(b"PK\x03\x04junk")
    fails(run("run", model, "--input", f"x={path}", "--tune", "model"), "a .npy file")


def test_a_tensor_larger_than_the_address_space(run: Run, model: Path) -> None:
    shape = ("--shape", "x=1,3,99999999,99999999")
    fails(run("run", model, "--random", "--tune", "model", *shape), "input 'x'", "iB of memory")


def test_digits_that_are_no_decimals(run: Run, model: Path) -> None:
    done = run("plan", model, "--tune", "model", "--shape", "x=1,3,\N{SUPERSCRIPT TWO},8")
    fails(done, "--shape", "NAME=1,3,224,224")


@pytest.mark.parametrize("command", ["run", "plan", "bench", "report"])
def test_models_that_need_more_than_the_limit(run: Run, model: Path, command: str) -> None:
    arguments = ["--random"] if command == "run" else []
    done = run(command, model, "--tune", "model", *arguments, "--memory-limit", "1 KiB")
    fails(done, "expected at most 1.0 KiB of memory")


def test_a_limit_that_is_high_enough(run: Run, model: Path) -> None:
    assert run("plan", model, "--tune", "model", "--memory-limit", "2GiB").status == 0


@pytest.mark.parametrize("text", ["", "0", "0.2", "-1MB", "2 gallons", "1e9", "2GiBs"])
def test_a_limit_that_is_no_number_of_bytes(run: Run, model: Path, text: str) -> None:
    done = run("plan", model, "--memory-limit", text)
    assert done.status == 2
    assert "a number of bytes: expected one like 2GiB" in done.err


def test_a_negative_seed_is_wrong_usage(run: Run, model: Path) -> None:
    assert run("run", model, "--random", "--tune", "model", "--seed", -1).status == 2


def test_outputs_of_any_name_are_saved(run: Run, tmp_path: Path) -> None:
    names = ("file", "allow_pickle", "a/b")
    proto = make(*(node("Relu", "x", outputs=[n], name=n) for n in names), outputs=names)
    output = tmp_path / "out.npz"
    path = saved(tmp_path, proto)
    done = run("run", path, "--random", "--tune", "model", "--output", output)
    assert done.status == 0
    with np.load(output, allow_pickle=False) as archive:
        assert sorted(archive) == sorted(names)


def test_a_batch_for_a_model_whose_outputs_have_no_shape(run: Run, model: Path) -> None:
    done = run(
        "bench", model, "--batch", 2, "--vs", "onnxruntime", "--runs", 1, "--tune", "model",
        "--json",
    )  # fmt: skip
    assert done.status == 0


def test_scalars_run(run: Run, tmp_path: Path) -> None:
    path = saved(tmp_path, make(node("Relu", "x"), shape=()))
    done = run("run", path, "--random", "--tune", "model", "--json")
    assert done.status == 0
    assert done.json["outputs"][0]["shape"] == []


def test_a_profile_is_in_the_json(run: Run, model: Path) -> None:
    done = run("run", model, "--random", "--tune", "model", "--profile", "--json")
    assert done.json["profile"][0]["node"] == "conv1"
