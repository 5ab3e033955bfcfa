"""Laws of memory formats, by brute force over all elements of small tensors."""

from __future__ import annotations

from itertools import product
from math import prod

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.formats_strategies import formats, shapes, simple_formats

from stridewise.dtypes import dtype_of
from stridewise.errors import FormatError
from stridewise.formats import (
    Block,
    Format,
    Fuse,
    Pad,
    Pitch,
    Split,
    element_count,
    index,
    is_dense,
    loops,
    nd,
    offset,
    offsets,
    padded_shape,
    parse,
    same_bytes,
    storage_shape,
    strides,
    sub_tensor,
)
from stridewise.formats.dialects.onednn import abstract_tag
from stridewise.tensor import TensorDesc


def indices(shape):
    return product(*(range(extent) for extent in shape))


def walked(fmt, position, shape):
    """Return a canonical index as an index of the axes that the digits name."""
    found = dict(zip(fmt.axes, position, strict=True))
    extents = dict(zip(fmt.axes, shape, strict=True))
    for step in fmt.steps:
        if isinstance(step, Split):
            whole = found.pop(step.axis)
            found[step.outer], found[step.inner] = whole // step.size, whole % step.size
            extents[step.outer], extents[step.inner] = extents[step.axis] // step.size, step.size
            continue
        flat, extents[step.into] = 0, 1
        for axis in step.axes:
            multiple = max(fmt.multiple(axis), 1)
            padded = -(-extents[axis] // multiple) * multiple
            flat, extents[step.into] = flat * padded + found.pop(axis), extents[step.into] * padded
        found[step.into] = flat
    return found


# --- offsets and their inverse --------------------------------------------------------------------


@given(st.data())
def test_offset_is_a_bijection_from_indices_onto_the_places_that_are_not_padding(data):
    fmt = data.draw(formats())
    shape = data.draw(shapes(fmt))
    held = {offset(fmt, position, shape): position for position in indices(shape)}
    assert len(held) == prod(shape)
    assert all(0 <= place < element_count(fmt, shape) for place in held)
    for place in range(element_count(fmt, shape)):
        assert index(fmt, place, shape) == held.get(place)


@given(st.data())
def test_offsets_are_the_offset_of_every_index(data):
    fmt = data.draw(formats())
    shape = data.draw(shapes(fmt))
    table = offsets(fmt, shape)
    assert table.shape == shape
    for position in indices(shape):
        assert table[position] == offset(fmt, position, shape)


@given(st.data())
def test_an_offset_is_the_sum_of_what_the_loops_count(data):
    fmt = data.draw(formats())
    shape = data.draw(shapes(fmt))
    walk = loops(fmt, shape)
    for position in indices(shape):
        at = walked(fmt, position, shape)
        places = (at[axis] // step % extent * stride for axis, extent, step, stride in walk)
        assert sum(places) == offset(fmt, position, shape)


def test_extents_of_numpy_do_not_overflow():
    fmt, shape = parse("nChw16c"), (2**20, 2**20, 1, 1)
    for dtype in (np.int32, np.int64):
        given = tuple(np.array(shape, dtype))
        assert fmt.nbytes(given, "float32") == 2**42
        assert parse("NHWC").strides(given) == parse("NHWC").strides(shape)
        assert parse("NCHW").offset((2**19, 3, 0, 0), given) == 2**39 + 3
    with pytest.raises(FormatError, match=r"fewer than 2\*\*63 elements"):
        parse("NCHW").nbytes(tuple(np.array((2**31, 2**31, 4, 4))), "int8")
    with pytest.raises(FormatError, match="non-negative extents"):
        parse("NC").nbytes((2.0, 3.0), "int8")


@given(st.data())
def test_storage_shape_multiplies_to_the_element_count(data):
    fmt = data.draw(formats())
    shape = data.draw(shapes(fmt))
    assert prod(storage_shape(fmt, shape)) == element_count(fmt, shape)
    assert is_dense(fmt, shape) == (element_count(fmt, shape) == prod(shape))


@given(st.data())
def test_padded_shapes_are_the_next_multiples(data):
    fmt = data.draw(formats())
    shape = data.draw(shapes(fmt))
    for axis, extent, padded in zip(fmt.axes, shape, padded_shape(fmt, shape), strict=True):
        multiple = max(fmt.multiple(axis), 1)
        assert padded % multiple == 0
        assert extent <= padded < extent + multiple


@given(st.data())
def test_a_format_without_gaps_fills_storage_with_its_padded_shape(data):
    fmt = data.draw(formats())
    shape = data.draw(shapes(fmt))
    if not fmt.steps and not any(isinstance(digit, Pitch) for digit in fmt.digits):
        assert element_count(fmt, shape) == prod(padded_shape(fmt, shape))


def test_a_shape_without_elements_has_no_offsets():
    fmt = parse("nChw16c")
    assert offsets(fmt, (2, 0, 3, 3)).shape == (2, 0, 3, 3)
    assert element_count(fmt, (2, 0, 3, 3)) == 0
    assert storage_shape(fmt, (2, 0, 3, 3)) == (2, 0, 3, 3, 16)
    with pytest.raises(FormatError, match="expected an offset below 0, found 0"):
        index(fmt, 0, (2, 0, 3, 3))


def test_a_scalar_has_one_place():
    assert offset(nd(0), (), ()) == 0
    assert index(nd(0), 0, ()) == ()
    assert storage_shape(nd(0), ()) == ()


def test_elements_with_a_pitch_leave_gaps():
    fmt = Format(("W",), ("W", Pitch(2)))
    assert storage_shape(fmt, (3,)) == (3, 2)
    assert [index(fmt, place, (3,)) for place in range(4)] == [(0,), None, (1,), None]


def test_rows_with_a_pitch_leave_a_gap():
    fmt = Format(("H", "W"), ("H", Pitch(8), "W"))
    assert element_count(fmt, (2, 5)) == 16
    assert storage_shape(fmt, (2, 5)) == (2, 8)
    assert offset(fmt, (1, 0), (2, 5)) == 8
    assert index(fmt, 5, (2, 5)) is None
    assert strides(fmt, (2, 5)) == (8, 1)


@given(st.permutations("NCHW"), st.tuples(*[st.integers(1, 4)] * 4))
def test_strides_are_those_of_a_numpy_transpose(order, shape):
    fmt = Format(tuple("NCHW"), tuple(order))
    stored = np.empty([shape["NCHW".index(axis)] for axis in order], np.float32)
    view = stored.transpose([order.index(axis) for axis in "NCHW"])
    assert strides(fmt, shape) == tuple(step // 4 for step in view.strides)


@given(st.data())
def test_strides_times_the_index_are_the_offset(data):
    fmt = data.draw(formats().filter(lambda fmt: not fmt.is_blocked and not fmt.steps))
    shape = data.draw(shapes(fmt))
    for position in indices(shape):
        dot = sum(i * s for i, s in zip(position, strides(fmt, shape), strict=True))
        assert offset(fmt, position, shape) == dot


# --- equality -------------------------------------------------------------------------------------


def split_up(digits):
    """Return the same walk with its blocks of 4 written as two of 2."""
    for digit in digits:
        if isinstance(digit, Block) and digit.size == 4:
            yield from (
                Block(digit.axis, 2, 2 * (digit.step or 1)),
                Block(digit.axis, 2, digit.step),
            )
        else:
            yield digit


@given(formats())
def test_formats_that_are_written_otherwise_are_equal(fmt):
    stepped = Format(fmt.axes, with_steps(fmt), fmt.pads, fmt.steps)
    others = (
        fmt.normal(),
        Format(fmt.axes, tuple(split_up(stepped.digits)), fmt.pads, fmt.steps),
        Format(fmt.axes, stepped.digits, tuple(reversed(fmt.pads)), fmt.steps),
        fmt.renamed({}),
    )
    for other in others:
        assert other == fmt
        assert hash(other) == hash(fmt)


def with_steps(fmt):
    blocks = iter(fmt.blocks)
    return tuple(next(blocks) if isinstance(d, Block) else d for d in fmt.digits)


@given(st.data())
def test_equal_formats_put_the_same_bytes_in_the_same_places(data):
    axes = tuple(data.draw(st.sampled_from(["X", "NC", "ab"])))
    f, g = data.draw(formats(axes)), data.draw(formats(axes))
    if f == g:
        assert hash(f) == hash(g)
        assert same_bytes(f, g, data.draw(shapes(f)))


@given(st.data())
def test_another_way_to_write_a_format_has_the_same_bytes(data):
    fmt = data.draw(formats())
    shape = data.draw(shapes(fmt))
    assert same_bytes(fmt, fmt.normal(), shape)
    assert np.array_equal(offsets(fmt, shape), offsets(fmt.normal(), shape))


def accepts(fmt, shape):
    try:
        return element_count(fmt, shape) >= 0
    except FormatError:
        return False


@given(st.data())
def test_same_bytes_is_agreement_of_all_offsets_and_of_the_size(data):
    axes = tuple(data.draw(st.sampled_from(["X", "NC", "NCW", "NCHW"])))
    f = data.draw(formats(axes))
    g = data.draw(formats(tuple(data.draw(st.permutations(axes)))))
    shape = data.draw(shapes(f))
    turned = tuple(shape[axes.index(axis)] for axis in g.axes)
    if accepts(g, turned):
        places = offsets(g, turned).transpose([g.axes.index(axis) for axis in axes])
        agree = np.array_equal(offsets(f, shape), places)
        same_size = element_count(f, shape) == element_count(g, turned)
        assert same_bytes(f, g, shape) == (agree and same_size)
        assert same_bytes(g, f, turned) == (agree and same_size)


def test_padding_with_another_promise_is_another_format():
    axes, digits = ("N", "C"), ("N", "C", Block("C", 4))
    zeros = Format(axes, digits)
    assert zeros == Format(axes, digits, (Pad("C", 4),))
    assert zeros != Format(axes, digits, (Pad("C", 4, "unspecified"),))
    assert zeros != Format(axes, digits, (Pad("C", 8),))
    assert zeros != Format(("C", "N"), digits)


def test_names_that_steps_make_do_not_count_for_equality():
    fused = [
        Format(("H", "W"), (name, Block(name, 4)), (), (Fuse(("H", "W"), name),))
        for name in ("K", "L")
    ]
    assert fused[0] == fused[1]
    split = [
        Format(("N",), (name, "n"), (Pad("n", 4),), (Split("N", name, "n", 3),)) for name in "KL"
    ]
    assert split[0] == split[1]
    assert split[0] != Format(("N",), ("K", "n"), (Pad("K", 4),), (Split("N", "K", "n", 3),))


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


# --- names ----------------------------------------------------------------------------------------


@given(formats())
def test_the_text_of_a_format_parses_to_an_equal_one(fmt):
    again = Format.parse(fmt.text, "stridewise")
    assert again == fmt
    assert again.text == fmt.text
    assert Format.parse(fmt.normal().text) == fmt


@given(formats())
def test_the_name_of_a_format_parses_to_an_equal_one(fmt):
    assert parse(fmt.name) == fmt
    assert parse(str(fmt)) == fmt


@given(st.data())
def test_abstract_tags_parse_to_the_same_walk(data):
    fmt = data.draw(simple_formats())
    assert fmt.is_simple
    shape = data.draw(shapes(fmt))
    abstract = parse(abstract_tag(fmt))
    assert storage_shape(abstract, shape) == storage_shape(fmt, shape)
    assert np.array_equal(offsets(abstract, shape), offsets(fmt, shape))


@given(st.data())
def test_renamed_axes_keep_every_byte_in_its_place(data):
    fmt = data.draw(formats())
    shape = data.draw(shapes(fmt))
    renamed = fmt.renamed({axis: f"new {axis}" for axis in fmt.axes})
    assert renamed.axes == tuple(f"new {axis}" for axis in fmt.axes)
    assert np.array_equal(offsets(renamed, shape), offsets(fmt, shape))


# --- boxes inside of a tensor ---------------------------------------------------------------------


@st.composite
def boxes(draw, shape):
    """Return starts, lengths and steps of a box in a shape."""
    found = []
    for extent in shape:
        step = draw(st.sampled_from([1, 1, 2]))
        start = draw(st.integers(0, extent - 1))
        found.append((start, draw(st.integers(1, (extent - start - 1) // step + 1)), step))
    return tuple(zip(*found, strict=True)) if found else ((), (), ())


@given(st.data())
def test_a_box_is_a_view_of_the_storage_or_none(data):
    fmt = data.draw(formats())
    shape = data.draw(shapes(fmt))
    starts, lengths, steps = data.draw(boxes(shape))
    view = sub_tensor(fmt, shape, starts, lengths, steps)
    if view is None:
        assert fmt.is_blocked or fmt.steps
        return
    walk, first = view
    for position in indices(lengths):
        away = tuple(i * step for i, step in zip(position, steps, strict=True))
        at = walked(fmt, away, shape)
        places = (at[axis] // step % extent * stride for axis, extent, step, stride in walk)
        whole = tuple(start + i for start, i in zip(starts, away, strict=True))
        assert first + sum(places) == offset(fmt, whole, shape)


@given(st.data())
def test_the_whole_of_a_tensor_is_a_view(data):
    fmt = data.draw(formats())
    shape = data.draw(shapes(fmt))
    view = sub_tensor(fmt, shape, (0,) * fmt.rank, shape)
    assert view is not None
    walk, first = view
    assert first == 0
    assert [loop.stride for loop in walk] == [loop.stride for loop in loops(fmt, shape)]


@pytest.mark.parametrize(
    ("start", "length", "is_view"),
    [(16, 16, True), (16, 24, True), (0, 40, True), (0, 8, False), (8, 32, False), (32, 8, True)],
)
def test_a_view_cuts_no_block(start, length, is_view):
    box = sub_tensor(parse("nChw16c"), (1, 40, 2, 2), (0, start, 0, 0), (1, length, 2, 2))
    assert (box is not None) is is_view


def test_a_flattened_axis_has_no_views():
    fmt = parse("os_i_yxs_osv4_yxsv4", "openvino")
    assert sub_tensor(fmt, (4, 2, 3, 3), (0, 0, 0, 0), (4, 2, 2, 3)) is None
    assert sub_tensor(fmt, (4, 2, 3, 3), (0, 1, 0, 0), (4, 1, 3, 3)) is not None


# --- tensors --------------------------------------------------------------------------------------


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

ONCE = "format: expected each of the axes N, C once in `digits`, found digits "


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Format(("N", "C"), ("N", "N")), f"{ONCE}N,C: walk N N"),
        (lambda: Format(("N", "C"), ("N",)), f"{ONCE}N,C: walk N"),
        (lambda: Format(("N", "C"), ("N", "C", "H")), f"{ONCE}N,C: walk N C H"),
        (
            lambda: Format(("N", "N"), ("N", "N")),
            "format: expected axes with distinct names, found axes ('N', 'N')",
        ),
        (
            lambda: Format(("N",), ("N", Block("C", 8))),
            "format: expected blocks of 2 or more of the axes N, found a block of 8 of axis 'C'",
        ),
        (
            lambda: Format(("N",), ("N", Block("N", 1))),
            "format: expected blocks of 2 or more of the axes N, found a block of 1 of axis 'N'",
        ),
        (
            lambda: Format(("N",), ("N", Block("N", 4, 2))),
            "format: expected digits of N whose steps reach every index exactly once, "
            "found digits N: walk N 4*N@2",
        ),
        (
            lambda: Format(("N",), ("N", Block("N", 4, 1), Block("N", 2, 1))),
            "format: expected digits of N whose steps reach every index exactly once, "
            "found digits N: walk N 4*N@1 2*N@1",
        ),
        (
            lambda: Format(("N",), (Pitch(0), "N")),
            "format: expected a pitch of 1 element or more, found digits N: walk |0 N",
        ),
        (
            lambda: Format(("N",), ("N", Block("N", 4)), (Pad("N", 6),)),
            "format: expected padding of an axis to a multiple of its blocks (4), found pad N 6",
        ),
        (
            lambda: Format(("N",), ("N",), (Pad("C", 6),)),
            "format: expected padding of an axis to a multiple of its blocks (1), found pad C 6",
        ),
        (
            lambda: Format(("N",), (Block("N", 4),), (Pad("N", 8),)),
            "format: expected the extent 4 of N, which is fixed, found pad N 8",
        ),
        (
            lambda: Format(("N",), ("N",), (Pad("N", 2, "ones"),)),
            "format: expected one of the policies zero, unspecified, divide, found 'ones'",
        ),
        (
            lambda: Format(("N",), ("N",), (Pad("N", 2), Pad("N", 4))),
            "format: expected at most one pad per axis, found pad N 2; pad N 4",
        ),
        (
            lambda: Format(("N", "C"), ("K",), (), (Fuse(("N", "H"), "K"),)),
            "format: expected a step over some of the axes N, C, found fuse K = N H",
        ),
        (
            lambda: Format(("N", "C"), ("K",), (), (Fuse(("N", "N"), "K"),)),
            "format: expected a step over some of the axes N, C, found fuse K = N N",
        ),
        (
            lambda: Format(("N", "C"), ("C",), (), (Fuse(("N",), "C"),)),
            "format: expected a step that creates axes with new names, found fuse C = N",
        ),
        (
            lambda: Format(("N",), ("a", "b"), (), (Split("N", "a", "b", 0),)),
            "format: expected a split by 1 or more, found split N = a b 0",
        ),
        (
            lambda: parse("N,C: fuse K = N C; split K = N x 2; walk N x"),
            "format: expected a step that creates axes with new names, found split K = N x 2",
        ),
        (
            lambda: Format(("N",), ("a", "b"), (Pad("N", 2),), (Split("N", "a", "b", 2),)),
            "format: expected padding of an axis to a multiple of its blocks (1), found pad N 2",
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
            lambda: storage_shape(Format(("Gate", "N"), ("Gate", "N")), (1,)),
            "format Gate,N: walk Gate N: expected 2 non-negative extents over Gate,N, "
            "found shape (1,)",
        ),
        (
            lambda: element_count(parse("NC"), (2**32, 2**31)),
            "format NC: expected fewer than 2**63 elements in shape (4294967296, 2147483648), "
            "found 9223372036854775808",
        ),
        (
            lambda: element_count(parse("nChw16c"), (2**60, 1, 1, 1)),
            "format nChw16c: expected fewer than 2**63 elements in shape "
            f"({2**60}, 1, 1, 1), found {2**64}",
        ),
        (
            lambda: storage_shape(parse("NCHW_VECT_C"), (1, 6, 2, 2)),
            "format N,C,H,W: walk N C H W 4*C; pad C 4 divide: "
            "expected a multiple of 4 along C, which the format does not pad, found 6",
        ),
        (
            lambda: storage_shape(
                Format(("N",), ("a", "b"), (), (Split("N", "a", "b", 4),)),
                (6,),
            ),
            "format N: split N = a b 4; walk a b: "
            "expected a multiple of 4 along N, which is split, found 6",
        ),
        (
            lambda: storage_shape(parse("(2,4):(4,1)"), (2, 8)),
            "format M,N: walk 2*M 4*N: expected 4 along N, which the format fixes, found 8",
        ),
        (
            lambda: offset(parse("NC"), (0, 3), (1, 3)),
            "format NC: expected an index into (1, 3), found (0, 3)",
        ),
        (
            lambda: offset(parse("NC"), (0,), (1, 3)),
            "format NC: expected an index into (1, 3), found (0,)",
        ),
        (
            lambda: index(parse("NC"), 3, (1, 3)),
            "format NC: expected an offset below 3, found 3",
        ),
        (
            lambda: index(parse("NC"), -1, (1, 3)),
            "format NC: expected an offset below 3, found -1",
        ),
        (
            lambda: strides(parse("nChw8c"), (1, 8, 2, 2)),
            "strides of nChw8c: expected a format without blocks, found axes which have one "
            "stride per block; use loops()",
        ),
        (
            lambda: sub_tensor(parse("NC"), (2, 3), (0, 1), (2, 3)),
            "format NC: expected a box inside (2, 3), "
            "found starts (0, 1), lengths (2, 3), steps (1, 1)",
        ),
        (
            lambda: parse("N,C: walk N C; pad C"),
            "format 'walk N C; pad C': expected clauses such as 'walk N C 16*C', 'pad C 4', "
            "'fuse K = H W', found 'pad C'",
        ),
        (
            lambda: abstract_tag(parse("NHWC4")),
            "format N,C,H,W: walk N H W C; pad C 4: expected a permutation with inner blocks, "
            "found more",
        ),
        (
            lambda: parse("nChw16d"),
            "oneDNN format 'nChw16d': expected a tag such as NCHW, nhwc, nChw16c or aBcd16b, "
            "found a block of the unknown axis 'd'",
        ),
        (
            lambda: parse("nchw16c"),
            "oneDNN format 'nchw16c': expected a tag such as NCHW, nhwc, nChw16c or aBcd16b, "
            "found capitals that do not mark the blocked axes",
        ),
    ],
)
def test_errors_say_what_was_expected_and_what_came(build, message):
    with pytest.raises(FormatError) as caught:
        build()
    assert str(caught.value) == message
