"""Winograd convolution: windows of 3x3 in a half or a quarter of the multiplications.

F(m x m, 3 x 3) computes m x m results from (m + 2) x (m + 2) products a channel, where direct
convolution takes 9 m x m (Lavin and Gray, arXiv:1509.09308). The kernels are our own; what they can
do is said here, and ``native/winograd.cpp`` does it.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from stridewise.graph import Refusal
from stridewise.ops.kernels import KernelContext, KernelOption, KernelSpec, MemorySpec, PostOpSpec

__all__ = ["KIND", "TILES", "option_nbytes", "packed_nbytes", "specs", "suits"]

KIND = "winograd"
"""The kind of these kernels in a :class:`KernelSpec`."""

TILES = (2, 4)
"""Results of a tile along each axis."""

_WINDOW = 3
_RULE = "winograd"
_ELTWISE = frozenset(
    {"abs", "clip", "clip_v2", "elu", "exp", "gelu_erf", "hardsigmoid", "hardswish", "linear"}
    | {"log", "logistic", "pow", "relu", "soft_relu", "sqrt", "square", "swish", "tanh"}
)
_BINARY = frozenset({"add", "sub", "mul", "div", "max", "min"})


def _padded(extent: int, multiple: int) -> int:
    return -(-extent // multiple) * multiple


def _products(tile: int, lanes: int, src: MemorySpec, dst: MemorySpec) -> int:
    """Return the multiplications of all small matrix products, those of padding included."""
    images, outputs, height, width = dst.dims
    tiles = images * -(-height // tile) * -(-width // tile)
    return tiles * (tile + 2) ** 2 * _padded(src.dims[1], lanes) * _padded(outputs, 2 * lanes)


def _packed_count(tile: int, lanes: int, src: MemorySpec, dst: MemorySpec) -> int:
    return (tile + 2) ** 2 * _padded(src.dims[1], lanes) * _padded(dst.dims[1], 2 * lanes)


def packed_nbytes(spec: KernelSpec) -> int:
    """Return the bytes of transformed weights that a kernel reads; 0 for those of other kinds."""
    weights = spec.memory("weights") if spec.kind == KIND else None
    return 0 if weights is None else 4 * prod(weights.dims)


def option_nbytes(option: KernelOption) -> int:
    """Return the bytes of transformed weights that an option reads."""
    return sum(packed_nbytes(call.spec) for call in option.calls)


def _unknown(post_ops: tuple[PostOpSpec, ...]) -> str:
    """Return a post-op that the kernels cannot do, or ``""``."""
    for post in post_ops:
        known = {"eltwise": _ELTWISE, "binary": _BINARY}.get(post.kind)
        if known is not None and post.algorithm not in known:
            return post.algorithm
    return ""


def _lanes(context: KernelContext) -> int:
    """Return the lanes of a vector of the target, which are the channels of its blocks."""
    for fmt in context.formats(context.node.outputs[0]).values():
        if fmt.is_blocked:
            return fmt.blocks[-1].size
    return 0


def suits(context: KernelContext, direct: KernelSpec) -> bool:
    """Return whether windows and formats of a direct convolution are those of these kernels."""
    src, dst = _images(direct)
    window = context.value(context.node.inputs[1]).shape[2:]
    tags = ("acdb", f"aBcd{_lanes(context)}b")
    return window == (_WINDOW, _WINDOW) and src.tag == dst.tag and src.tag in tags


def _reason(context: KernelContext, direct: KernelSpec) -> str:
    """Return why a convolution with a window of 3x3 cannot be computed so, or ``""``."""
    params = dict(direct.params)
    reasons = (
        (context.node.int_attr("groups", 1) != 1, "it has groups"),
        (params["strides"] != (1, 1), "it has strides"),
        (params["dilations"] != (1, 1), "it has dilations"),
        (not context.is_constant(context.node.inputs[1]), "its weights are computed"),
        (_lanes(context) not in (8, 16), "the target has no blocks of 8 or 16 channels"),
        (_unknown(direct.post_ops) != "", f"there is no post-op {_unknown(direct.post_ops)}"),
    )
    return next((text for applies, text in reasons if applies), "")


def _images(direct: KernelSpec) -> tuple[MemorySpec, MemorySpec]:
    src, dst = direct.memory("src"), direct.memory("dst")
    assert src is not None  # convolutions have both
    assert dst is not None
    return src, dst


def specs(context: KernelContext, direct: KernelSpec) -> Iterator[tuple[str, KernelSpec] | Refusal]:
    """Yield the kernels, by name, that compute the same as a direct one which :func:`suits`.

    Tiles for which padding eats all that is saved are refused.
    """
    reason = _reason(context, direct)
    if reason:
        yield Refusal(_RULE, context.node.name, reason)
        return
    src, dst = _images(direct)
    lanes, params = _lanes(context), dict(direct.params)
    for tile in TILES:
        name = f"winograd F({tile}x{tile})"
        products = _products(tile, lanes, src, dst)
        if 2 * products >= direct.flops:
            reason = f"{name}: no fewer multiplications, for padding of channels and tiles"
            yield Refusal(_RULE, context.node.name, reason)
            continue
        weights = MemorySpec((_packed_count(tile, lanes, src, dst),), "a")
        memories = tuple((r, weights if r == "weights" else m) for r, m in direct.memories)
        own = (("begins", params["begins"]), ("ends", params["ends"]))
        own += (("lanes", lanes), ("tile", tile))
        yield name, KernelSpec(KIND, memories, own, direct.post_ops, flops=2.0 * products)
