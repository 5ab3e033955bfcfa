"""Formats of Huawei's Ascend: Graph Engine, CANN and torch_npu.

Source: ``inc/external/graph/types.h`` of hicann/metadef at 786891c for the names,
``transfer_shape_utils.cc`` and ``base/formats/format_transfers`` of hicann/ge at ffdcbc9 for their
meaning. C0, the innermost block, is part of a few names. Otherwise it depends on the dtype: 64 for
int4, 32 for int8, else 16 (8 for float32 in high precision: pass block=8). Weights have the letters
of the tensors that they are made from: N output channels, C input channels.

FRACTAL_Z_C04 supports at most 4 input channels. This is not checked, because formats do not limit
extents. Grouped FRACTAL_Z shares blocks between groups and is not a permutation.
"""

from __future__ import annotations

from collections.abc import Callable

from stridewise.formats.data import Block, FormatData, Pad, Split, nd
from stridewise.formats.dialects.dialect import Dialect, Parameters, Table, need, refuse
from stridewise.formats.dialects.notation import walk

__all__ = ["DIALECT"]

_TITLE = "Ascend"
_C0 = {4: 64, 8: 32}
_DEFAULT_C0 = 16
_M0 = 16


def _c0(name: str, parameters: Parameters) -> int:
    if parameters.block is not None:
        return parameters.block
    if parameters.bits is None:
        raise need(_TITLE, name, "the block C0", "give dtype= or block=")
    return _C0.get(parameters.bits, _DEFAULT_C0)


def _blocked(name: str, digits: str) -> Callable[[Parameters], FormatData]:
    return lambda parameters: walk(digits.format(c0=_c0(name, parameters)))


def _grouped(name: str, digits: str) -> Callable[[Parameters], FormatData]:
    def made(parameters: Parameters) -> FormatData:
        if parameters.groups > 1:
            why = "groups that share blocks, filled along the diagonal: no permutation"
            raise refuse(_TITLE, name, why)
        given = "C,N: C N 16*N {c0}*C" if name == "FRACTAL_Z" and parameters.rank == 2 else digits
        return _blocked(name, given)(parameters)

    return made


def _nz(name: str, c0: int | None = None) -> Callable[[Parameters], FormatData]:
    def made(parameters: Parameters) -> FormatData:
        rank = 2 if parameters.rank is None else parameters.rank
        if rank < 2:
            why = "a vector, which the parts of Ascend's software lay out differently"
            raise refuse(_TITLE, name, why, "reshape it to a matrix")
        leading = ("B",) if rank == 3 else tuple(f"B{i}" for i in range(rank - 2))
        inner = Block("N", _c0(name, parameters) if c0 is None else c0)
        return FormatData((*leading, "M", "N"), (*leading, "N", "M", Block("M", _M0), inner))

    return made


def _rnn_bias(parameters: Parameters) -> FormatData:
    pads = (Pad("Hidden", _c0("ND_RNN_BIAS", parameters)),)
    walked = ("Gate", "Hidden")
    if parameters.hidden_size is None:
        return FormatData(walked, walked, pads)
    return FormatData(("a",), walked, pads, (Split("a", *walked, parameters.hidden_size),))


def _nd(parameters: Parameters) -> FormatData:
    if parameters.rank is None:
        raise need(_TITLE, "ND", "the number of axes", "give rank=")
    return nd(parameters.rank)


_BLOCKED = {
    "NC1HWC0": "N C H W {c0}*C",
    "NDC1HWC0": "N D C H W {c0}*C",
    "FRACTAL_ZZ": "M N {c0}*M {c0}*N",
    "FRACTAL_Z_3D_TRANSPOSE": "D N H W C 16*C {c0}*N",
    "FRACTAL_Z_C04": "N,C,H,W: K N 16*N {c0}*K; fuse K = H W C; pad C 4",
    "FRACTAL_Z_WINO": "C N 2*N H W 8*N {c0}*C",
    "C1HWC0": "N C H W {c0}*N",
    "NC1KHKWHWC0": "N,C,KH,KW,H,W: N C KH KW H W {c0}*C",
}
_NO_RULE = "a name without a rule"
_NO_LAYOUT = "a name for something else than a tensor"
_SENTINEL = "a sentinel"

_TABLE = Table(
    _TITLE,
    {
        "NCHW": "N C H W",
        "NHWC": "N H W C",
        **{name: _blocked(name, digits) for name, digits in _BLOCKED.items()},
        "FRACTAL_Z": _grouped("FRACTAL_Z", "C H W N 16*N {c0}*C"),
        "FRACTAL_Z_3D": _grouped("FRACTAL_Z_3D", "D C H W N 16*N {c0}*C"),
        "FRACTAL_NZ": _nz("FRACTAL_NZ"),
        **{f"FRACTAL_NZ_C0_{c0}": _nz(f"FRACTAL_NZ_C0_{c0}", c0) for c0 in (2, 4, 8, 16, 32)},
        "NC1HWC0_C04": "N C H W 4*C",
        "ND": _nd,
        "HWCN": "H W C N",
        "CHWN": "C H W N",
        "NCDHW": "N C D H W",
        "NDHWC": "N D H W C",
        "DHWCN": "D H W C N",
        "DHWNC": "D H W N C",
        "NC": "N C",
        "CN": "C N",
        "NCL": "N C W",
        "FILTER_HWCK": "H W I O",
        "ND_RNN_BIAS": _rnn_bias,
        "NYUV_A": "N,H,W,C: N H W C; pad H 16; pad W 64",
    },
    refused={
        "ALL": _SENTINEL,
        "NULL": _SENTINEL,
        "RESERVED": _SENTINEL,
        "BN_WEIGHT": _NO_RULE,
        "C1HWNC0": f"{_NO_RULE}; it reads as [C1][H][W][N][C0]",
        "C1HWNCoC0": "blocks filled along the diagonal, C0 times the storage: no permutation",
        "FRACTAL_DECONV": _NO_RULE,
        "FRACTAL_DECONV_SP_STRIDE8_TRANS": _NO_RULE,
        "FRACTAL_DECONV_SP_STRIDE_TRANS": _NO_RULE,
        "FRACTAL_DECONV_TRANSPOSE": _NO_RULE,
        "FRACTAL_ZN_LSTM": "two parts of an axis that are padded separately",
        "FRACTAL_ZN_RNN": "parts of an axis that are padded separately",
        "FRACTAL_Z_G": f"{_NO_RULE}; FRACTAL_Z with groups took its place",
        "FSR_NCHW": _NO_RULE,
        "HASHTABLE_LOOKUP_HITS": _NO_LAYOUT,
        "HASHTABLE_LOOKUP_KEYS": _NO_LAYOUT,
        "HASHTABLE_LOOKUP_LOOKUPS": _NO_LAYOUT,
        "HASHTABLE_LOOKUP_OUTPUT": _NO_LAYOUT,
        "HASHTABLE_LOOKUP_VALUE": _NO_LAYOUT,
        "MD": _NO_LAYOUT,
        "NC1C0HWPAD": _NO_RULE,
        "NHWC1C0": f"{_NO_RULE}; it reads as NHWC with C padded to C0",
        "NYUV": f"{_NO_RULE}; an image",
    },
    prefixes=("ACL_FORMAT_", "FORMAT_", "ACL_"),
    synonyms={
        "5HD": "NC1HWC0",
        "6HD": "NDC1HWC0",
        "FRACZ": "FRACTAL_Z",
        "FRACTAL_NZ (H=M, W=N)": "FRACTAL_NZ",
    },
)

DIALECT = Dialect(
    "ascend", _TITLE, _TABLE.parse, _TABLE.names, aliases=("ascend_ge",), example="NC1HWC0"
)
