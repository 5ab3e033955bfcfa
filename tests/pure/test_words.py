"""Names that stay in their folder: of the kernel library and its tags, and of model formats."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import stridewise

PACKAGE = Path(stridewise.__file__).parent
NEUTRAL = ("graph", "ops", "passes")

LIBRARY = re.compile(r"one-?dnn|mkldnn|dnnl|primitive", re.IGNORECASE)
TAG = re.compile(
    r"\bn[CDHW]?[cdhw]*[CDHW][a-z]*\d+c\b"  # nChw16c
    r"|\b[gG]?[OIoi]+[dhwDHW]*\d+[oi]\w*\b"  # OIhw16i16o
    r"|\b[aA][bB][a-fA-F]*\d+[a-f]\w*\b"  # aBcd16b
    r"|\b(?:abcd|abcde|acdb|acb|bacd|nchw|nhwc|ncdhw|oihw)\b"
)

FILES = sorted(
    path.relative_to(PACKAGE).as_posix()
    for folder in NEUTRAL
    for path in (PACKAGE / folder).glob("**/*.py")
)


def test_neutral_files_do_not_name_the_library():
    for file in FILES:
        text = (PACKAGE / file).read_text(encoding="utf-8")
        assert not {match[0] for words in (LIBRARY, TAG) for match in words.finditer(text)}, file


@pytest.mark.parametrize("word", ["oneDNN", "onednn-cpu", "dnnl", "primitive", "Primitives"])
def test_names_of_the_library_are_recognized(word):
    assert LIBRARY.search(f"a {word} kernel")


@pytest.mark.parametrize(
    "tag", ["nChw16c", "nCw8c", "nCdhw16c", "aBcd16b", "ABcd16b16a", "OIhw16i16o", "abcd", "acdb"]
)
def test_tags_are_recognized(tag):
    assert TAG.search(f"stored as {tag}, or {tag}")


@pytest.mark.parametrize("text", ["NCHW", "NHWC", "OIHW", "a * x", "collections.abc", "taps2"])
def test_other_words_are_no_tags(text):
    assert not TAG.search(text)


# --- model formats --------------------------------------------------------------------------------

MODEL_FORMAT = re.compile("onnx", re.IGNORECASE)
FRONT_END = ("frontends/onnx/", "onnx_backend.py")
NAMED_ON_PURPOSE = {
    "frontends/registry.py": "lists the front ends",
    "formats/dialects/onnxruntime.py": "formats of ONNX Runtime",
    "cli/bench.py": "compares with ONNX Runtime",
    "cli/report.py": "has the option --vs-onnxruntime",
    "cli/plan.py": "has the option --annotated-onnx",
}


def identifiers(text: str) -> set[str]:
    """The names in code: variables, attributes, parameters, functions, classes, and imports.

    Strings count if they are annotations. Comments, docstrings and messages do not count.
    """
    found: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        for field in ("name", "id", "attr", "arg", "asname", "module"):
            value = getattr(node, field, None)
            if isinstance(value, str):
                found.add(value)
        for field in ("annotation", "returns"):
            annotation = getattr(node, field, None)
            if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
                found.add(annotation.value)
        alias = isinstance(node, ast.AnnAssign) and ast.unparse(node.annotation) == "TypeAlias"
        if alias and isinstance(node.value, ast.Constant):
            found.add(str(node.value.value))
    return found


def formats_named(path: Path) -> set[str]:
    return set(filter(MODEL_FORMAT.search, identifiers(path.read_text(encoding="utf-8"))))


ALL_FILES = sorted(path.relative_to(PACKAGE).as_posix() for path in PACKAGE.glob("**/*.py"))


def test_only_its_front_end_names_a_model_format() -> None:
    for file in ALL_FILES:
        if not file.startswith(FRONT_END) and file not in NAMED_ON_PURPOSE:
            assert not MODEL_FORMAT.search(file)
            assert not formats_named(PACKAGE / file), file


@pytest.mark.parametrize("file", NAMED_ON_PURPOSE)
def test_exceptions_are_needed(file: str) -> None:
    assert MODEL_FORMAT.search(file) or formats_named(PACKAGE / file)


@pytest.mark.parametrize(
    "text",
    [
        "import onnx",
        "from onnx import ModelProto",
        "from a.onnx.b import c",
        "x = a.OnnxRuntime()",
        "def f(onnx_file): pass",
        "def f(x: 'onnx.ModelProto'): pass",
        "def f() -> 'onnx.ModelProto': pass",
        "f(annotated_onnx=1)",
        "class OnnxPart: pass",
        "Source: TypeAlias = 'Graph | onnx.ModelProto'",
    ],
)
def test_names_of_a_model_format_are_recognized(text: str) -> None:
    assert any(map(MODEL_FORMAT.search, identifiers(text)))


@pytest.mark.parametrize("text", ["'the path of an ONNX file'", "x = 1  # source: ONNX"])
def test_texts_may_name_a_model_format(text: str) -> None:
    assert not any(map(MODEL_FORMAT.search, identifiers(text)))
