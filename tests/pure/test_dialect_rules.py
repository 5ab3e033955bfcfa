"""Dialects whose names follow a grammar, beyond the golden data."""

from __future__ import annotations

from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stridewise.errors import FormatError
from stridewise.formats import Format, parse, spell
from stridewise.formats.dialects import DIALECTS

from .dialect_facts import NOTHING

# --- names by rule, beyond the facts --------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("os_is_yx_osv32_isv4_swizzled_by_2", "O,I,H,W: walk O I H W 2*O@1 16*O@2 4*I"),
        (
            "os_is_yx_isa8_osv8_isv4_swizzled_by_4",
            "O,I,H,W: walk O 4*O@1 I H W 8*I 8*O@4 4*I",
        ),
        (
            "os_is_y_x8_osv8_isv4_swizzled_by_4",
            "O,I,H,W: walk O 4*O@1 I H W 8*O@4 4*I; pad W 8",
        ),
        ("os_is_yx_osv32_isv32p", "O,I,H,W: walk O I H W 32*O 32*I"),
        (
            "i_yxs_os_yxsv2_osv16",
            "O,I,H,W: fuse HW = H W; walk I HW O 2*HW 16*O",
        ),
        (
            "gi_yxs_os_yxsv2_osv16",
            "G,O,I,H,W: fuse HW = H W; walk G I HW O 2*HW 16*O",
        ),
        ("bs_x_bsv16", "N,C: walk N C 16*N"),
        ("b_fs_yx_fsv64", "N,C,H,W: walk N C H W 64*C"),
    ],
)
def test_names_of_openvino_follow_a_grammar(name, text):
    assert parse(name, "openvino") == parse(text)


def test_swizzled_outputs_are_permuted_among_32():
    plain = parse("os_is_yx_isa8_osv8_isv4", "openvino")
    swizzled = parse("os_is_yx_isa8_osv8_isv4_swizzled_by_4", "openvino")
    shape = (64, 32, 1, 1)
    for o in range(64):
        turned = o // 32 * 32 + o % 4 * 8 + o % 32 // 4
        assert swizzled.offset((o, 5, 0, 0), shape) == plain.offset((turned, 5, 0, 0), shape)


@pytest.mark.parametrize("name", ["b_f_yx_fsv16", "b_fs_yx", "bfyxx", "b_fs_fsv16_osv4", "byxo"])
def test_what_breaks_the_grammar_of_openvino_is_no_name(name):
    assert DIALECTS["openvino"].parse(name, NOTHING) is None


def test_blocked_features_by_hand():
    fmt = Format.parse("b_fs_yx_fsv16")
    shape = (2, 2, 2, 2)
    assert fmt.nbytes(shape, "uint8") == 128
    assert fmt.index(17, shape) == (0, 1, 0, 1)
    assert fmt.index(64, shape) == (1, 0, 0, 0)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("{1,0:T(2,4)(2,1,1,1)}", "a,b: walk a b 2*a@1 4*b 2*a@2"),
        ("{1,0:T(32,128)(32,1)}", "a,b: walk a b 128*b 32*a"),
        ("{3,2,1,0:T(8,128)}", "a,b,c,d: walk a b c d 8*c 128*d"),
        ("{1,0:T(1,4)}", "a,b: walk a b 4*b"),
        ("{3,2,1,0:T(16,1,1)}", "a,b,c,d: walk a b c d 16*b"),
        ("{1,0:T(8,128)S(1)}", "a,b: walk a b 8*a 128*b"),
        ("{0:S(5)}", "a: walk a"),
        ("{}", ": walk"),
        ("{2,1,0:T(*,8,4)}", "a,b,c: fuse K = a b; walk K c 8*K 4*c"),
    ],
)
def test_tiles_of_xla_apply_to_the_dimensions_of_the_tile_before(name, text):
    fmt, plain = parse(name, "xla"), parse(text)
    assert fmt.normal().digits == plain.normal().digits or fmt.steps
    assert all(fmt.policy(block.axis) == "unspecified" for block in fmt.blocks)
    shape = tuple(range(3, 3 + fmt.rank))
    assert fmt.storage_shape(shape) == plain.normal().storage_shape(shape)
    assert parse(spell(fmt, "xla"), "xla") == fmt


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("{1,0:T(8,4)(3,1)}", "a tile of 3 in 8 elements, which does not divide them"),
        ("{1,0:T(0,4)}", "a tile of 0 in 0 elements, which does not divide them"),
        ("{1,0:T(2,2,2)}", "a tile (2,2,2) of more dimensions than there are to tile"),
        ("{1,0:T(8,128)(*,2)}", "a tile (*,2) of more dimensions than there are to tile"),
        ("{1,0:T(2,*)}", "a tile that ends in *"),
        ("{1,1}", "axes that are not each of 0, 1, ... once, up to 11"),
        ("{2,0}", "axes that are not each of 0, 1, ... once, up to 11"),
    ],
)
def test_layouts_that_xla_does_not_have_are_refused(name, found):
    with pytest.raises(FormatError) as caught:
        parse(name)
    assert str(caught.value) == f"XLA format {name!r}: expected a memory format, found {found}"


@given(st.data())
def test_tiled_layouts_of_xla_are_those_of_its_documentation(data):
    rank = data.draw(st.integers(1, 4))
    order = data.draw(st.permutations(range(rank)))
    tiles, dims = [], rank
    for _ in range(data.draw(st.integers(0, 3))):
        tiles.append(data.draw(st.lists(st.sampled_from([1, 2, 4]), min_size=1, max_size=dims)))
        dims += len(tiles[-1])
    shape = tuple(data.draw(st.lists(st.integers(1, 9), min_size=rank, max_size=rank)))
    text = "".join(f"({','.join(map(str, tile))})" for tile in tiles)
    name = f"{{{','.join(map(str, order))}{':T' if tiles else ''}{text}}}"
    try:
        fmt = parse(name)
    except FormatError as error:
        assert "which does not divide them" in str(error)  # noqa: PT017
        return
    index = tuple(data.draw(st.integers(0, extent - 1)) for extent in shape)
    extents = [shape[axis] for axis in reversed(order)]
    at = [index[axis] for axis in reversed(order)]
    for tile in tiles:
        kept = len(extents) - len(tile)
        at[kept:] = [i // t for i, t in zip(at[kept:], tile, strict=True)] + [
            i % t for i, t in zip(at[kept:], tile, strict=True)
        ]
        counts = [-(-extent // t) for extent, t in zip(extents[kept:], tile, strict=True)]
        extents[kept:] = [*counts, *tile]
    expected = 0
    for i, extent in zip(at, extents, strict=True):
        expected = expected * extent + i
    assert fmt.offset(index, shape) == expected
    assert prod(fmt.storage_shape(shape)) == prod(extents)


def test_xla_prints_any_axes_by_position():
    assert Format.parse("NHWC").to("xla") == "{1,3,2,0}"
    tiled = parse("M,N: walk M N 8*M 128*N; pad M 8 unspecified; pad N 128 unspecified")
    assert tiled.to("xla") == "{1,0:T(8,128)}"
    with pytest.raises(FormatError):
        parse("nChw16c").to("xla")  # zeros in the padding, which XLA does not promise


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("(4,8):(8,1)", "M,N: walk 4*M 8*N"),
        ("(_4,_8):(_8,_1)", "M,N: walk 4*M 8*N"),
        ("((2,2),8):((1,16),2)", "M,N: walk 2*M@2 8*N 2*M@1"),
        ("(2,4):(8,1)", "M,N: walk 2*M |8 4*N"),
        ("4:2", "a: walk 4*a |2"),
        ("(2,3,4):(12,4,1)", "a,b,c: walk 2*a 3*b 4*c"),
    ],
)
def test_strides_of_cute_may_leave_gaps(name, text):
    fmt = parse(name, "cute")
    assert fmt == parse(text)
    assert parse(spell(fmt, "cute"), "cute") == fmt


@given(st.data())
def test_layouts_of_cute_are_sums_of_strides(data):
    modes = data.draw(
        st.lists(st.lists(st.integers(2, 4), min_size=1, max_size=3), min_size=2, max_size=3)
    )
    parts = [(mode, part) for mode, parts in enumerate(modes) for part in range(len(parts))]
    strides, size = {}, 1
    for mode, part in data.draw(st.permutations(parts)):
        size += data.draw(st.sampled_from([0, 0, 0, 1, 5]))
        strides[mode, part] = size
        size *= modes[mode][part]
    tuples = [tuple(strides[mode, part] for part in range(len(p))) for mode, p in enumerate(modes)]
    fmt = parse(f"{tuple(map(tuple, modes))}:{tuple(tuples)}".replace(",)", ")"), "cute")
    shape = tuple(map(prod, modes))
    index = tuple(data.draw(st.integers(0, extent - 1)) for extent in shape)
    expected = 0
    for extents, steps, i in zip(modes, tuples, index, strict=True):
        rest = i
        for extent, step in zip(extents, steps, strict=True):
            expected += rest % extent * step
            rest //= extent
    assert fmt.offset(index, shape) == expected
    assert parse(spell(fmt, "cute"), "cute") == fmt


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("(2,4):(0,1)", "strides that overlap"),
        ("(2,4):(2,1)", "strides that overlap"),
        ("(2,4):(1,(2,4))", "a shape and strides of different nesting"),
        ("(2,(2,2)):(1,2)", "a shape and strides of different nesting"),
        ("(2,(2,2)):(1,(2,4,8))", "a shape and strides of different nesting"),
        ("(2,4):(1,2,8)", "a shape and strides of different nesting"),
        ("4:(1)", "a shape and strides of different nesting"),
        ("(1,4):(0,1)", "a mode of fewer than 2 elements"),
        ("Swizzle<3,4,3> o 8:1", "exclusive or of address bits, which no digits express"),
    ],
)
def test_layouts_of_cute_that_are_no_order_are_refused(name, found):
    with pytest.raises(FormatError) as caught:
        parse(name)
    assert str(caught.value) == f"CuTe format {name!r}: expected a memory format, found {found}"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("NCHW16c", "nChw16c"),
        ("NCHW[16c]", "nChw16c"),
        ("OIHW4i16o", "O,I,H,W: walk O I H W 4*I 16*O"),
        ("NH4cWC", "N,C,H,W: walk N H 4*C W C"),
        ("ABC8b", "aBc8b"),
    ],
)
def test_layouts_of_tvm_follow_a_grammar(name, text):
    fmt = parse(name, "tvm")
    assert fmt == parse(text)
    assert spell(fmt, "tvm") == name.replace("[", "").replace("]", "")


@pytest.mark.parametrize("name", ["NCHWc", "NCHN", "NCHW4i", "NQ", "nChw16c", "NCHW16", "NCHW[]"])
def test_what_breaks_the_grammar_of_tvm_is_no_name(name):
    assert DIALECTS["tvm"].parse(name, NOTHING) is None


def test_tvm_has_one_block_an_axis():
    with pytest.raises(FormatError) as caught:
        parse("OIHW4i16o4i", "tvm")
    assert str(caught.value) == (
        "TVM format 'OIHW4i16o4i': expected a memory format, "
        "found two blocks of an axis; TVM allows one"
    )
    with pytest.raises(FormatError) as caught:
        parse("OIhw4i16o4i").to("tvm")
    assert str(caught.value) == (
        "format OIhw4i16o4i: expected one that TVM has a name for, found none"
    )


@pytest.mark.parametrize(
    ("fmt", "dialect", "name"),
    [
        ("M,N: walk M N 16*M", "cutlass", "RowMajorInterleaved<16>"),
        ("M,N: walk N M 8*N 4*M", "cutlass", "ColumnMajorBlockLinear<4,8>"),
        ("N,C,H,W: walk N C H W 8*C; pad C 8 divide", "cutlass", "TensorNCxHWx<8>"),
        ("O,I,H,W: walk O H W I 24*O 16*I", "acl", "OHWIo24i16"),
        ("O,I,H,W: walk O H W I 24*O", "acl", "OHWIo24"),
        ("C,D,H,W: walk C D H W 2*C", "ncnn", "Mat dims=4 elempack=2"),
        ("W: walk W", "ncnn", "Mat dims=1 elempack=1"),
        ("N,C,H,W: walk C N H W 2*C", "mnn", "C2NHW2"),
    ],
)
def test_numbers_in_names_are_free(fmt, dialect, name):
    assert parse(fmt).to(dialect) == name
    assert parse(name, dialect) == parse(fmt)
