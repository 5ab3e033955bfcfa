"""``stridewise formats`` and ``stridewise reorder``, and the examples of docs/formats.md."""

from __future__ import annotations

import doctest
import os
import re
import shlex
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import ml_dtypes
import numpy as np
import pytest

import stridewise as sw
from stridewise.cli.formats import parse_extents
from stridewise.errors import FormatError, InputError
from stridewise.formats import Parameters, dialects, names, parse

from .commands import Done, Run, fails, own_cache, run, start

__all__ = ["own_cache", "run"]

Array = np.ndarray[Any, np.dtype[Any]]
DOCS = (Path(__file__).parents[2] / "docs" / "formats.md").read_text(encoding="utf-8")


def ok(done: Done) -> str:
    assert (done.status, done.err) == (0, "")
    return done.out


# --- docs/formats.md ------------------------------------------------------------------------------


def test_the_examples_in_python() -> None:
    blocks = re.findall(r"```python\n(.*?)```", DOCS, re.DOTALL)
    runner = doctest.DocTestRunner()
    names_: dict[str, Any] = {}
    for block in blocks:
        test = doctest.DocTestParser().get_doctest(block, names_, "formats.md", None, 0)
        runner.run(test, clear_globs=False)
        names_ = test.globs
    assert runner.summarize(verbose=False).failed == 0
    assert len(blocks) > 8


CONSOLE = re.findall(r"```console\n\$ stridewise (.*?)\n(.*?)```", DOCS, re.DOTALL)


@pytest.mark.parametrize(("command", "expected"), CONSOLE)
def test_the_examples_on_the_command_line(run: Run, command: str, expected: str) -> None:
    pattern = ".*".join(map(re.escape, expected.split("...\n")))
    assert re.fullmatch(pattern, ok(run(*shlex.split(command))), re.DOTALL)


# --- formats list ---------------------------------------------------------------------------------


def test_list_names_every_dialect(run: Run) -> None:
    head, *lines = ok(run("formats", "list")).splitlines()
    assert head.split() == ["dialect", "system", "names", "example"]
    assert [line.split()[0] for line in lines] == list(dialects())
    found = run("formats", "list", "--json").json
    assert [row["name"] for row in found] == list(dialects())
    assert {row["name"]: row["names"] for row in found}["pytorch"] == 4


@pytest.mark.parametrize("dialect", dialects())
def test_list_names_every_name(run: Run, dialect: str) -> None:
    found = run("formats", "list", "--dialect", dialect, "--json").json
    assert [row["name"] for row in found] == list(names(dialect))
    for row in found:
        assert set(row) in ({"name", "format"}, {"name", "refused"})
    out = ok(run("formats", "list", "--dialect", dialect))
    assert len(out.splitlines()) == max(len(found), 1)


def test_list_gives_formats_and_reasons(run: Run) -> None:
    lines = ok(run("formats", "list", "--dialect", "ascend", "--dtype", "int8")).splitlines()
    rows = {line.split()[0]: line for line in lines}
    assert rows["NC1HWC0"].endswith("N,C,H,W: walk N C H W 32*C")
    assert "refused: " in rows["C1HWNCoC0"]
    assert "filled along the diagonal" in rows["C1HWNCoC0"]
    assert "give dtype= or block=" in ok(run("formats", "list", "--dialect", "ascend"))


# --- formats show ---------------------------------------------------------------------------------


def test_show_prints_the_walk_and_the_other_names(run: Run) -> None:
    out = ok(run("formats", "show", "nChw4c"))
    lines = out.splitlines()
    assert lines[:6] == [
        "name     nChw4c",
        "format   N,C,H,W: walk N C H W 4*C",
        "axes     N C H W",
        "blocks   4*C",
        "padding  C to a multiple of 4, with zeros",
        "names",
    ]
    rows = {line.split()[0]: line.split(maxsplit=2)[1:] for line in lines[6:]}
    assert tuple(rows) == dialects()
    assert rows["openvino"] == ["b_fs_yx_fsv4"]
    assert rows["tensorflow"] == ["NCHW_VECT_C", "does not pad: C must be a multiple of 4"]
    assert rows["cute"] == ["-"]
    assert rows["onnxruntime"] == ["-", "give block=, which some names depend on"]


def test_show_as_json_is_what_the_algebra_gives(run: Run) -> None:
    found = run("formats", "show", "NHWC", "--shape", "2,3,4,5", "--dtype", "f16", "--json").json
    assert found["format"] == "N,C,H,W: walk N H W C"
    assert found["blocks"] == []
    assert found["padding"] == "none"
    tensor = found["tensor"]
    assert tensor["storage_shape"] == [2, 4, 5, 3]
    assert tensor["padded_shape"] == [2, 3, 4, 5]
    assert (tensor["elements"], tensor["stored"], tensor["bytes"]) == (120, 120, 240)
    assert tensor["padding"] == 0
    assert {loop["axis"]: loop["stride"] for loop in tensor["loops"]} == {
        "N": 60, "H": 15, "W": 3, "C": 1,
    }  # fmt: skip
    fmt = parse("NHWC")
    assert tensor["map"] == [list(fmt.index(at, (2, 3, 4, 5)) or ()) for at in range(120)]
    assert run("formats", "show", "NHWC", "--json").json["tensor"] is None


def test_show_maps_small_tensors(run: Run) -> None:
    out = ok(run("formats", "show", "b_fs_yx_fsv16", "--shape", "2,2,2,2"))
    assert "i = 17 => [b=0; f=1; y=0; x=1]\n" in out
    assert "i = 40 => padding\n" in out
    assert out.count("i = ") == 128
    assert "i = 1 => [n=0; c=1; h=0; w=0]\n" in ok(run("formats", "show", "NHWC", "--shape",
                                                      "1,2,1,1"))  # fmt: skip
    assert "i = " not in ok(run("formats", "show", "b_fs_yx_fsv16", "--shape", "2,2,2,5"))


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("b_fs_yx_fsv4", "--dialect", "openvino_gpu", "--shape", "1,4,1,1"), "i = 1 => [b=0; f=1"),
        (("bfzyx", "--shape", "1,1,1,1,2"), "i = 1 => [b=0; f=0; z=0; y=0; x=1]"),
        (("oiyx", "--shape", "1,1,1,2"), "i = 1 => [o=0; i=0; y=0; x=1]"),
        (("NC1HWC0", "--dtype", "int8", "--shape", "1,1,1,1"), "bytes     32\n"),
        (("NC1HWC0", "--dtype", "int4", "--shape", "1,1,1,1"), "bytes     32\n"),
        (("NC1HWC0", "--block", "8", "--shape", "1,1,1,1"), "bytes     32\n"),
        (("CUDNN_TENSOR_NCHW_VECT_C", "--dtype", "int8x4", "--shape", "1,4,1,1"), "bytes     4\n"),
        (("contiguous_format", "--shape", "1,2,3"), "walk N C W\n"),
        (("contiguous_format", "--rank", "5"), "walk N C D H W\n"),
        (("kDLA_HWC4", "--device", "orin", "--dtype", "int8"), "pad W 16"),
        (("Mat dims=3 elempack=1", "--dtype", "f32"),
         "padding  what follows |4 to a multiple of 4 elements\n"),
        (("ND_RNN_BIAS", "--block", "16", "--hidden-size", "5"), "split a = Gate Hidden 5"),
        (("ND", "--rank", "0", "--shape", ""), "shape     scalar (no axes), float32\n"),
        (("{1,3,2,0}", "--axes", "NCHW"), "name     NHWC\n"),
        (("{3,2,1,0}", "--axes", "NHWC"), "walk N H W C\naxes     N C H W\n"),
        (("{1,0}", "--axes", "rows,columns"), "rows,columns: walk rows columns"),
        (("NHWC", "--shape", "0,3,4,4"), "elements  0, 0 stored\n"),
    ],
    ids=lambda item: " ".join(item) if isinstance(item, tuple) else "",
)  # fmt: skip
def test_show_takes_what_names_depend_on(
    run: Run, arguments: tuple[str, ...], expected: str
) -> None:
    assert expected in ok(run("formats", "show", *arguments))


def test_show_saves_a_picture(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "a.svg"
    out = ok(run("formats", "show", "b_fs_yx_fsv4", "--shape", "1,5,2,2", "--svg", path))
    assert out.endswith(f"picture saved to {path}\n")
    root = ET.parse(path).getroot()
    assert root.findtext("{http://www.w3.org/2000/svg}title") == "b_fs_yx_fsv4"
    assert ">f4</text>" in path.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (("nChw16d",), ("format", "nChw16")),
        (("NCWH16",), ("a name of a memory format", "'NCWH16'")),
        (("NC4HW4",), ("several", "mnn", "mindspore_lite")),
        (("NC1HWC0",), ("Ascend format 'NC1HWC0'", "the block C0")),
        (("NHWC", "--dialect", "nobody"), ("dialect", "onednn", "'nobody'")),
        (("NHWC", "--shape", "1,2,3"), ("4 non-negative extents", "(1, 2, 3)")),
        (("NHWC", "--shape", "1,-2,3,4"), ("--shape", "1,32,4,4", "'1,-2,3,4'")),
        (("NHWC", "--shape", "1,\N{SUPERSCRIPT TWO},3,4"), ("--shape",)),
        (("NHWC", "--shape", "1,2,3,4", "--dtype", "float17"), ("dtype", "float17")),
        (("NCHW_VECT_C", "--shape", "1,3,1,1"), ("a multiple of 4 along C", "found 3")),
        (("NHWC", "--shape", "9999999999,9999999999,9,9"), ("2**63",)),
        (("NHWC", "--axes", "OI"), ("--axes", "4 different names", "OI")),
        (("NHWC", "--axes", "OIOI"), ("--axes", "4 different names")),
        (("NHWC", "--shape", "1,3,224,224", "--svg", "a.svg"), ("4096", "draw a small tensor")),
        (("NHWC", "--shape", "1,3,2,2", "--svg", "no/such/a.svg"), ("--svg", "no/such/a.svg")),
    ],
    ids=" ".join,
)  # fmt: skip
def test_what_cannot_be_shown(
    run: Run, arguments: tuple[str, ...], parts: tuple[str, ...], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    fails(run("formats", "show", *arguments), *parts)
    assert not list(tmp_path.iterdir())


# --- formats translate ----------------------------------------------------------------------------


def test_translate_prints_a_line_for_each_target(run: Run) -> None:
    out = ok(run("formats", "translate", "nChw4c", "--to", "openvino, ascend,tf,xla,cute"))
    assert out.splitlines() == [
        "openvino    b_fs_yx_fsv4",
        "ascend      NC1HWC0_C04",
        "tensorflow  none; NCHW_VECT_C puts elements in the same places, but does not pad: "
        "C must be a multiple of 4",
        "xla         none; {3,2,1,0:T(4,1,1)} puts elements in the same places, but a b c d stand "
        "for N C H W; padding holds anything",
        "cute        none: format nChw4c: expected one that CuTe has a name for, found none",
    ]
    out = ok(run("formats", "translate", "NCHW", "--to", "xla"))
    assert out == "xla  {3,2,1,0}  (a b c d stand for N C H W)\n"


@pytest.mark.parametrize("targets", ["tf", "cute,tf"])
def test_translate_fails_where_no_target_has_a_name(run: Run, targets: str) -> None:
    done = run("formats", "translate", "nChw4c", "--to", targets)
    assert (done.status, done.err) == (1, "")
    assert done.out.count("\n") == targets.count(",") + 1
    done = run("formats", "translate", "nChw4c", "--to", targets, "--json")
    assert done.status == 1
    assert not any(row["exact"] for row in done.json)


def test_translate_gives_axes_a_meaning(run: Run) -> None:
    options = ("--axes", "OIHW", "--to", "onednn,tvm", "--json")
    found = run("formats", "translate", "ABcd16b16a", *options).json
    assert [row["name"] for row in found] == ["OIhw16i16o", "OIHW16i16o"]
    fractal = ("FRACTAL_Z", "--block", "16", "--axes", "OIHW", "--to", "stridewise,ascend")
    assert ok(run("formats", "translate", *fractal)).splitlines() == [
        "stridewise  O,I,H,W: walk I H W O 16*O 16*I",
        "ascend      FRACTAL_Z  (N C H W stand for O I H W)",
    ]


def test_translate_to_nobody(run: Run) -> None:
    done = run("formats", "translate", "NHWC", "--to", "onednn,nobody")
    fails(done, "dialect", "one of stridewise, onednn", "'nobody'")


@pytest.mark.parametrize(
    "arguments",
    [
        ("formats", "show"),
        ("formats", "show", "NHWC", "--rank", "-1"),
        ("formats", "show", "NHWC", "--rank", "13"),
        ("formats", "show", "NHWC", "--block", "0"),
        ("formats", "show", "NHWC", "--svg", "a.svg"),
        ("formats", "translate", "NHWC"),
        ("formats", "translate", "NHWC", "--to", ","),
        ("formats", "draw"),
        ("reorder", "a.npy"),
        ("reorder", "a.npy", "b.npy", "--from", "nchw"),
        ("reorder", "a.npy", "b.npy", "--from", "nchw", "--to", "nhwc", "--threads", "0"),
        ("reorder", "a.npy", "b.npy", "--from", "nchw", "--to", "nhwc", "--scale", "x"),
    ],
    ids=" ".join,
)
def test_wrong_usage(run: Run, arguments: tuple[str, ...]) -> None:
    done = run(*arguments)
    assert (done.status, done.out) == (2, "")
    assert done.err.startswith("Usage: ")


def test_extents() -> None:
    assert parse_extents("1, 2,3") == (1, 2, 3)
    assert parse_extents("") == ()
    with pytest.raises(InputError, match="--box"):
        parse_extents("1,,2", "--box")


def test_formats_need_no_native_code() -> None:
    library = {**os.environ, "STRIDEWISE_LIBDNNL": "/no/such/library"}
    done = start("formats", "show", "nChw16c", "--shape", "1,3,2,2", env=library)
    assert (done.returncode, done.stderr) == (0, "")


# --- reorder --------------------------------------------------------------------------------------


@pytest.fixture
def image(tmp_path: Path) -> Path:
    path = tmp_path / "in.npy"
    np.save(path, np.random.default_rng(0).standard_normal((2, 5, 3, 4)).astype(np.float32))
    return path


def moved(run: Run, source: Path, *options: object) -> Array:
    out = source.with_name("out.npy")
    ok(run("reorder", source, out, *options))
    array: Array = np.load(out, allow_pickle=False)
    return array


def test_reorder_is_that_of_the_api(run: Run, image: Path) -> None:
    x = np.load(image)
    there = moved(run, image, "--from", "nchw", "--to", "nChw16c")
    np.testing.assert_array_equal(there, sw.reorder(x, "NCHW", "nChw16c"), strict=True)
    back = moved(
        run, image.with_name("out.npy"), "--from", "nChw16c", "--to", "nchw", "--shape", "2,5,3,4"
    )
    np.testing.assert_array_equal(back, x, strict=True)


def test_reorder_prints_what_was_moved(run: Run, image: Path) -> None:
    out = image.with_name("out.npy")
    text = ok(run("reorder", image, out, "--from", "nchw", "--to", "nChw8c"))
    tensor, source, target, speed, last = text.splitlines()
    assert tensor == "tensor    N=2 C=5 H=3 W=4"
    assert source == "from      NCHW, float32 2x5x3x4, 480 bytes"
    assert target == "to        nChw8c, float32 2x1x3x4x8, 768 bytes"
    assert re.fullmatch(
        r"moved in  \d+\.\d us, \d+\.\d\d GB/s read and written, engine \w+, threads 1", speed
    )
    assert last == f"saved to {out}"


def test_reorder_as_json(run: Run, image: Path) -> None:
    out = image.with_name("out.npy")
    options = ("--from", "nchw", "--to", "nhwc", "--dtype", "f16", "--threads", 2, "--json")
    found = run("reorder", image, out, *options).json
    assert found["tensor"] == {"N": 2, "C": 5, "H": 3, "W": 4}
    assert found["from"] == {
        "format": "NCHW", "dtype": "float32", "shape": [2, 5, 3, 4], "bytes": 480,
    }  # fmt: skip
    assert found["to"] == {
        "format": "NHWC", "dtype": "float16", "shape": [2, 3, 4, 5], "bytes": 240,
    }  # fmt: skip
    assert found["threads"] == 2
    assert found["us"] > 0
    assert found["gb_per_s"] > 0
    assert np.load(out).dtype == np.float16


def test_reorder_keeps_the_engine_that_it_measured(run: Run, tmp_path: Path) -> None:
    source, out = tmp_path / "large.npy", tmp_path / "out.npy"
    np.save(source, np.zeros((1, 64, 64, 64), np.float32))
    cache = tmp_path / "own"
    options = ("--from", "nchw", "--to", "nhwc", "--cache-dir", cache, "--json")
    first = run("reorder", source, out, *options).json
    assert list(cache.rglob("*.sqlite"))
    assert run("reorder", source, out, *options).json["engine"] == first["engine"]


def test_reorder_quantizes_and_back(run: Run, image: Path) -> None:
    x = np.load(image)
    scales = ("--scale", 0.05, "--zero-point", 3)
    q = moved(run, image, "--from", "nchw", "--to", "nhwc", "--dtype", "int8", *scales)
    assert q.dtype == np.int8
    expected = sw.Quantization(0.05, 3)
    np.testing.assert_array_equal(
        q, sw.reorder(x, "NCHW", "NHWC", dtype="int8", dst_quantization=expected)
    )
    out = image.with_name("out.npy")
    back = moved(run, out, "--from", "nhwc", "--to", "nchw", "--dtype", "f32", *scales)
    assert np.abs(back - x).max() <= 0.026
    zero = moved(
        run, image, "--from", "nchw", "--to", "nchw", "--dtype", "s32", "--zero-point", 100
    )
    np.testing.assert_array_equal(zero, np.rint(x).astype(np.int32) + 100)


def test_bfloat16_is_saved_as_its_bits(run: Run, image: Path) -> None:
    x = np.load(image)
    out = image.with_name("out.npy")
    text = ok(run("reorder", image, out, "--from", "nchw", "--to", "nhwc", "--dtype", "bfloat16"))
    assert text.endswith(f"saved to {out} as uint16, the bits of bfloat16\n")
    bits = np.load(out)
    assert bits.dtype == np.uint16
    wanted = x.astype(ml_dtypes.bfloat16).transpose(0, 2, 3, 1)
    np.testing.assert_array_equal(bits.view(ml_dtypes.bfloat16), wanted)
    back = moved(
        run, out, "--from", "nhwc", "--to", "nchw", "--from-dtype", "bf16", "--dtype", "f32"
    )
    np.testing.assert_array_equal(back, x.astype(ml_dtypes.bfloat16).astype(np.float32))


def test_bfloat16_as_numpy_saves_it(run: Run, image: Path) -> None:
    x = np.load(image).astype(ml_dtypes.bfloat16)
    np.save(image, x)
    options = ("--from", "nchw", "--to", "nhwc")
    bits = moved(run, image, *options, "--from-dtype", "bfloat16")
    np.testing.assert_array_equal(bits, x.view(np.uint16).transpose(0, 2, 3, 1), strict=True)
    fails(run("reorder", image, "b.npy", *options), str(image), "--from-dtype bfloat16")


def test_arrays_of_other_orders_and_ends(run: Run, image: Path) -> None:
    x = np.load(image)
    np.save(image, np.asfortranarray(x.astype(">f4")))
    found = moved(run, image, "--from", "nchw", "--to", "nChw4c")
    np.testing.assert_array_equal(found, sw.reorder(x, "NCHW", "nChw4c"), strict=True)


def test_reorder_takes_dialects(run: Run, image: Path) -> None:
    found = moved(run, image, "--from", "nchw", "--to", "NC4HW4", "--to-dialect", "mnn")
    assert found.shape == (2, 2, 3, 4, 4)  # C, N, H, W, 4
    options = ("--from", "NC4HW4", "--from-dialect", "mnn", "--to", "nchw", "--shape", "2,5,3,4")
    back = moved(run, image.with_name("out.npy"), *options)
    np.testing.assert_array_equal(back, np.load(image), strict=True)


def test_reorder_of_nothing_and_of_scalars(run: Run, image: Path) -> None:
    np.save(image, np.zeros((0, 3, 2, 2), np.float32))
    assert moved(run, image, "--from", "nchw", "--to", "nhwc").shape == (0, 2, 2, 3)
    np.save(image, np.float32(7))
    found = moved(run, image, "--from", ": walk ", "--to", ": walk ", "--dtype", "int8")
    assert (found.shape, found.item()) == ((), 7)


def test_an_array_may_take_the_place_of_its_source(run: Run, image: Path) -> None:
    x = np.load(image)
    ok(run("reorder", image, image, "--from", "nchw", "--to", "nhwc"))
    np.testing.assert_array_equal(np.load(image), x.transpose(0, 2, 3, 1), strict=True)


def test_a_link_stays_a_link(run: Run, image: Path) -> None:
    link = image.with_name("link.npy")
    link.symlink_to("target.npy")
    ok(run("reorder", image, link, "--from", "nchw", "--to", "nhwc"))
    assert link.is_symlink()
    assert np.load(image.with_name("target.npy")).shape == (2, 3, 4, 5)


NPY = b"\x93NUMPY\x01\x00"


@pytest.mark.parametrize(
    ("content", "parts"),
    [
        (None, ("a .npy file", "no such file")),
        (b"", ("a .npy file", "another file")),
        (b"PK\x03\x04", ("a .npy file", "another file")),
        (NPY, ("a .npy file",)),
        (NPY + b"\x10\x00garbage garbage\n", ("a .npy file",)),
        (np.zeros((2, 5, 3)), ("NCHW", "storage shape (N, C, H, W)", "(2, 5, 3)")),
        (np.array([{}], object), ("a .npy file", "Object arrays")),
        (np.zeros((1, 1, 1, 1), "c8"), ("dtype", "complex64")),
        (np.array([[[["a"]]]]), ("dtype", "str32")),
        (np.zeros((1, 1, 1, 1), [("a", "f4"), ("b", "f4")]), ("an array of numbers",)),
    ],
    ids=["missing", "empty", "archive", "magic", "garbage", "rank", "objects", "complex", "text",
         "records"],
)  # fmt: skip
def test_arrays_that_cannot_be_read(
    run: Run, tmp_path: Path, content: Array | bytes | None, parts: tuple[str, ...]
) -> None:
    source, out = tmp_path / "in.npy", tmp_path / "out.npy"
    if isinstance(content, bytes):
        source.write_bytes(content)
    elif content is not None:
        np.save(source, content, allow_pickle=True)
    out.write_bytes(b"precious")
    fails(run("reorder", source, out, "--from", "nchw", "--to", "nhwc"), *parts)
    assert out.read_bytes() == b"precious"
    assert {path.name for path in tmp_path.iterdir()} <= {"in.npy", "out.npy", "cache"}


def test_a_truncated_array(run: Run, image: Path) -> None:
    image.write_bytes(image.read_bytes()[:-40])
    done = run("reorder", image, image, "--from", "nchw", "--to", "nhwc")
    fails(done, str(image), "a .npy file", "could only read 110")


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        (("--from", "nchw", "--to", "nothing"), ("a name of a memory format", "'nothing'")),
        (("--from", "nchw", "--to", "oihw"), ("an origin over the axes", "O, I, H, W")),
        (("--from", "nchw", "--to", "NC4HW4"), ("several", "mnn")),
        (("--from", "nchw", "--to", "NHWC", "--to-dialect", "nobody"), ("dialect", "'nobody'")),
        (("--from", "nChw16c", "--to", "nchw"), ("(N, C, H, W, 16)", "(2, 5, 3, 4)")),
        (("--from", "nchw", "--to", "nhwc", "--shape", "1,2,3,4"), ("(2, 5, 3, 4)",)),
        (("--from", "nchw", "--to", "nhwc", "--shape", "a"), ("--shape", "'a'")),
        (("--from", "nchw", "--to", "nhwc", "--dtype", "f17"), ("--dtype", "f17")),
        (("--from", "nchw", "--to", "nhwc", "--dtype", "int64"), ("float32 and int64",)),
        (("--from", "nchw", "--to", "nhwc", "--from-dtype", "f17"), ("--from-dtype", "f17")),
        (("--from", "nchw", "--to", "nhwc", "--from-dtype", "bf16"), ("uint16", "float32")),
        (("--from", "nchw", "--to", "nhwc", "--from-dtype", "int8"), ("int8", "float32")),
        (("--from", "nchw", "--to", "nhwc", "--scale", "2"), ("integers", "float32 and float32")),
        (("--from", "nchw", "--to", "nhwc", "--dtype", "s8", "--scale", "0"), ("positive",)),
        (("--from", "nchw", "--to", "nhwc", "--dtype", "s8", "--scale", "nan"), ("positive",)),
        (("--from", "nchw", "--to", "nhwc", "--dtype", "s8", "--zero-point", 2**30), ("2**24",)),
    ],
    ids=lambda item: " ".join(map(str, item)),
)  # fmt: skip
def test_what_cannot_be_moved(
    run: Run, image: Path, options: tuple[str, ...], parts: tuple[str, ...]
) -> None:
    out = image.with_name("out.npy")
    out.write_bytes(b"precious")
    fails(run("reorder", image, out, *options), *parts)
    assert out.read_bytes() == b"precious"


def test_outputs_that_cannot_be_written(
    run: Run, image: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    formats = ("--from", "nchw", "--to", "nhwc")
    folder, pipe = image.parent, image.with_name("pipe")
    fails(run("reorder", image, folder / "no" / "x.npy", *formats), "output", str(folder / "no"))
    fails(run("reorder", image, folder, *formats), "output", "Is a directory")
    os.mkfifo(pipe)
    fails(run("reorder", image, pipe, *formats), "output", "Not a regular file")
    assert pipe.is_fifo()

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    out = image.with_name("out.npy")
    out.write_bytes(b"precious")
    monkeypatch.setattr(np.lib.format, "write_array", full)
    fails(run("reorder", image, out, *formats), str(out), "No space left on device")
    assert out.read_bytes() == b"precious"
    assert not list(folder.glob(".*"))


def test_errors_have_a_traceback_on_demand(image: Path) -> None:
    command = ("reorder", image, image, "--from", "nchw", "--to", "nothing")
    quiet, loud = start(*command), start("--debug", *command)
    fails(Done(quiet.returncode, quiet.stdout, quiet.stderr), "'nothing'")
    assert "Traceback (most recent call last)" in loud.stderr
    with pytest.raises(FormatError):
        parse("nothing", None, Parameters())
