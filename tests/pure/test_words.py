"""Operators, passes and graphs do not speak of the kernel library, nor in its tags."""

from __future__ import annotations

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


@pytest.mark.parametrize("file", FILES)
def test_neutral_files_do_not_name_the_library(file):
    text = (PACKAGE / file).read_text(encoding="utf-8")
    assert not {match[0] for words in (LIBRARY, TAG) for match in words.finditer(text)}


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
