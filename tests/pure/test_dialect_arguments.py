"""What names leave open, what they lack, and names without a dialect."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stridewise.errors import FormatError
from stridewise.formats import Format, dialects, names, nd, parse
from stridewise.formats.dialects import DIALECTS, find

from .dialect_facts import SYSTEMS

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
    assert all(find(name) is dialect for name, dialect in DIALECTS.items())
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


@pytest.mark.parametrize(
    ("name", "given"),
    [("block", -3), ("block", 0), ("block", "16"), ("groups", 0), ("rank", -1), ("rank", 2.5)],
)
def test_numbers_that_do_not_fit_are_refused(name, given):
    with pytest.raises(FormatError, match=f"{name}: expected a whole number of"):
        Format.parse("NC1HWC0", **{name: given})


_SIZED = (
    *("nChw{}c", "NChw16n{}c", "aBcd{}b", "OIhw4i{}o", "NCHW{}c", "C{0}NHW{0}", "OHWIo{}"),
    *("os_is_yx_isv{}", "b_fs_yx_fsv{}", "Mat dims=3 elempack={}", "TensorNCxHWx<{}>"),
    *("N,C,H,W: walk N C H W {}*C", "(2,{}):({},1)", "(8,2):(2,{})", "{{1,0:T({},128)}}"),
)


@given(st.sampled_from(_SIZED), st.integers(2, 10**30))
def test_numbers_in_names_are_read_whole(template: str, number: int):
    try:
        fmt = parse(template.format(number, number))
    except FormatError:
        return
    assert str(number) in fmt.text
