"""Laws of memory formats, by brute force over all indices of small shapes."""

from __future__ import annotations

from itertools import product
from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stridewise.dtypes import dtype_of
from stridewise.errors import FormatError
from stridewise.formats import (
    Block,
    Format,
    dialects,
    digits,
    element_count,
    is_dense,
    nd,
    offset,
    padded_shape,
    parse,
    same_bytes,
    storage_shape,
    strides,
)
from stridewise.formats.dialects import spell
from stridewise.formats.dialects.onednn import abstract_tag
from stridewise.tensor import TensorDesc

NAMED = ("NC", "NCW", "NCHW", "NCDHW", "OI", "OIHW", "GOIHW")


@st.composite
def formats(draw: Any, axes: tuple[str, ...] | None = None) -> Format:
    if axes is None:
        axes = draw(st.sampled_from([*map(tuple, NAMED), tuple("ab"), tuple("abcd")]))
    order = tuple(draw(st.permutations(axes)))
    block = st.builds(Block, st.sampled_from(axes), st.sampled_from([2, 3, 4, 8]))
    return Format(axes, order, tuple(draw(st.lists(block, max_size=2))))


def shapes(fmt: Format) -> st.SearchStrategy[tuple[int, ...]]:
    return st.tuples(*[st.sampled_from([1, 1, 2, 3, 5])] * fmt.rank)


def offsets(fmt: Format, shape: tuple[int, ...], axes: tuple[str, ...]) -> list[int]:
    """Return the offset of every index, walked in the order of ``axes``."""
    extents = dict(zip(fmt.axes, shape, strict=True))
    found = []
    for index in product(*(range(extents[axis]) for axis in axes)):
        position = dict(zip(axes, index, strict=True))
        found.append(offset(fmt, tuple(position[axis] for axis in fmt.axes), shape))
    return found


@given(st.data())
def test_offset_is_a_bijection_from_indices_onto_the_places_that_are_not_padding(data):
    fmt = data.draw(formats())
    shape = data.draw(shapes(fmt))
    found = offsets(fmt, shape, fmt.axes)
    assert len(set(found)) == prod(shape)
    assert all(0 <= place < element_count(fmt, shape) for place in found)
    # An index of the padded shape is a padded place exactly where it lies outside of the shape.
    padded = padded_shape(fmt, shape)
    whole = {
        index: offset(fmt, index, padded)
        for index in product(*(range(extent) for extent in padded))
    }
    assert sorted(whole.values()) == list(range(element_count(fmt, shape)))
    inside = {
        place
        for index, place in whole.items()
        if all(i < extent for i, extent in zip(index, shape, strict=True))
    }
    assert inside == set(found)


@given(st.data())
def test_storage_shape_multiplies_to_the_element_count(data):
    fmt = data.draw(formats())
    shape = data.draw(shapes(fmt))
    assert prod(storage_shape(fmt, shape)) == element_count(fmt, shape)
    assert is_dense(fmt, shape) == (element_count(fmt, shape) == prod(shape))


@given(st.data())
def test_digits_say_which_index_a_place_of_the_storage_holds(data):
    fmt = data.draw(formats())
    shape = data.draw(shapes(fmt))
    padded = padded_shape(fmt, shape)
    walk = digits(fmt, shape)
    for place, digit in enumerate(product(*(range(extent) for _, extent, _ in walk))):
        index = dict.fromkeys(fmt.axes, 0)
        for value, (axis, _, step) in zip(digit, walk, strict=True):
            index[axis] += value * step
        assert offset(fmt, tuple(index[axis] for axis in fmt.axes), padded) == place


@given(formats())
def test_parse_after_spell_is_identity(fmt):
    assert parse(spell(fmt)) == fmt
    assert parse(str(fmt)) == fmt


@pytest.mark.parametrize("tag", ["aBcd16b", "ABcd4a8b", "acdB8b"])
def test_parse_after_spell_is_identity_for_blocked_positional_axes(tag):
    assert parse(spell(parse(tag))) == parse(tag)


@pytest.mark.parametrize("tag", ["nchw", "nhwc", "nChw16c", "NChw4n16c", "oihw", "OIhw16i16o"])
def test_spell_after_parse_is_identity_on_tags_of_onednn(tag):
    assert spell(parse(tag)) == tag


@given(st.data())
def test_abstract_tags_parse_to_the_same_walk(data):
    fmt = data.draw(formats())
    shape = data.draw(shapes(fmt))
    abstract = parse(abstract_tag(fmt))
    assert storage_shape(abstract, shape) == storage_shape(fmt, shape)
    assert offsets(abstract, shape, abstract.axes) == offsets(fmt, shape, fmt.axes)


@given(st.data())
def test_same_bytes_is_agreement_of_all_offsets_and_of_the_size(data):
    axes = data.draw(st.sampled_from(["NC", "NCW", "NCHW"]))
    f, g = data.draw(formats(tuple(axes))), data.draw(formats(tuple(axes)))
    # Only channels are blocked, as in every format that a target offers for activations.
    f, g = (Format(h.axes, h.order, tuple(b for b in h.blocks if b.axis == "C")) for h in (f, g))
    shape = data.draw(shapes(f))
    agree = offsets(f, shape, f.axes) == offsets(g, shape, f.axes)
    same_size = element_count(f, shape) == element_count(g, shape)
    assert same_bytes(f, g, shape) == (agree and same_size)
    assert same_bytes(g, f, shape) == same_bytes(f, g, shape)


@given(st.data())
def test_same_bytes_never_claims_too_much(data):
    axes = data.draw(st.sampled_from(["NC", "NCW", "NCHW"]))
    f, g = data.draw(formats(tuple(axes))), data.draw(formats(tuple(axes)))
    shape = data.draw(shapes(f))
    if same_bytes(f, g, shape):
        assert offsets(f, shape, f.axes) == offsets(g, shape, f.axes)
        assert element_count(f, shape) == element_count(g, shape)


@given(st.data())
def test_same_bytes_looks_at_axes_by_name_whatever_their_canonical_order(data):
    f = data.draw(formats(("N", "C", "W")))
    shape = data.draw(shapes(f))
    turned = Format(("W", "C", "N"), f.order, f.blocks)
    assert same_bytes(f, turned, shape)
    other = data.draw(formats(("W", "C", "N")))
    if same_bytes(f, other, shape):
        swapped = shape[::-1]
        assert offsets(f, shape, f.axes) == offsets(other, swapped, f.axes)


@pytest.mark.parametrize(
    ("shape", "same"),
    [
        ((2, 1, 3, 4), True),
        ((2, 5, 1, 1), True),
        ((1, 1, 1, 1), True),
        ((2, 5, 1, 3), False),
        ((1, 2, 2, 1), False),
    ],
)
def test_nchw_and_nhwc_agree_where_channels_or_the_image_are_one(shape, same):
    assert same_bytes(parse("NCHW"), parse("NHWC"), shape) is same


@pytest.mark.parametrize(
    ("shape", "same"),
    [((2, 16, 1, 1), True), ((1, 32, 1, 1), True), ((1, 3, 1, 1), False), ((1, 16, 2, 1), False)],
)
def test_blocked_channels_agree_with_plain_ones_where_only_channels_are_left(shape, same):
    assert same_bytes(parse("NCHW"), parse("nChw16c"), shape) is same
    # With one block, channels are innermost as in NHWC.
    last = same or shape[1] == 16
    assert same_bytes(parse("NHWC"), parse("nChw16c"), shape) is last


def test_formats_over_other_axes_never_have_the_same_bytes():
    assert not same_bytes(parse("NCHW"), nd(4), (1, 1, 1, 1))


def test_two_formats_without_elements_have_the_same_bytes():
    assert same_bytes(parse("NCHW"), parse("nChw16c"), (0, 3, 2, 2))


@given(st.permutations("NCHW"), st.tuples(*[st.integers(1, 4)] * 4))
def test_strides_are_those_of_a_numpy_transpose(order, shape):
    fmt = Format(tuple("NCHW"), tuple(order))
    stored = np.empty([shape["NCHW".index(axis)] for axis in order], np.float32)
    view = stored.transpose([order.index(axis) for axis in "NCHW"])
    assert strides(fmt, shape) == tuple(step // 4 for step in view.strides)


@given(st.permutations("NCHW"), st.tuples(*[st.integers(1, 3)] * 4))
def test_offsets_without_blocks_are_index_times_strides(order, shape):
    fmt = Format(tuple("NCHW"), tuple(order))
    for index in product(*(range(extent) for extent in shape)):
        dot = sum(i * s for i, s in zip(index, strides(fmt, shape), strict=True))
        assert offset(fmt, index, shape) == dot


@given(st.data())
def test_tensor_descriptions_look_at_the_shape_in_the_order_of_the_origin(data):
    origin = Format(tuple("NCHW"), tuple(data.draw(st.permutations("NCHW"))))
    storage = data.draw(formats(tuple("NCHW")))
    canonical = data.draw(shapes(storage))
    shape = tuple(canonical["NCHW".index(axis)] for axis in origin.order)
    desc = TensorDesc(shape, dtype_of("f32"), origin, storage)
    assert desc.canonical_shape == canonical
    assert desc.storage_shape == storage_shape(storage, canonical)
    assert desc.nbytes == 4 * element_count(storage, canonical)
    assert desc.same_bytes(storage)


# --- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (
            lambda: Format(("N", "C"), ("N", "N")),
            "format: expected each axis exactly once in `axes` and in `order`, "
            "found axes ('N', 'C'), order ('N', 'N')",
        ),
        (
            lambda: Format(("N", "N"), ("N", "N")),
            "format: expected each axis exactly once in `axes` and in `order`, "
            "found axes ('N', 'N'), order ('N', 'N')",
        ),
        (
            lambda: Format(("N",), ("N",), (Block("C", 8),)),
            "format: expected blocks of 2 or more of the axes ('N',), "
            "found a block of 8 of axis 'C'",
        ),
        (
            lambda: Format(("N",), ("N",), (Block("N", 1),)),
            "format: expected blocks of 2 or more of the axes ('N',), "
            "found a block of 1 of axis 'N'",
        ),
        (lambda: nd(13), "format: expected rank 0 to 12, found rank 13"),
        (
            lambda: storage_shape(parse("NCHW"), (1, 2, 3)),
            "format NCHW: expected 4 non-negative extents over NCHW, found shape (1, 2, 3)",
        ),
        (
            lambda: padded_shape(parse("NC"), (1, -2)),
            "format NC: expected 2 non-negative extents over NC, found shape (1, -2)",
        ),
        (
            lambda: offset(parse("NC"), (0, 3), (1, 3)),
            "format NC: expected an index into (1, 3), found (0, 3)",
        ),
        (
            lambda: strides(parse("nChw8c"), (1, 8, 2, 2)),
            "strides of nChw8c: expected a format without blocks, found blocked axes, which have "
            "one stride per block; use digits()",
        ),
        (
            lambda: parse("NCHW", "esperanto"),
            "dialect: expected one of onednn, found 'esperanto'",
        ),
        (
            lambda: TensorDesc((1, 2), dtype_of("f32"), parse("NC"), parse("NCW")),
            "tensor: expected a plain origin over the axes NCW, found origin NC",
        ),
        (
            lambda: TensorDesc((1, 2, 3), dtype_of("f32"), parse("NC"), parse("NC")),
            "tensor: expected 2 extents for origin NC, found shape (1, 2, 3)",
        ),
    ],
)
def test_errors_say_what_was_expected_and_what_came(build, message):
    with pytest.raises(FormatError) as caught:
        build()
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", "something else"),
        ("16c", "something else"),
        ("NCHW16", "something else"),
        ("NCHN", "a repeated axis"),
        ("NXHW", "axes 'NXHW', which no tag has"),
        ("acd", "axes 'ACD', which no tag has"),
        ("nChw16d", "a block of the unknown axis 'd'"),
        ("nchw16c", "capitals that do not mark the blocked axes"),
        ("NChw16c", "capitals that do not mark the blocked axes"),
    ],
)
def test_what_is_no_tag_is_refused(text, found):
    with pytest.raises(FormatError) as caught:
        parse(text)
    assert str(caught.value) == (
        f"oneDNN format {text!r}: expected a tag such as NCHW, nhwc, nChw16c or aBcd16b, "
        f"found {found}"
    )


def test_the_dialects_are_listed():
    assert dialects() == ("onednn",)
