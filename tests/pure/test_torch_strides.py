"""PyTorch's rules on strides: against a table of its answers, and against PyTorch where it is."""

from __future__ import annotations

import json
from math import prod
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from stridewise.errors import FormatError
from stridewise.formats import Format, parse, same_bytes
from stridewise.formats import strides as strides_of
from stridewise.tensor.strided import (
    contiguous_strides,
    format_of,
    is_channels_last_strides,
    is_contiguous,
    is_non_overlapping_and_dense,
    preserved_strides,
    suggest_memory_format,
)

TABLE = json.loads(
    (Path(__file__).parent.parent / "data" / "torch_strides.json").read_text(encoding="utf-8")
)
MEMORY_FORMATS = ("contiguous_format", "channels_last", "channels_last_3d")
RANKS = {"channels_last": 4, "channels_last_3d": 5}
EXTENTS = st.sampled_from([1, 1, 1, 2, 2, 3, 4, 0])


def yes(sizes: Any, strides: Any) -> list[str]:
    found = [name for name in MEMORY_FORMATS if is_contiguous(sizes, strides, name)]
    return [*found, "dense"] if is_non_overlapping_and_dense(sizes, strides) else found


# --- the table ------------------------------------------------------------------------------------


def test_strides_of_new_tensors_are_those_of_pytorch():
    assert len(TABLE["empty"]) > 50
    for sizes, wanted in TABLE["empty"]:
        fitting = [name for name in MEMORY_FORMATS if RANKS.get(name, len(sizes)) == len(sizes)]
        found = {name: list(contiguous_strides(sizes, name)) for name in fitting}
        assert found == wanted, sizes


def test_answers_are_those_of_pytorch():
    assert TABLE["torch"] == "2.13.0"
    assert len(TABLE["cases"]) >= 3000
    for sizes, strides, questions, suggested, like in TABLE["cases"]:
        assert yes(sizes, strides) == questions, (sizes, strides)
        assert suggest_memory_format(sizes, strides) == suggested, (sizes, strides)
        assert list(preserved_strides(sizes, strides)) == like, (sizes, strides)


def test_formats_are_found_for_dense_tensors_and_for_no_others():
    for sizes, strides, questions, suggested, _ in TABLE["cases"]:
        if "dense" not in questions:
            with pytest.raises(FormatError, match="expected strides of a dense tensor"):
                format_of(sizes, strides)
            continue
        order = format_of(sizes, strides).permutation
        agrees(sizes, strides, order)
        if suggested in questions and suggested != "contiguous_format":
            assert order == (0, *range(2, len(sizes)), 1)
        elif "contiguous_format" in questions:
            assert order == tuple(range(len(sizes)))


def agrees(sizes: Any, strides: Any, order: tuple[int, ...]) -> None:
    """Check that an order of axes has the strides, as far as they say anything."""
    assert sorted(order) == list(range(len(sizes)))
    if 0 in sizes:
        return
    step = 1
    for axis in reversed(order):
        assert sizes[axis] == 1 or strides[axis] == step, (sizes, strides, order)
        step *= sizes[axis]


# --- PyTorch itself -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def torch() -> ModuleType:
    why = "asks PyTorch itself: pip install torch==2.13.0; its table is tested without it"
    module = pytest.importorskip("torch", reason=why)
    if module.__version__.split("+")[0] != "2.13.0":
        pytest.skip(f"torch is {module.__version__}; {why}")
    return module


@st.composite
def views(draw: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Sizes and strides of a dense tensor that was permuted, sliced and expanded."""
    sizes = draw(st.lists(EXTENTS, max_size=6))
    rank = len(sizes)
    fitting = [name for name in MEMORY_FORMATS if RANKS.get(name, rank) == rank]
    strides = list(contiguous_strides(sizes, draw(st.sampled_from(fitting))))
    if draw(st.booleans()):
        order = draw(st.permutations(range(rank)))
        sizes, strides = [sizes[axis] for axis in order], [strides[axis] for axis in order]
    for axis in draw(st.lists(st.integers(0, rank - 1), max_size=2) if rank else st.just([])):
        how = draw(st.sampled_from(["slice", "step", "expand", "move"]))
        if how == "slice":
            sizes[axis] = draw(st.integers(0, sizes[axis]))
        elif how == "step":
            sizes[axis], strides[axis] = -(-sizes[axis] // 2), 2 * strides[axis]
        elif how == "expand":
            sizes[axis], strides[axis] = draw(st.integers(1, 4)), 0
        elif sizes[axis] < 2:
            strides[axis] = draw(st.integers(0, 50))  # ignored by PyTorch: as_strided, unsqueeze
    return tuple(sizes), tuple(strides)


@st.composite
def anything(draw: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Sizes, and small strides that need not make sense."""
    sizes = draw(st.lists(EXTENTS, max_size=6))
    strides = st.lists(st.integers(0, 12), min_size=len(sizes), max_size=len(sizes))
    return tuple(sizes), tuple(draw(strides))


LAYOUTS = st.one_of(views(), anything())


@settings(max_examples=500, deadline=None)
@given(LAYOUTS)
@example(((5, 1, 1, 1), (7, 7, 7, 7)))
@example(((0, 3, 2, 2), (12, 1, 6, 3)))
def test_pytorch_says_the_same(torch: ModuleType, layout: tuple[Any, Any]):
    sizes, strides = layout
    tensor = torch.empty_strided(sizes, strides)
    asked = [
        name for name in MEMORY_FORMATS if tensor.is_contiguous(memory_format=getattr(torch, name))
    ]
    dense = torch.ops.aten.is_non_overlapping_and_dense(tensor)
    assert yes(sizes, strides) == asked + ["dense"] * dense
    assert preserved_strides(sizes, strides) == torch.empty_like(tensor).stride()

    # C++'s suggest_memory_format can only be watched: resize_as_ lays its result out by it.
    suggested = suggest_memory_format(sizes, strides)
    seen = torch.empty(0).resize_as_(tensor, memory_format=torch.preserve_format)
    assert seen.stride() == contiguous_strides(sizes, suggested)
    if suggested == "contiguous_format":
        assert tensor.contiguous().stride() == (
            strides if "contiguous_format" in asked else contiguous_strides(sizes)
        )
    # Where that leaves both formats the same strides, a larger result tells them apart.
    if len(sizes) in (4, 5) and 0 not in sizes:
        larger = (2,) * (len(sizes) - 2)
        ops = torch.ops.aten
        upsample = ops.upsample_nearest2d if len(sizes) == 4 else ops.upsample_nearest3d
        seen = upsample(tensor, larger, None)
        assert seen.stride() == contiguous_strides((*sizes[:2], *larger), suggested)
    # And PyTorch has the rule a second time, in Python.
    from torch._prims_common import suggest_memory_format as in_python

    assert in_python(tensor) == getattr(torch, suggested)


# --- without PyTorch ------------------------------------------------------------------------------


@given(LAYOUTS)
def test_every_order_of_axes_is_found_again(layout: tuple[Any, Any]):
    sizes, strides = layout
    try:
        found = format_of(sizes, strides)
    except FormatError:
        assert not is_non_overlapping_and_dense(sizes, strides)
        return
    assert is_non_overlapping_and_dense(sizes, strides)
    agrees(sizes, strides, found.permutation)


@given(st.data())
def test_a_format_is_what_its_strides_say(data: st.DataObject):
    axes = data.draw(st.sampled_from(["NCHW", "NCDHW", "NC", "abc", "GOIHW", "XYZ"]))
    fmt = Format(tuple(axes), tuple(data.draw(st.permutations(axes))))
    shape = tuple(data.draw(st.lists(EXTENTS, min_size=len(axes), max_size=len(axes))))
    found = format_of(shape, strides_of(fmt, shape), axes)
    assert same_bytes(found, fmt, shape)
    if all(extent > 1 for extent in shape):
        assert found == fmt


@given(LAYOUTS)
def test_an_array_of_numpy_is_contiguous_when_numpy_says_so(layout: tuple[Any, Any]):
    sizes, strides = layout
    room = np.zeros(1 + sum(max(n - 1, 0) * step for n, step in zip(sizes, strides, strict=True)))
    steps = [8 * step for step in strides]
    array = np.lib.stride_tricks.as_strided(room, sizes, steps)
    assert is_contiguous(sizes, strides) == array.flags.c_contiguous


@pytest.mark.parametrize("name", sorted(RANKS))
@given(st.data())
def test_what_is_suggested_of_new_tensors_is_what_they_were_made_as(name: str, data: st.DataObject):
    rank = RANKS[name]
    sizes = data.draw(st.lists(st.integers(1, 4), min_size=rank, max_size=rank))
    made = suggest_memory_format(sizes, contiguous_strides(sizes, name))
    # One channel, or one pixel of one image: the two formats share their strides.
    alike = contiguous_strides(sizes, name) == contiguous_strides(sizes)
    assert made == ("contiguous_format" if alike else name)
    assert suggest_memory_format(sizes, contiguous_strides(sizes)) == "contiguous_format"


def test_dimensions_may_be_listed_in_any_order():
    assert format_of((2, 4, 5, 3), (60, 15, 3, 1), "NHWC") == parse("NHWC")
    assert format_of((4, 5, 3, 2), (5, 1, 20, 60), ["H", "W", "C", "N"]) == parse("NCHW")
    assert format_of((2, 3), (3, 1)) == parse("ab")
    assert format_of((), ()).rank == 0
    assert format_of((2, 3), (1, 2), "QN").axes == ("Q", "N")


@pytest.mark.parametrize(
    ("sizes", "strides", "axes", "message"),
    [
        ((2, 3), (-3, 1), "NC",
         "strides (-3, 1) of sizes (2, 3): expected strides of a dense tensor of 6 elements, "
         "found a negative stride; make the tensor contiguous first"),
        ((2, 3), (0, 1), "NC",
         "strides (0, 1) of sizes (2, 3): expected strides of a dense tensor of 6 elements, "
         "found 2 elements in one place (a stride of 0); make the tensor contiguous first"),
        ((2, 3), (2, 1), "NC",
         "strides (2, 1) of sizes (2, 3): expected strides of a dense tensor of 6 elements, "
         "found axes that overlap or interleave; make the tensor contiguous first"),
        ((2, 3), (4, 1), "NC",
         "strides (4, 1) of sizes (2, 3): expected strides of a dense tensor of 6 elements, "
         "found gaps between elements; make the tensor contiguous first"),
        ((2, 3), (3,), "NC",
         "strides: expected as many strides as sizes, and sizes of 0 or more, "
         "found sizes (2, 3), strides (3,)"),
        ((2, -3), (3, 1), "NC",
         "strides: expected as many strides as sizes, and sizes of 0 or more, "
         "found sizes (2, -3), strides (3, 1)"),
        ((2, 3), (3, 1), "NN",
         "strides: expected 2 axes with distinct names, found axes N, N"),
        ((2, 3), (3, 1), "NCW",
         "strides: expected 2 axes with distinct names, found axes N, C, W"),
    ],
)  # fmt: skip
def test_strides_without_a_format_are_refused_with_the_reason(sizes, strides, axes, message):
    with pytest.raises(FormatError) as caught:
        format_of(sizes, strides, axes)
    assert str(caught.value) == message


def test_memory_formats_are_checked():
    name: Any = "preserve_format"
    known = "memory format: expected one of contiguous_format, channels_last, channels_last_3d"
    with pytest.raises(FormatError, match=known):
        is_contiguous((1,), (1,), name)
    with pytest.raises(FormatError, match="one of channels_last, channels_last_3d"):
        is_channels_last_strides((1,), (1,), "contiguous_format")
    with pytest.raises(FormatError, match="channels_last: expected a tensor of rank 4, found"):
        contiguous_strides((2, 3, 4), "channels_last")
    assert not is_contiguous((2, 3, 4), (12, 1, 3), "channels_last")
    assert prod(contiguous_strides((), "contiguous_format")) == 1


def test_no_channels_last_strides_of_other_ranks():
    # c10 has strides for CHW without a batch, "not fully tested"; nothing suggests them.
    assert not is_channels_last_strides((3, 4, 5), (1, 15, 3))
    assert not is_channels_last_strides((3, 2, 4, 5), (1, 60, 15, 3), "channels_last_3d")
