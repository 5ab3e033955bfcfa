"""Formats of OpenVINO's GPU plugin.

Source: ``src/plugins/intel_gpu/src/runtime/format.cpp`` of openvinotoolkit/openvino at de7be5e and
of 2023, and the index functions of the kernels, ``fetch_weights.cl`` of opencv/dldt at 9f7cf58. If
these disagree, the kernels decide, because they agree with the names. Grammar: :func:`words of axes
<_order>` in memory order with an ``s`` after sliced axes, then the slices, outermost first:
``b_fs_yx_fsv16``. Every name of this grammar parses, but only names that OpenVINO defines are
printed. Axes are renamed: b f z y x to N C D H W (w u v to T U V), and o i to O I.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from math import prod

from stridewise.formats.data import Block, Digit, FormatData, Fuse, Pad
from stridewise.formats.dialects.dialect import Dialect, Parameters, Table
from stridewise.formats.dialects.notation import walk

__all__ = ["DIALECT"]

_LETTERS = {
    **{"b": "N", "f": "C", "v": "V", "u": "U", "w": "T", "z": "D", "y": "H", "x": "W"},
    **{"g": "G", "o": "O", "i": "I"},
}
_SETS = {
    frozenset(letters): letters
    for letters in (
        *("bf", "bfyx", "bfzyx", "bfwzyx", "bfuwzyx", "bfvuwzyx"),
        *("oi", "oiyx", "oizyx", "goiyx", "goizyx"),
    )
}

_NAME = re.compile(
    r"(?P<order>[a-z]+(?:_o32|_x8|_[a-z]+)*?)"
    r"(?P<slices>(?:_[a-z]+s[va]\d{1,9}|_32fp)*)p?"
    r"(?:__a(?P<padded>[a-z])(?P<multiple>\d{1,9}))?"
    r"(?:_swizzled_by_(?P<swizzle>[24]))?"
)
_SLICE = re.compile(r"_([a-z]+)s[va](\d+)|_32(f)p")

# Weights of less than a byte are packed in an order that differs from the name.
_PACKED = {
    ("os_iyx_osv16", 4): "O I H W 16*O 2*I",
    ("os_iyx_osv32", 4): "O I H W 16*O@1 2*O@16",
    ("os_iyx_osv64", 4): "O I H W 2*O@32 16*O@1 2*O@16",
    ("os_is_yx_osv64_isv2", 2): "O I H W 2*O@32 16*O@1 2*O@16 2*I",
}

_IMAGE = "an OpenCL image, not a buffer"
_WINOGRAD = "Winograd-transformed data, whose values are computed, not moved"
_UNPAIRED = "an irregular order: an unpaired last column of the kernel is laid out differently"
_TABLE = Table(
    "OpenVINO",
    {},
    refused={
        "custom": "a format that is built at run time and has no name",
        "giy_xs_os_xsv2_osv16__ao32": _UNPAIRED,
        "giy_xs_os_xsv2_osv8__ao32": _UNPAIRED,
        "image_2d_rgba": _IMAGE,
        "image_2d_weights_c1_b_fyx": _IMAGE,
        "image_2d_weights_c4_fyx_b": _IMAGE,
        "image_2d_weights_winograd_6x3_s1_fbxyb": _IMAGE,
        "image_2d_weights_winograd_6x3_s1_xfbyb": _IMAGE,
        "iy_xs_os_xsv2_osv16__ao32": _UNPAIRED,
        "iy_xs_os_xsv2_osv8__ao32": _UNPAIRED,
        "lstm_weights_dio": "LSTM weights whose parts are laid out by the network",
        "nv12": "a video surface of several planes",
        "winograd_2x3_s1_data": _WINOGRAD,
        "winograd_2x3_s1_fused_weights": _WINOGRAD,
        "winograd_2x3_s1_weights": _WINOGRAD,
        "winograd_6x3_s1_fused_weights": _WINOGRAD,
    },
    # In fully connected layers x is the flattened f, as in the later names.
    synonyms={
        "bs_x_bsv16": "bs_f_bsv16",
        "bs_xs_xsv8_bsv8": "bs_fs_fsv8_bsv8",
        "bs_xs_xsv8_bsv16": "bs_fs_fsv8_bsv16",
        "os_is_osv32_isv32_swizzled_by_4": "os_is_osa4_isa8_osv8_isv4_swizzled_by_4",
    },
)

_SWIZZLED = 32  # outputs that one swizzle permutes


def _order(words: str) -> tuple[list[Digit], list[str], list[Pad], list[Fuse]]:
    """Parse the words of axes into digits, sliced axes, pads and fused axes."""
    digits: list[Digit] = []
    sliced: list[str] = []
    pads: list[Pad] = []
    fused: list[Fuse] = []
    for word in words.split("_"):
        axes = [_LETTERS.get(letter, letter) for letter in word.removesuffix("s")]
        if word == "x8":
            digits.append("W")
            pads.append(Pad("W", 8))
        elif word == "o32":
            digits += ["O", Block("O", _SWIZZLED)]
        elif word.endswith("s") and len(axes) > 1:
            fused.append(Fuse(tuple(axes), "".join(axes)))
            digits.append(fused[-1].into)
            sliced.append(fused[-1].into)
        else:
            digits += axes
            sliced += axes if word.endswith("s") else []
    return digits, sliced, pads, fused


def _slices(text: str) -> list[Block]:
    found: list[Block] = []
    for match in _SLICE.finditer(text):
        letters: str = match[1] or match[3]
        axis = "".join(_LETTERS.get(letter, letter) for letter in letters)
        found.append(Block(axis, int(match[2] or 32)))
    return found


def _turned(size: int, step: int, by: int) -> Iterable[Digit]:
    """Return the digits of o for a digit of the swizzled index (o % by) * (32 / by) + o / by."""
    row = _SWIZZLED // by
    if step >= row:
        yield Block("O", size, step // row)
    elif size * step <= row:
        yield Block("O", size, step * by)
    else:
        yield Block("O", size * step // row, 1)
        yield Block("O", row // step, step * by)


def _swizzled(digits: list[Digit], by: int) -> list[Digit]:
    found: list[Digit] = []
    blocks = [item for item in digits if isinstance(item, Block) and item.axis == "O"]
    whole = prod(block.size for block in blocks)
    for item in digits:
        if item == "O":
            found.append(item)
            found += _turned(_SWIZZLED // whole, whole, by) if whole < _SWIZZLED else ()
        elif isinstance(item, Block) and item.axis == "O":
            blocks.pop(0)
            found += _turned(item.size, prod(block.size for block in blocks), by)
        else:
            found.append(item)
    return found


def _parse(text: str, parameters: Parameters) -> FormatData | None:
    _TABLE.parse(text, parameters)
    name = _TABLE.plain(text)
    packed = _PACKED.get((name, parameters.bits or 0))
    if packed is not None:
        return walk(packed)
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    digits, sliced, pads, fused = _order(match["order"])
    slices = _slices(match["slices"])
    letters = re.sub(r"[s_\d]", "", match["order"])
    known = _SETS.get(frozenset(letters))
    blocked = {item.axis for item in slices}
    if known is None or len(known) != len(letters) or blocked != set(sliced):
        return None
    digits += slices
    if match["padded"]:
        pads.append(Pad(_LETTERS[match["padded"]], int(match["multiple"])))
    if match["swizzle"]:
        digits = _swizzled(digits, int(match["swizzle"]))
    axes = tuple(_LETTERS[letter] for letter in known)
    return FormatData(axes, tuple(digits), tuple(pads), tuple(fused))


def _names() -> tuple[str, ...]:
    return (*_CURRENT.split(), *_REMOVED.split(), *_TABLE.refused)


# Names of 2023 and later come first, because the first matching name is printed.
_CURRENT = """
b_fs_yx_fsv16 b_fs_yx_fsv2 b_fs_yx_fsv32 b_fs_yx_fsv4 b_fs_yx_fsv8 b_fs_zyx_fsv16 b_fs_zyx_fsv2
b_fs_zyx_fsv32 b_fs_zyx_fsv4 b_fs_zyx_fsv8 bfuwzyx bfvuwzyx bfwzyx bfxy bfyx bfzyx bs_f_bsv16
bs_fs_fsv8_bsv16 bs_fs_fsv8_bsv8 bs_fs_yx_bsv16_fsv16 bs_fs_yx_bsv16_fsv2 bs_fs_yx_bsv16_fsv32
bs_fs_yx_bsv16_fsv4 bs_fs_yx_bsv16_fsv8 bs_fs_yx_bsv32_fsv16 bs_fs_yx_bsv32_fsv32
bs_fs_yx_bsv4_fsv2 bs_fs_yx_bsv4_fsv4 bs_fs_yx_bsv8_fsv2 bs_fs_yx_bsv8_fsv4 bs_fs_zyx_bsv16_fsv16
bs_fs_zyx_bsv16_fsv2 bs_fs_zyx_bsv16_fsv32 bs_fs_zyx_bsv16_fsv4 bs_fs_zyx_bsv16_fsv8
bs_fs_zyx_bsv32_fsv16 bs_fs_zyx_bsv32_fsv32 bs_fs_zyx_bsv4_fsv2 bs_fs_zyx_bsv4_fsv4
bs_fs_zyx_bsv8_fsv2 bs_fs_zyx_bsv8_fsv4 bxfy byfx byxf bzyxf fbyx fs_b_yx_fsv32 fybx fyxb
g_is_os_yx_isv16_osv16 g_is_os_zyx_isv16_osv16 g_os_is_yx_isv16_osv16 g_os_is_yx_isv8_osv16_isv2
g_os_is_yx_osa4_isa8_osv8_isv2 g_os_is_yx_osv16_isv4 g_os_is_zyx_isa8_osv8_isv2
g_os_is_zyx_isv16_osv16 g_os_is_zyx_isv8_osv16_isv2 g_os_is_zyx_osv16_isv16 g_os_iyx_osv16
g_os_iyx_osv32 g_os_iyx_osv8 g_os_zy_is_x_osv8_isv4 g_os_zyx_is_osv16_isv16
g_os_zyx_is_osv16_isv32 g_os_zyx_is_osv16_isv4 g_os_zyx_is_osv32_isv16 g_os_zyx_is_osv32_isv32
g_os_zyx_is_osv32_isv4 gi_yxs_os_yxsv2_osv16 gioyx giozyx goiyx goizyx gs_oi_yxs_gsv16_yxsv4
gs_oi_yxs_gsv32_yxsv4 gs_oi_yxs_gsv4_yxsv4 gs_oiyx_gsv16 gs_oiyx_gsv32 gs_oizyx_gsv16 gyxio
i_yxs_os_yxsv2_osv16 ioyx iozyx is_os_yx_isa2_osa8_isv8_osv2 is_os_yx_isa4_osa8_isv8_osv4
is_os_yx_isv16_osv16 is_os_yx_isv16_osv2 is_os_yx_isv16_osv4 is_os_yx_osa4_isa8_osv8_isv4
is_os_zyx_isv16_osv16 iyxo o_is_yx_isv16 o_is_yx_isv4 oiyx oizyx os_i_osv16 os_i_osv16__ai8
os_i_osv8__ai8 os_is_yx_isa8_osv16_isv4 os_is_yx_isa8_osv8_isv4
os_is_yx_isa8_osv8_isv4_swizzled_by_4 os_is_yx_isv16_osv16 os_is_yx_isv8_osv16_isv2
os_is_yx_osa4_isa8_osv8_isv4 os_is_yx_osa4_isa8_osv8_isv4_swizzled_by_4 os_is_yx_osv16_isv16
os_is_yx_osv16_isv4 os_is_yx_osv32_isv2 os_is_yx_osv32_isv32p os_is_yx_osv32_isv4
os_is_yx_osv32_isv4_swizzled_by_2 os_is_yx_osv64_isv2 os_is_yx_osv8_isv4 os_is_zyx_isa8_osv16_isv4
os_is_zyx_isa8_osv8_isv4 os_is_zyx_isv16_osv16 os_is_zyx_isv8_osv16_isv2
os_is_zyx_osa4_isa8_osv8_isv4 os_is_zyx_osa4_isa8_osv8_isv4_swizzled_by_4 os_is_zyx_osv16_isv16
os_is_zyx_osv32_isv16 os_is_zyx_osv32_isv4 os_is_zyx_osv64_isv16 os_iyx_osv16 os_iyx_osv32
os_iyx_osv32__ai32 os_iyx_osv64 os_iyx_osv8 os_yxi_osv16 os_zyx_is_osv8_isv2 os_zyxi_osv16 oxiy
oyix oyxi xbfy ybfx yxfb yxio
"""
_REMOVED = """
b_fs_yx_32fp bs_x_bsv16 bs_xs_xsv8_bsv16 bs_xs_xsv8_bsv8 g_os_is_yx_isa8_osv8_isv2
g_os_is_yx_isa8_osv8_isv4 g_os_is_yx_osa2_isa8_osv16_isv2 g_os_is_yx_osa2_isa8_osv16_isv4
g_os_is_yx_osa2_isa8_osv8_isv2 g_os_is_yx_osa4_isa8_osv8_isv4 g_os_is_yx_osv8_isv2
g_os_is_yx_osv8_isv4 g_os_is_zyx_isa8_osv8_isv4 g_os_is_zyx_osa4_isa8_osv8_isv2
g_os_is_zyx_osa4_isa8_osv8_isv4 g_os_y_is_x_osv8_isv2 g_os_y_is_x_osv8_isv4 g_os_yx_is_osv8_isv2
g_os_yx_is_osv8_isv4 g_os_zy_is_x_osv8_isv2 g_os_zyx_is_osv8_isv2 g_os_zyx_is_osv8_isv4
gs_oiyx_gsv8 gs_oizyx_gsv32 gs_oizyx_gsv8 is_o32_yx_isv32_swizzled_by_4 is_o_yx_isv32
is_os_yx_isa8_osv8_isv2 is_os_yx_isa8_osv8_isv4 is_os_yx_isv16_osv8 is_os_yx_osa8_isv16_osv4
is_os_yx_osv8_isv4 is_os_zyx_isa8_osv8_isv2 is_os_zyx_isa8_osv8_isv4 o_is_zyx_isv16
os_i_yxs_osv4_yxsv4 os_is_osv32_isv32_swizzled_by_4 os_is_y_x8_osv8_isv4
os_is_y_x8_osv8_isv4_swizzled_by_4 os_is_yx_isa8_osv8_isv2 os_is_yx_osa2_isa8_osv16_isv2
os_is_yx_osa2_isa8_osv16_isv4 os_is_yx_osa2_isa8_osv8_isv2 os_is_yx_osa4_isa8_osv8_isv2
os_is_yx_osv16_isv2 os_is_yx_osv2_isv16 os_is_yx_osv4_isv16 os_is_yx_osv8_isv2
os_is_zyx_isa8_osv8_isv2 os_is_zyx_osa2_isa8_osv8_isv2 os_is_zyx_osa4_isa8_osv8_isv2
os_is_zyx_osv8_isv2 os_is_zyx_osv8_isv4 os_y_is_x_osv8_isv2 os_y_is_x_osv8_isv4
os_yx_is_osv16_isv2 os_yx_is_osv8_isv2 os_yx_is_osv8_isv4 os_zy_is_x_osv8_isv2
os_zy_is_x_osv8_isv4 os_zyx_is_osv8_isv4 yxiog
"""

DIALECT = Dialect(
    "openvino", "OpenVINO", _parse, _names, aliases=("openvino_gpu",), example="b_fs_yx_fsv16"
)
