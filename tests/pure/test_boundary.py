"""Formats in which callers may hand tensors over."""

from __future__ import annotations

import pytest
from tests.networks import Net

from stridewise.errors import FormatError, InputError
from stridewise.formats import Format, parse
from stridewise.graph import Graph
from stridewise.planner import derive
from stridewise.planner.problem.io_formats import boundary


def graph(channels: int = 16) -> Graph:
    b = Net("small")
    x = b.input("image", (1, channels, 4, 4))
    plain = b.input("table", (2, 3))
    return derive(b.build([b.conv(x, 16), b.op("relu", [plain])])).graph


def test_without_a_wish_everything_is_in_the_users_order() -> None:
    found = boundary(graph())
    assert found.inputs == {"image": (parse("NCHW"),), "table": (parse("ab"),)}
    assert list(found.outputs) == list(graph().outputs)


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ("NHWC", ("NHWC",)),
        (parse("NHWC"), ("NHWC",)),
        (["NCHW", "channels_last", "NHWC"], ("NCHW", "NHWC")),
        (("nChw16c", "b_fs_yx_fsv16"), ("nChw16c",)),
    ],
)
def test_formats_go_by_the_names_of_any_system(
    wanted: str | Format | list[str], expected: tuple[str, ...]
) -> None:
    found = boundary(graph(), {"image": wanted})
    assert tuple(map(str, found.inputs["image"])) == expected


@pytest.mark.parametrize(
    ("wanted", "error", "message"),
    [
        (
            {"imag": "NHWC"},
            InputError,
            "input_formats of model 'small': expected names of inputs (image, table), found imag",
        ),
        (
            {"image": []},
            FormatError,
            "input 'image' of shape (1, 3, 4, 4): expected one format or more, found none",
        ),
        (
            {"image": 3},
            FormatError,
            "input 'image' of shape (1, 3, 4, 4): expected a format, or a list of formats, found 3",
        ),
        (
            {"image": ["NHWC", None]},
            FormatError,
            "input 'image' of shape (1, 3, 4, 4): expected a format, or a list of formats, "
            "found None",
        ),
        (
            {"image": "NWC"},
            FormatError,
            "input 'image' of shape (1, 3, 4, 4): expected a format over the axes N, C, H, W, "
            "found NWC",
        ),
        (
            {"image": "nChw16c"},
            FormatError,
            "input 'image' of shape (1, 3, 4, 4): expected a format without padding, which callers "
            "would have to keep at zero, found nChw16c, stored as (1, 1, 4, 4, 16)",
        ),
        (
            {"table": "NC"},
            FormatError,
            "input 'table' of shape (2, 3): expected no format, as nothing in the model says what "
            "its axes mean, found NC; leave it out, or declare what they mean with origins",
        ),
        (
            {"image": "NHHC"},
            FormatError,
            "format: expected a name of a memory format, found 'NHHC'",
        ),
    ],
)
def test_what_does_not_suit_is_refused(
    wanted: dict[str, str], error: type[Exception], message: str
) -> None:
    with pytest.raises(error) as caught:
        boundary(graph(3), wanted)
    assert str(caught.value).startswith(message)
