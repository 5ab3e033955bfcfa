"""One tensor, two views."""

from __future__ import annotations

import copy
import pickle
from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import stridewise as sw
from stridewise.dtypes import dtype_of
from stridewise.formats import Block, Format, Pad, Pitch, algebra, parse
from stridewise.tensor import View

AXES = tuple("NCHW")
STORAGES = (
    *map(parse, ("NCHW", "NHWC", "nChw16c", "nChw8c", "NChw4n2c")),
    Format(AXES, ("N", "H", "W", "C"), (Pad("C", 4),)),
    Format(AXES, ("N", "C", Pitch(32), "H", "W")),
    Format(AXES, ("C", "H", "N", Pitch(6), "W", Block("C", 3))),
    parse("N,C,H,W: fuse K = H W C; walk K N 16*N 16*K; pad C 4"),
)


@st.composite
def descs(draw: Any) -> sw.TensorDesc:
    origin = Format(AXES, tuple(draw(st.permutations(AXES))))
    shape = draw(st.tuples(*[st.integers(0, 5)] * 4))
    dtype = draw(st.sampled_from(["f32", "bf16", "s8"]))
    return sw.TensorDesc(shape, dtype, origin, draw(st.sampled_from(STORAGES)))


def test_the_example_of_the_design():
    d = sw.TensorDesc(shape=(8, 3, 224, 224), dtype="float16", origin="NCHW", storage="NC1HWC0")
    assert (d.origin.shape, d.origin.format) == ((8, 3, 224, 224), parse("NCHW"))
    assert (d.storage.shape, d.storage.format) == ((8, 1, 224, 224, 16), parse("nChw16c"))
    assert d.dtype is dtype_of("f16")
    assert d.nbytes == 8 * 16 * 224 * 224 * 2
    assert str(d) == "\n".join(
        [
            "one tensor  seen from Origin  seen from Storage",
            "format      NCHW              nChw16c",
            "shape       [8, 3, 224, 224]  [8, 1, 224, 224, 16]",
            "axes        N C H W           N C H W 16*C",
            "elements    1204224           6422528",
            "bytes       2408448           12845056",
            "padding     0.0 %             81.2 %",
            "dtype       float16           float16",
        ]
    )
    assert d.summary == "f16[8,3,224,224]@NCHW in nChw16c"


def test_the_same_storage_shape_belongs_to_many_tensors():
    nchw = [sw.TensorDesc((8, c, 7, 7), "f32", "NCHW", "nChw16c") for c in range(1, 17)]
    nhwc = [sw.TensorDesc((8, 7, 7, c), "f32", "NHWC", "nChw16c") for c in range(1, 17)]
    assert {d.storage.shape for d in nchw + nhwc} == {(8, 1, 7, 7, 16)}
    assert len(set(nchw + nhwc)) == 32


def test_names_that_depend_on_the_element_type_get_it():
    for dtype, block in [("float16", 16), ("int8", 32)]:
        d = sw.TensorDesc((8, 3, 224, 224), dtype, origin="NCHW", storage="NC1HWC0")
        assert d.storage.shape == (8, 1, 224, 224, block)


@given(descs())
def test_everything_follows_from_the_algebra(d: sw.TensorDesc):
    fmt, canonical = d.storage.format, d.canonical_shape
    assert canonical == tuple(d.shape[d.origin.format.order.index(axis)] for axis in fmt.axes)
    assert d.shape == d.origin.shape
    assert d.storage_shape == d.storage.shape == algebra.storage_shape(fmt, canonical)
    assert d.nbytes == algebra.element_count(fmt, canonical) * d.dtype.itemsize
    assert prod(d.padded_shape) == prod(algebra.padded_shape(fmt, canonical))
    assert all(wide >= extent for wide, extent in zip(d.padded_shape, d.shape, strict=True))
    assert 0 <= d.padding <= 1
    assert (d.padding == 0) == (algebra.is_dense(fmt, canonical))
    assert d.same_bytes(fmt)


@given(descs(), st.permutations(AXES))
def test_seen_with_other_axes_it_is_the_same_tensor(d: sw.TensorDesc, order: Any):
    other = d.seen_as(Format(AXES, tuple(order)))
    assert other.origin.format.order == tuple(order)
    assert other.storage == d.storage
    assert other.canonical_shape == d.canonical_shape
    assert other.seen_as(d.origin.format) == d
    back = [order.index(axis) for axis in d.origin.format.order]
    for index in np.ndindex(*other.shape):
        assert other.offset(index) == d.offset([index[axis] for axis in back])


@given(descs(), st.sampled_from(STORAGES))
def test_stored_otherwise_it_is_the_same_tensor(d: sw.TensorDesc, storage: Format):
    other = d.stored_as(storage)
    assert (other.origin, other.dtype) == (d.origin, d.dtype)
    assert other == sw.TensorDesc(d.shape, d.dtype, d.origin.format, storage)
    assert d.same_bytes(storage) == algebra.same_bytes(d.storage.format, storage, d.canonical_shape)


def test_nhwc_and_nchw_map_onto_each_other():
    d = sw.TensorDesc((2, 4, 5, 3), "f32", "NHWC", "nChw8c")
    assert d.seen_as("NCHW").origin == View((2, 3, 4, 5), parse("NCHW"))
    assert d.seen_as("NCHW").seen_as("NHWC") == d
    assert d.padded_shape == (2, 4, 5, 8)
    assert str(d.origin) == "[2, 4, 5, 3]@NHWC"


def test_strides_are_those_of_numpy():
    array = np.zeros((2, 4, 5, 3), np.float32)
    d = sw.TensorDesc(array.shape, array.dtype, origin="NHWC", storage="NHWC")
    assert d.strides == tuple(step // 4 for step in array.strides)
    turned = array.transpose(0, 3, 1, 2)
    assert d.seen_as("NCHW").strides == tuple(step // 4 for step in turned.strides)
    assert d.seen_as("NCHW").shape == turned.shape


def test_equal_descriptions_are_one_object_that_cannot_change():
    d = sw.TensorDesc((2, 3, 4, 5), "f32", "NCHW", "NHWC")
    same = sw.TensorDesc(
        [2, 3, 4, 5],
        "float32",
        parse("nchw"),
        parse("acdb").renamed(dict(zip("abcd", AXES, strict=True))),
    )
    assert d == same
    assert hash(d) == hash(same)
    assert d != d.stored_as("NCHW")
    with pytest.raises(AttributeError):
        d.dtype = dtype_of("f16")  # type: ignore[misc]
    assert not hasattr(d, "__dict__")
    for twin in (copy.deepcopy(d), pickle.loads(pickle.dumps(d))):
        assert twin == d
    assert repr(d) == "TensorDesc((2, 3, 4, 5), 'float32', 'NCHW', 'NHWC')"


@given(descs())
def test_the_representation_makes_the_same_tensor_again(d: sw.TensorDesc):
    assert eval(repr(d), {"TensorDesc": sw.TensorDesc}) == d
    lines = str(d).splitlines()
    assert len(lines) == 8
    assert lines[3].startswith("axes ")
    assert d.summary.startswith(f"{d.dtype.short}[")


def test_scalars_and_tensors_without_known_axes():
    scalar = sw.TensorDesc((), "f32", sw.formats.nd(0), sw.formats.nd(0))
    assert (scalar.storage.shape, scalar.nbytes, scalar.offset(())) == ((), 4, 0)
    assert sw.TensorDesc((2, 3), "f32", "ab", "ba").strides == (1, 2)
    nothing = sw.TensorDesc((0, 3, 2, 2), "f32", "NCHW", "nChw16c")
    assert (nothing.nbytes, nothing.padding) == (0, 0.0)


@pytest.mark.parametrize(
    ("shape", "origin", "storage", "message"),
    [
        ((2, 3), "NCHW", "NHWC",
         "tensor: expected 4 non-negative extents for origin NCHW, found shape (2, 3)"),
        ((2, 3, 4, -1), "NCHW", "NHWC",
         "tensor: expected 4 non-negative extents for origin NCHW, found shape (2, 3, 4, -1)"),
        ((2, 3, 4, 1.5), "NCHW", "NHWC",
         "tensor: expected a shape of whole numbers, found (2, 3, 4, 1.5)"),
        ((2, 3, "H", "W"), "NCHW", "NHWC",
         "tensor: expected a shape of whole numbers, found (2, 3, 'H', 'W')"),
        ((2, 3, 4, 5), "nChw8c", "NCHW",
         "tensor: expected an origin that is an order of axes, such as NHWC, "
         "found origin nChw8c; blocks and padding belong to the storage"),
        ((2, 3), "NC", "NCW",
         "tensor: expected an origin over the axes of the storage, N, C, W, "
         "found origin NC over N, C; Format.renamed gives axes other names"),
        ((2, 3, 4, 5), "NCHW", "acdb",
         "tensor: expected an origin over the axes of the storage, a, b, c, d, "
         "found origin NCHW over N, C, H, W; Format.renamed gives axes other names"),
        ((2, 3, 4, 5), "NCHW", "N,C,H,W: walk N C H W; pad C 4 divide",
         "format N,C,H,W: walk N C H W; pad C 4 divide: "
         "expected a multiple of 4 along C, which the format does not pad, found 3"),
        ((2**31, 2**31, 1, 2), "NCHW", "NHWC",
         "format NHWC: expected fewer than 2**63 elements in shape (2147483648, 2147483648, 1, 2), "
         "found 9223372036854775808"),
        ((2**31, 2**30, 1, 1), "NCHW", "NHWC",
         "tensor f32[2147483648,1073741824,1,1]@NCHW in NHWC: "
         "expected fewer than 2**63 bytes, found 2305843009213693952 elements of 4 bytes"),
    ],
)  # fmt: skip
def test_errors_say_what_was_expected_and_what_came(shape, origin, storage, message):
    with pytest.raises(sw.FormatError) as caught:
        sw.TensorDesc(shape, "f32", origin, storage)
    assert str(caught.value) == message


def test_what_does_not_fit_is_refused_later_too():
    d = sw.TensorDesc((2, 3, 4, 5), "f32", "NCHW", "nChw8c")
    with pytest.raises(sw.FormatError, match="strides of nChw8c"):
        _ = d.strides
    with pytest.raises(
        sw.FormatError, match=r"expected an index into \(2, 3, 4, 5\), found \(1,\)"
    ):
        d.offset((1,))
    with pytest.raises(sw.FormatError, match="expected an index into"):
        d.offset((0, 3, 0, 0))
    with pytest.raises(sw.FormatError, match="an order of axes, such as NHWC"):
        d.seen_as("nChw8c")
    with pytest.raises(sw.FormatError, match="over the axes of the storage"):
        d.seen_as("NCW")
    with pytest.raises(sw.FormatError, match="expected a name of a memory format, found 'XYZZY'"):
        d.stored_as("XYZZY")
    with pytest.raises(sw.ModelError, match=r"^dtype: expected one of"):
        sw.TensorDesc((2,), "float31", "a", "a")
