"""Pictures: valid, self-contained, within their frame, with a cell for every element."""

from __future__ import annotations

import re
from itertools import pairwise
from math import prod
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.formats_strategies import formats, shapes

from stridewise.errors import FormatError
from stridewise.formats import Format, Parameters, element_count, offset, parse
from stridewise.formats.picture import LARGEST, svg

SVG = "{http://www.w3.org/2000/svg}"
SHAPE = (2, 5, 2, 2)


def texts(root: ET.Element) -> list[str]:
    return [item.text or "" for item in root.iter(f"{SVG}text")]


def cells(root: ET.Element) -> tuple[list[ET.Element], list[ET.Element]]:
    """Return the rectangles of elements (logical view and legend included), and of padding."""
    drawn = [item for item in root.iter(f"{SVG}rect") if item.get("x") is not None]
    padding = [item for item in drawn if item.get("fill") == "url(#padding)"]
    return [item for item in drawn if item not in padding], padding


def number(item: ET.Element, name: str) -> float:
    return float(item.get(name) or "nan")


@given(st.data())
def test_every_format_can_be_drawn(data: Any):
    fmt = data.draw(formats())
    shape = data.draw(shapes(fmt))
    stored = element_count(fmt, shape)
    if stored == 0:
        return
    root = ET.fromstring(svg(fmt, shape))
    colored, padding = cells(root)
    spare = stored - prod(shape)
    assert len(padding) == spare + (spare > 0)  # one is in the legend
    assert len(colored) >= prod(shape)
    width, height = number(root, "width"), number(root, "height")
    assert width <= 900
    for item in (*colored, *padding):
        assert 0 <= number(item, "x") <= number(item, "x") + number(item, "width") <= width
        assert 0 <= number(item, "y") <= number(item, "y") + number(item, "height") <= height
    for item in root.iter(f"{SVG}text"):
        assert 0 <= number(item, "x") <= width
        assert 0 <= number(item, "y") <= height


@pytest.mark.parametrize("name", ["NCHW", "NHWC", "nChw4c", "nChw8c", "NChw4n4c"])
def test_labels_are_in_the_order_of_memory(name: str):
    fmt = parse(name)
    labels = texts(ET.fromstring(svg(fmt, SHAPE)))
    places = []
    for upper, lower in pairwise(labels):
        if re.fullmatch(r"c\d", upper) and lower.count(",") == 2:
            n, h, w = map(int, lower.split(","))
            places.append(offset(fmt, (n, int(upper[1:]), h, w), SHAPE))
    assert len(places) == prod(SHAPE)
    assert places == sorted(places)


def test_a_channel_has_one_color():
    root = ET.fromstring(svg(parse("NHWC"), (1, 3, 1, 2)))
    colored, _ = cells(root)
    fills = [item.get("fill") for item in colored]
    planes, memory = fills[:6], fills[6:12]
    assert planes == [planes[0]] * 2 + [planes[2]] * 2 + [planes[4]] * 2
    assert len(set(planes)) == 3
    assert memory == [planes[0], planes[2], planes[4]] * 2


def test_lines_begin_at_their_offsets():
    found = texts(ET.fromstring(svg(parse("nChw4c"), SHAPE)))
    assert [text for text in found if text in ("0", "16", "32", "48")] == ["0", "16", "32", "48"]
    assert "n1 c4..7" in found
    assert "outermost to innermost: n c down the lines, then h w 4c along them" in found


def test_gaps_are_named():
    mat = Format.parse("Mat dims=3 elempack=4", "ncnn", dtype="float16")
    found = texts(ET.fromstring(svg(mat, (5, 3, 3))))
    assert found.count("a gap") == 2


def test_a_picture_says_what_it_shows():
    root = ET.fromstring(svg(parse("nChw4c"), SHAPE, title="four channels"))
    assert root.get("role") == "img"
    assert [item.tag for item in root][:2] == [f"{SVG}title", f"{SVG}desc"]
    assert root.findtext(f"{SVG}title") == "four channels"
    description = root.findtext(f"{SVG}desc") or ""
    assert "walk N C H W 4*C" in description
    assert "40 elements, 64 stored" in description
    assert "n=2 c=5 h=2 w=2, 40 elements, 64 stored, 37.5 % padding" in texts(root)


def test_axes_may_have_other_names():
    text = svg(parse("NHWC"), SHAPE, letters={"N": "b", "C": "f", "H": "y", "W": "x"})
    found = texts(ET.fromstring(text))
    assert "b=2 f=5 y=2 x=2, 40 elements, no padding" in found
    assert "f4" in found


def test_text_is_escaped():
    title = '<script>\x00\ud800 & "quotes" ]]>'
    root = ET.fromstring(svg(Format(("<", "&\x01"), ("&\x01", "<")), (2, 2), title=title))
    assert root.findtext(f"{SVG}title") == '<script>\ufffd\ufffd & "quotes" ]]>'
    assert not list(root.iter(f"{SVG}script"))


def test_nothing_is_fetched():
    text = svg(parse("nChw4c"), SHAPE)
    assert re.findall(r"(?:href|src|@import|https?://)[^ ]*", text) == [
        'http://www.w3.org/2000/svg"'
    ]


@pytest.mark.parametrize(
    ("name", "shape"),
    [("NCHW", (1, 1, 64, 64)), ("NCHW", (4096, 1, 1, 1)), ("NC", (1, 4096)), ("X", (4096,)),
     ("nChw16c", (16, 1, 16, 1))],
)  # fmt: skip
def test_the_largest_tensors(name: str, shape: tuple[int, ...]):
    root = ET.fromstring(svg(parse(name), shape))
    assert number(root, "width") == 900
    assert number(root, "height") < 3000


@pytest.mark.parametrize("shape", [(1, 1, 64, 65), (0, 1, 1, 1), (2**20, 2**20, 1, 1)])
def test_tensors_that_are_not_drawn(shape: tuple[int, ...]):
    with pytest.raises(FormatError, match=f"1 to {LARGEST} stored elements.*draw a small tensor"):
        svg(parse("NCHW"), shape)


def test_a_shape_that_does_not_fit():
    with pytest.raises(FormatError, match="multiple of 4 along C"):
        svg(parse("NCHW_VECT_C", "tensorflow", Parameters()), SHAPE)
