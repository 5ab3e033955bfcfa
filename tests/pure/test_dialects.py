"""Dialects against golden data: what every name of twenty systems means.

``tests/data/formats.json`` holds one fact a line. ``walk`` lists digits, outermost first, each an
axis or ``<size>*<axis>[@<step>]``, whose default step is the product of the axis' later blocks;
``pads`` (where they are more than the blocks), ``divide`` (blocks that do not pad), ``fused`` axes
and ``static`` extents say the rest, and ``give`` what the name leaves open. ``refused`` facts are
names that are not permutations. The tests evaluate the formats independently of the algebra.
"""

from __future__ import annotations

import json
import random
from math import prod
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stridewise.errors import FormatError
from stridewise.formats import Format, Parameters, dialects, names, nd, parse, spell
from stridewise.formats.dialects import DIALECTS
from stridewise.formats.dialects.onednn import abstract_tag

GOLDEN = json.loads((Path(__file__).parents[1] / "data" / "formats.json").read_text("ascii"))
SYSTEMS = tuple(GOLDEN["names"])
NOTHING = Parameters()
KNOWN = [fact for fact in GOLDEN["facts"] if "walk" in fact]
REFUSED = [fact for fact in GOLDEN["facts"] if "refused" in fact]

each_system = pytest.mark.parametrize("system", SYSTEMS)


def facts(system, among=KNOWN):
    return [fact for fact in among if fact["system"] == system]


def parsed(fact, name=None, **more):
    return Format.parse(name or fact["name"], fact["system"], **fact.get("give", {}) | more)


# --- what names mean ------------------------------------------------------------------------------


class Golden:
    """A fact and a shape, evaluated by the letter."""

    def __init__(self, fact, shape):
        self.axes = fact["axes"].split(",")
        self.shape = dict(zip(self.axes, shape, strict=True))
        self.fused = fact.get("fused", {})
        walk = [self.read(item) for item in fact["walk"].split()]
        blocks = {
            axis: prod(size for a, size, _ in walk if a == axis and size) for axis, *_ in walk
        }
        self.multiples = blocks | fact.get("divide", {}) | fact.get("pads", {})
        extents = {
            axis: self.padded(axis, extent)
            for axis, extent in self.shape.items()
            if not any(axis in parts for parts in self.fused.values())
        }
        for axis, parts in self.fused.items():
            extents[axis] = self.padded(axis, prod(self.padded(a, self.shape[a]) for a in parts))
        self.digits = []
        for position, (axis, size, step) in enumerate(walk):
            inner = prod(s for a, s, _ in walk[position + 1 :] if a == axis and s)
            whole = extents[axis] // blocks[axis]
            self.digits.append((axis, size or whole, step or (inner if size else blocks[axis])))

    @staticmethod
    def read(item):
        """Return axis, size and step of a digit; None where the walk does not say."""
        size, star, rest = item.rpartition("*")
        axis, _, step = rest.partition("@")
        return axis, int(size) if star else None, int(step) if step else None

    def padded(self, axis, extent):
        multiple = self.multiples.get(axis, 1)
        return (extent + multiple - 1) // multiple * multiple

    def storage(self):
        return tuple(size for _, size, _ in self.digits)

    def offset(self, index):
        at = dict(zip(self.axes, index, strict=True))
        for axis, parts in self.fused.items():
            at[axis] = 0
            for part in parts:
                at[axis] = at[axis] * self.padded(part, self.shape[part]) + at[part]
        found = 0
        for axis, size, step in self.digits:
            found = found * size + at[axis] // step % size
        return found


def random_shape(fact, rng):
    """Return a small shape that fits, extents beyond a block where there are blocks."""
    fused = {part for parts in fact.get("fused", {}).values() for part in parts}
    found = []
    for axis in fact["axes"].split(","):
        multiple = Golden(fact, [1] * len(fact["axes"].split(","))).multiples.get(axis, 1)
        if axis in fact.get("static", {}):
            found.append(fact["static"][axis])
        elif axis in fact.get("divide", {}):
            found.append(multiple * rng.randint(1, 3))
        elif axis in fused:
            found.append(rng.randint(1, 7))
        else:
            found.append(rng.choice([1, 2, 3, 5, multiple, multiple + 1, 2 * multiple + 3]))
    return tuple(found)


@each_system
def test_every_name_puts_every_element_where_its_system_does(system):
    rng = random.Random(system)
    wrong = []
    for fact in facts(system):
        fmt, shape = parsed(fact), random_shape(fact, rng)
        golden = Golden(fact, shape)
        last = tuple(extent - 1 for extent in shape)
        some = [tuple(rng.randrange(extent) for extent in shape) for _ in range(8)]
        for index in (*some, last):
            if fmt.offset(index, shape) != golden.offset(index):
                wrong.append((fact["name"], shape, index))
        if prod(fmt.storage_shape(shape)) != prod(golden.storage()):
            wrong.append((fact["name"], shape, "size"))
        padded = tuple(map(golden.padded, golden.axes, shape))
        if fmt.padded_shape(shape) != padded:
            wrong.append((fact["name"], shape, "padding"))
    assert not wrong


# Digits that parsing merges: OpenVINO writes a padded axis as a block, the others tile twice.
MERGED = {
    *("os_i_osv16__ai8", "os_i_osv8__ai8", "{1,0:T(2,4)(2,1)}"),
    *("(2,(2,2)):(1,(2,4))", "{1,0:T(32,128)(32,1)}"),
}


@each_system
def test_the_shape_of_storage_is_that_of_the_system(system):
    rng = random.Random(system)
    for fact in facts(system):
        if fact["name"] not in MERGED:
            shape = random_shape(fact, rng)
            assert parsed(fact).storage_shape(shape) == Golden(fact, shape).storage()


OPENVINO_AXES = {"B": "N", "F": "C", "W": "T", "Z": "D", "Y": "H", "X": "W"}
WEIGHT_AXES = {"K": "O", "C": "I", "R": "H", "S": "W"}


@each_system
def test_axes_have_one_name_in_all_systems(system):
    for fact in facts(system):
        axes = fact["axes"].split(",")
        if system == "openvino":
            axes = ["N", "C"] if axes == ["B", "X"] else [OPENVINO_AXES.get(a, a) for a in axes]
        elif system == "xla":
            axes = list("abcde"[: len(axes)])
        elif "K" in axes:
            axes = [WEIGHT_AXES.get(axis, axis) for axis in axes]
        axes = ["W" if axis == "L" and "C" in axes and "D" not in axes else axis for axis in axes]
        assert parsed(fact).axes == tuple(axes), fact["name"]


@each_system
def test_padding_that_divides_is_not_padding(system):
    for fact in facts(system):
        fmt = parsed(fact)
        for axis, golden in zip(fmt.axes, fact["axes"].split(","), strict=True):
            policy = "unspecified" if system == "xla" else "zero"
            policy = "divide" if golden in fact.get("divide", {}) else policy
            assert fmt.policy(axis) == policy or fmt.multiple(axis) == 1


@each_system
def test_printing_and_parsing_a_name_is_identity(system):
    for fact in facts(system):
        fmt, given = parsed(fact), fact.get("give", {})
        assert Format.parse(fmt.to(system, **given), system, **given) == fmt


@each_system
def test_aliases_mean_what_the_name_means(system):
    for fact in facts(system):
        fmt = parsed(fact)
        for alias in fact.get("aliases", ()):
            found = parsed(fact, alias, rank=fmt.rank)
            if system == "onednn":  # named and abstract tags: axes by letter and by position
                found = found.renamed(dict(zip(found.axes, fmt.axes, strict=True)))
            assert found == fmt, alias
    for fact in facts(system, REFUSED):
        for alias in fact.get("aliases", ()):
            with pytest.raises(FormatError):
                parsed(fact, alias)


def test_the_prefixes_of_onednn_change_nothing():
    for fact in facts("onednn"):
        for prefix in ("dnnl_", "dnnl::memory::format_tag::"):
            assert parsed(fact, prefix + fact["name"]) == parsed(fact)


def test_tags_of_onednn_and_their_abstract_counterparts_are_each_others_inverse():
    for fact in facts("onednn"):
        if fact["axes"].startswith("a,"):
            assert abstract_tag(parsed(fact)) == fact["name"]


# --- what names do not mean -----------------------------------------------------------------------

# For more than 4 input channels, FRACTAL_Z_C04 is another format; formats do not bound extents.
UNBOUNDED = [fact for fact in REFUSED if "when" in fact]


def test_what_is_no_permutation_is_refused_with_a_reason():
    assert [fact["name"] for fact in UNBOUNDED] == ["FRACTAL_Z_C04"]
    for fact in REFUSED:
        if fact in UNBOUNDED:
            continue
        with pytest.raises(FormatError) as caught:
            parsed(fact)
        where, _, reason = str(caught.value).partition(": expected ")
        assert where == f"{DIALECTS[fact['system']].title} format {fact['name']!r}"
        assert len(reason.partition(", found ")[2]) > len("sentinel"), reason


@each_system
def test_every_name_has_a_format_or_a_reason(system):
    assert set(names(system)) == set(GOLDEN["names"][system])
    refused = {fact["name"] for fact in facts(system, REFUSED)}
    known = {fact["name"] for fact in facts(system)}
    for name in GOLDEN["names"][system]:
        reason = why_not(name, system)
        assert bool(reason) == (name in refused or "; give " in reason), name
        assert name not in known or not reason or "; give " in reason, name


def why_not(name, system):
    """Return why a name has no format, or nothing where it has one."""
    try:
        Format.parse(name, system)
    except FormatError as error:
        return str(error)
    return ""


@each_system
def test_a_dialect_knows_none_of_what_it_does_not_know(system):
    for text in ("", " ", "nope", "NCHW!", "16c", "N C H W", "{", "(", "nChw16c\n", "\u0661"):
        assert DIALECTS[system].parse(text, NOTHING) is None


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


# --- what names leave open ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dtype", "c0"),
    [
        *(("float16", 16), ("bf16", 16), ("bfloat16", 16), ("float32", 16), ("f32", 16)),
        *(("int8", 32), ("u8", 32), ("int4", 64), ("int32", 16)),
    ],
)
def test_the_dtype_chooses_the_block_of_ascend(dtype, c0):
    assert Format.parse("NC1HWC0", dtype=dtype) == parse(f"nChw{c0}c")
    assert Format.parse("NC1HWC0", dtype=dtype, block=8) == parse("nChw8c")


@pytest.mark.parametrize("rank", [3, 4])
def test_leading_axes_of_fractal_nz_stay_in_front(rank):
    fmt = Format.parse("FRACTAL_NZ", block=16, rank=rank)
    leading = (3, 2)[: rank - 2]
    assert fmt.storage_shape((*leading, 17, 5)) == (*leading, 1, 2, 16, 16)


def test_the_bias_of_an_rnn_is_split_where_its_hidden_size_is_known():
    fmt = Format.parse("ND_RNN_BIAS", dtype="float16", hidden_size=20)
    assert fmt.storage_shape((80,)) == (4, 32)
    assert fmt.offset((21,), (80,)) == 33
    assert Format.parse("ND_RNN_BIAS", dtype="float16").storage_shape((4, 20)) == (4, 32)


def test_a_pitch_in_bytes_is_one_in_elements_of_the_dtype():
    for dtype, elements in (("int8", 16), ("float16", 8), ("float32", 4)):
        fmt = Format.parse("Mat dims=3 elempack=1", dtype=dtype)
        assert fmt.storage_shape((3, 3, 7)) == (3, -(-21 // elements) * elements)
        assert fmt.to("ncnn", dtype=dtype) == "Mat dims=3 elempack=1"
    packed = Format.parse("Mat dims=3 elempack=4", dtype="float32")
    assert packed == Format.parse("C,H,W: walk C |4 H W 4*C")
    assert packed.storage_shape((6, 3, 3)) == (2, 3, 3, 4)


@pytest.mark.parametrize(("rank", "name"), [(2, "NC"), (3, "NWC"), (4, "NHWC"), (5, "NDHWC")])
def test_names_that_fit_any_rank(rank, name):
    assert Format.parse("ChannelLast", rank=rank) == parse(name)
    for row_major in ("contiguous_format", "kLINEAR", "DefaultFormat", "ChannelFirst"):
        assert Format.parse(row_major, rank=rank) == parse("NC" + name.strip("NC"))
    assert Format.parse("ND", rank=rank) == nd(rank)


def test_images_of_tensorflow_have_two_dimensions_or_three():
    assert Format.parse("FORMAT_NHWC", "tf", rank=5) == parse("NDHWC")
    assert Format.parse("NCHW", "tf", rank=5) == parse("NCDHW")


def test_filters_of_cudnn_print_as_such():
    assert parse("OHWI").to("cudnn") == "CUDNN_TENSOR_NHWC filter"
    fmt = Format.parse("CUDNN_TENSOR_NCHW_VECT_C", block=32)
    assert fmt.to("cudnn") == "NC/32HW32"
    assert fmt.to("cudnn", dtype="int8x32") == "CUDNN_TENSOR_NCHW_VECT_C"


@pytest.mark.parametrize(
    ("name", "given", "message"),
    [
        (
            "NC1HWC0",
            {},
            "Ascend format 'NC1HWC0': expected the block C0, found none; give dtype= or block=",
        ),
        (
            "ND",
            {},
            "Ascend format 'ND': expected the number of axes, found none; give rank=",
        ),
        (
            "FRACTAL_Z",
            {"dtype": "float16", "groups": 2},
            "Ascend format 'FRACTAL_Z': expected a memory format, found groups that share blocks, "
            "filled along the diagonal: no permutation",
        ),
        (
            "FRACTAL_NZ",
            {"dtype": "float16", "rank": 1},
            "Ascend format 'FRACTAL_NZ': expected a memory format, found a vector, which the "
            "parts of Ascend's software lay out differently; reshape it to a matrix",
        ),
        (
            "NC1HWC0",
            {"dtype": "float12"},
            "dtype: expected an element type such as float16 or int4, found float12",
        ),
        (
            "CUDNN_TENSOR_NCHW_VECT_C",
            {"dtype": "int8"},
            "cuDNN format 'CUDNN_TENSOR_NCHW_VECT_C': expected a vector length of 4 or 32, found "
            'none; give dtype= or block= (dtype="int8x4", dtype="int8x32")',
        ),
        (
            "kDLA_LINEAR",
            {},
            "TensorRT format 'kDLA_LINEAR': expected a dtype, as rows have a pitch in bytes, "
            "found none; give dtype=",
        ),
        (
            "kDLA_HWC4",
            {"dtype": "int8"},
            "TensorRT format 'kDLA_HWC4': expected a device, which the pitch of rows depends on, "
            "found none; give device='xavier' or device='orin'",
        ),
        (
            "NCHWc",
            {},
            "ONNX Runtime format 'NCHWc': expected the block, found none; give block=8 or block=16",
        ),
        (
            "preserve_format",
            {},
            "PyTorch format 'preserve_format': expected a memory format, found a request to keep "
            "the strides of the input",
        ),
        (
            "winograd_2x3_s1_data",
            {},
            "OpenVINO format 'winograd_2x3_s1_data': expected a memory format, found "
            "Winograd-transformed data, whose values are computed, not moved",
        ),
    ],
)
def test_errors_say_what_is_lacking(name, given, message):
    with pytest.raises(FormatError) as caught:
        Format.parse(name, **given)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("fmt", "dialect", "message"),
    [
        (
            "nChw16c",
            "ort",
            "format nChw16c: expected one that ONNX Runtime has a name for, found none; "
            "give block=, which some names depend on",
        ),
        (
            "nChw16c",
            "ascend",
            "format nChw16c: expected one that Ascend has a name for, found none; "
            "give dtype= or block= or rank=, which some names depend on",
        ),
        (
            "nChw16c",
            "pytorch",
            "format nChw16c: expected one that PyTorch has a name for, found none",
        ),
        ("NCHW", "esperanto", f"dialect: expected one of {', '.join(DIALECTS)}, found 'esperanto'"),
    ],
)
def test_errors_say_which_names_are_lacking(fmt, dialect, message):
    with pytest.raises(FormatError) as caught:
        parse(fmt).to(dialect)
    assert str(caught.value) == message


# --- names without a dialect ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "given", "text"),
    [
        ("NCHW", {}, "N,C,H,W: walk N C H W"),
        ("NHWC", {}, "N,C,H,W: walk N H W C"),
        ("HWCN", {}, "N,C,H,W: walk H W C N"),
        ("OIHW", {}, "O,I,H,W: walk O I H W"),
        ("nChw16c", {}, "N,C,H,W: walk N C H W 16*C"),
        ("NCHW16c", {}, "N,C,H,W: walk N C H W 16*C"),
        ("b_fs_yx_fsv16", {}, "N,C,H,W: walk N C H W 16*C"),
        ("NCHWc", {"block": 16}, "N,C,H,W: walk N C H W 16*C"),
        ("NC1HWC0", {"dtype": "float16"}, "N,C,H,W: walk N C H W 16*C"),
        ("NCHW_VECT_C", {}, "N,C,H,W: walk N C H W 4*C; pad C 4 divide"),
        ("kCHW32", {}, "N,C,H,W: walk N C H W 32*C"),
        ("channels_last", {}, "N,C,H,W: walk N H W C"),
        (
            "{1,0:T(8,128)}",
            {},
            "a,b: walk a b 8*a 128*b; pad a 8 unspecified; pad b 128 unspecified",
        ),
    ],
)
def test_common_names_need_no_dialect(name, given, text):
    assert Format.parse(name, **given) == Format.parse(text)


def test_only_nc4hw4_means_several_formats():
    unclear = set()
    for name in {name for system in SYSTEMS for name in names(system)}:
        try:
            Format.parse(name)
        except FormatError as error:
            if "a name with one meaning" in str(error):
                unclear.add(name)
    assert unclear == {"NC4HW4"}


def test_a_name_that_means_several_formats_needs_a_dialect():
    with pytest.raises(FormatError) as caught:
        Format.parse("NC4HW4")
    assert str(caught.value) == (
        "format 'NC4HW4': expected a name with one meaning, found several "
        "(mnn: N,C,H,W: walk C N H W 4*C, mindspore_lite: N,C,H,W: walk N C H W 4*C); "
        "say which with dialect='mnn'"
    )
    assert Format.parse("NC4HW4", "mnn") == parse("N,C,H,W: walk C N H W 4*C")
    assert Format.parse("NC4HW4", "mindspore_lite") == parse("nChw4c")


@pytest.mark.parametrize(
    ("name", "dialect", "message"),
    [
        (
            "b_fs_yx_fsv16z",
            None,
            "format: expected a name of a memory format, found 'b_fs_yx_fsv16z'; "
            "did you mean b_fs_yx_fsv16 or b_fs_zyx_fsv16 or b_fs_yx_fsv8?",
        ),
        (
            "kHWC32",
            "tensorrt",
            "TensorRT format: expected a name of a memory format, found 'kHWC32'; "
            "did you mean kCHW32 or kHWC or kCDHW32?",
        ),
        (
            "nothing of the kind",
            None,
            "format: expected a name of a memory format, found 'nothing of the kind'; "
            "see `stridewise formats list`",
        ),
    ],
)
def test_unknown_names_suggest_close_ones(name, dialect, message):
    with pytest.raises(FormatError) as caught:
        Format.parse(name, dialect)
    assert str(caught.value) == message


def test_dialects_go_by_several_names():
    assert dialects() == tuple(DIALECTS)
    assert set(SYSTEMS) | {"stridewise"} == set(DIALECTS)
    for alias, name in {
        **{"dnnl": "onednn", "openvino_gpu": "openvino", "ascend_ge": "ascend"},
        **{"torch": "pytorch", "tf": "tensorflow", "ort": "onnxruntime", "mlas": "onnxruntime"},
    }.items():
        assert names(alias) == names(name)


def test_formats_of_several_systems_are_equal():
    blocked = [
        Format.parse("nChw16c", "onednn"),
        Format.parse("b_fs_yx_fsv16", "openvino"),
        Format.parse("NC1HWC0", "ascend", dtype="float16"),
        Format.parse("NCHW16c", "tvm"),
        Format.parse("kCHW16", "tensorrt"),
        Format.parse("NCHWc", "onnxruntime", block=16),
    ]
    assert len(set(blocked)) == 1
    weights = [
        Format.parse("OIhw16i16o", "onednn"),
        Format.parse("os_is_yx_isv16_osv16", "openvino"),
        Format.parse("OIHW16i16o", "tvm"),
        Format.parse("OIHWBiBo", "onnxruntime", block=16),
    ]
    assert len(set(weights)) == 1
