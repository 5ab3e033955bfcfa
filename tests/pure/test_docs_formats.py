"""docs/formats.md: its table and its pictures are what the code makes now."""

from __future__ import annotations

import re
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest

from stridewise.errors import FormatError
from stridewise.formats import Format, Parameters, dialects, parse, spell
from stridewise.formats.dialects import DIALECTS
from stridewise.formats.dialects.equivalents import (
    equivalent,
    equivalents,
    padding_rule,
    with_policy,
)

DOCS = Path(__file__).parents[2] / "docs"


def generator() -> ModuleType:
    spec = spec_from_file_location("make_formats", DOCS / "make_formats.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


MAKE = generator()
GENERATED = MAKE.generated()


@pytest.mark.parametrize("path", list(GENERATED), ids=lambda path: path.name)
def test_what_is_generated_is_up_to_date(path: Path):
    assert path.read_text(encoding="utf-8") == GENERATED[path], "run python docs/make_formats.py"


def test_every_picture_is_shown_and_there():
    shown = set(re.findall(r"\]\((pictures/\S+\.svg)\)", MAKE.PAGE.read_text(encoding="utf-8")))
    assert shown == {str(path.relative_to(DOCS)) for path in GENERATED if path.suffix == ".svg"}
    assert shown == {f"pictures/{path.name}" for path in (DOCS / "pictures").glob("*.svg")}


def test_a_page_without_a_place_for_the_table():
    with pytest.raises(ValueError, match="no place for the table"):
        MAKE._between("nothing", "table", "text")


def rows() -> list[tuple[str, str, str, str]]:
    """Return walk, dialect, name and marks of each cell of the table."""
    head, _, *lines = MAKE.table().splitlines()
    titles = {dialect.title: name for name, dialect in DIALECTS.items()}
    found = []
    for line in lines:
        walk, *cells = split(line)
        names = [titles[title] for title in split(head)[1:]]
        for dialect, cell in zip(names, cells, strict=True):
            if cell:
                name, marks = re.fullmatch(r"`(.+)`(.*)", cell).groups()
                found.append((walk.strip("`"), dialect, name, marks))
    return found


def split(line: str) -> list[str]:
    return [cell.strip() for cell in line[1:-1].split("|")]


@pytest.mark.parametrize(("walk", "dialect", "name", "marks"), rows())
def test_what_the_table_says_holds(walk: str, dialect: str, name: str, marks: str):
    fmt = MAKE._format(walk)
    block = re.search(r"block=(\d+)", marks)
    given = Parameters(rank=fmt.rank, block=int(block[1]) if block else None)
    try:
        meant = parse(name, dialect, given)
    except FormatError:
        meant = parse(name, dialect)
    if "\u2020" in marks:
        meant = meant.renamed(dict(zip(meant.axes, fmt.axes, strict=True)))
    if "\u2248" in marks:
        assert meant != fmt
        policies = {meant.policy(axis) for axis in (*meant.axes, *meant.order)} - {"zero"}
        fmt = with_policy(fmt, policies.pop())
    assert meant == fmt


# --- equivalents ----------------------------------------------------------------------------------


@pytest.mark.parametrize("dialect", dialects())
def test_exact_names_are_those_that_are_spelled(dialect: str):
    fmt = parse("nChw16c")
    found = equivalent(fmt, dialect)
    if found.exact:
        assert (found.name, found.note) == (spell(fmt, dialect), "")
        return
    with pytest.raises(FormatError) as error:
        spell(fmt, dialect)
    assert found.name is not None or found.note == str(error.value)


def test_every_dialect_is_asked():
    assert tuple(found.dialect for found in equivalents(parse("NHWC"))) == dialects()


@pytest.mark.parametrize(
    ("name", "origin", "dialect", "expected"),
    [
        ("nChw4c", None, "tensorflow",
         ("NCHW_VECT_C", False, "does not pad: C must be a multiple of 4")),
        ("NCHW_VECT_C", "tensorflow", "onednn", ("nChw4c", False, "pads with zeros")),
        ("NCHW_VECT_C", "tensorflow", "cudnn", ("NC/4HW4", True, "")),
        ("nChw4c", None, "tf", ("NCHW_VECT_C", False, "does not pad: C must be a multiple of 4")),
        ("NCHW", None, "xla", ("{3,2,1,0}", True, "a b c d stand for N C H W")),
        ("nChw8c", None, "xla",
         ("{3,2,1,0:T(8,1,1)}", False, "a b c d stand for N C H W; padding holds anything")),
        ("oihw", None, "ascend", ("NCHW", True, "N C H W stand for O I H W")),
        ("RowMajor", "cutlass", "onednn", ("ab", True, "a b stand for M N")),
        ("{1,0:T(8,128)}", "xla", "tvm", ("AB8a128b", False, "pads with zeros")),
    ],
)  # fmt: skip
def test_the_nearest_name(
    name: str, origin: str | None, dialect: str, expected: tuple[str, bool, str]
):
    found = equivalent(parse(name, origin), dialect)
    assert (found.name, found.exact, found.note) == expected


def test_there_may_be_no_name():
    found = equivalent(parse("nChw4c"), "onnxruntime")
    assert (found.name, found.exact) == (None, False)
    assert "give block=" in found.note
    with pytest.raises(FormatError, match="expected one of stridewise"):
        equivalent(parse("NCHW"), "nobody")


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("N,C: walk N C", "none"),
        ("N,C: walk N 4*C", "none"),  # the extent is 4
        ("N,C: walk N C 4*C", "C to a multiple of 4, with zeros"),
        ("N,C: walk N C; pad C 4 divide", "C to a multiple of 4, which it must be"),
        ("N,C: walk N C 2*N 4*C; pad N 2 unspecified",
         "C to a multiple of 4, with zeros; N to a multiple of 2, with anything"),
        ("N,C: fuse K = N C; walk K 4*K; pad N 2",
         "N to a multiple of 2 and K to a multiple of 4, with zeros"),
    ],
)  # fmt: skip
def test_padding_in_words(name: str, rule: str):
    assert padding_rule(Format.parse(name)) == rule
