"""Winograd convolution: windows of several taps in a half or a quarter of the multiplications.

F(m x m, r x r) computes m x m results from (m + r - 1) x (m + r - 1) products a channel, where
direct convolution takes r x r for each result (Lavin and Gray, arXiv:1509.09308). Along axes where
a window has one tap, tiles have one result. With strides, the s x s pixels that windows share
become the channels of one pixel: then strides are 1, and windows have 1/s as many taps along each
axis. In volumes, so do the pixels of the slices that a window meets. This file describes what the
kernels of ``native/winograd`` can compute.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import prod
from typing import cast

from stridewise.classes import dataclass
from stridewise.graph import Refusal
from stridewise.targets.kernels import KernelContext, KernelSpec, MemorySpec
from stridewise.targets.onednn.family import Family, KernelKind
from stridewise.targets.onednn.memory import block_lanes, plain_memory
from stridewise.targets.onednn.post_ops import unknown_post_op

__all__ = [
    "FAMILY",
    "KIND",
    "MOST_FOLDED",
    "STRIDED",
    "TILES",
    "VOLUMES",
    "WEIGHTS",
    "Geometry",
    "can_pool",
    "folded_window",
    "folds",
    "in_pairs",
    "pooled",
    "specs",
    "suits",
    "volume_specs",
    "weight_gradients",
]

KIND, STRIDED, FITTED = "winograd", "strided_winograd", "fitted_winograd"
"""The kinds of these kernels in a :class:`KernelSpec`: of constant weights, without and with
strides, and of others, which are transformed in each run."""

VOLUMES = "volume_winograd"
"""The kind of kernels of volumes with channels last, whose slices are images."""

WEIGHTS = "winograd_weight_gradient"
"""The kind of kernels of weight gradients."""

Geometry = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], tuple[int, ...]]
"""Strides, dilations, and pads at the begin and the end of each axis."""

_LARGEST_FITTED = 4
"""The largest tile of weights that change: errors of gradients add up from layer to layer."""

TILES: Mapping[tuple[int, int], tuple[int, ...]] = {
    (2, 2): (3, 5),
    (3, 3): (2, 4, 6),
    (4, 4): (5,),
    (5, 5): (2,),
    (1, 3): (4,),
    (1, 5): (4,),
    (1, 7): (2, 4),
}
"""Results of a tile along each axis with more than one tap, by the taps of the window."""

MOST_FOLDED = 0.6
"""Which part of the multiplications may be left with strides.

Windows of 3x3 with strides of 2 become 2x2, of whose 16 taps 7 are zero. Of direct convolution on
Zen 4, they had 0.64 to 0.9 of the multiplications left and took 1.1 to 1.6 times as long. Those of
4x4 had 0.36 to 0.56 and took 0.57 to 1.0 of its time.
"""

_LANE_STEP = 4
"""Products are of a multiple of so many channels: ``kLaneStep`` in ``native/winograd/kernels.hpp``.
"""

_RULE = "winograd"


def _padded(extent: int, multiple: int) -> int:
    return -(-extent // multiple) * multiple


def _tiles(window: tuple[int, ...]) -> tuple[int, ...]:
    """Return the tiles for a window; one of a single column is the transposed one of a row."""
    rows, columns = window
    return TILES.get((columns, rows) if columns == 1 else (rows, columns), ())


def _tiles_along(extent: int, results: int, dilation: int) -> int:
    """Return the tiles of one axis: each phase of a dilated convolution has its own."""
    turns, rest = divmod(extent, results * dilation)
    return turns * dilation + min(rest, dilation)


@dataclass(frozen=True, slots=True)
class _Tiling:
    """How a convolution is cut: results of a tile and taps of the window, along each axis.

    Attributes:
        folded: pixels that become the channels of one, as many as the product of the strides.
    """

    tile: tuple[int, ...]
    window: tuple[int, ...]
    dilations: tuple[int, ...]
    groups: int
    lanes: int
    folded: int = 1

    def _count(self, src: MemorySpec, dst: MemorySpec, multiple: int) -> int:
        channels = src.dims[1] * self.folded // self.groups
        places = prod(m + r - 1 for m, r in zip(self.tile, self.window, strict=True))
        return places * _padded(channels, multiple) * _padded(dst.dims[1], 2 * self.lanes)

    def packed_count(self, src: MemorySpec, dst: MemorySpec) -> int:
        """Return the number of transformed weights, those of padding included."""
        return self._count(src, dst, self.lanes)

    def products(self, src: MemorySpec, dst: MemorySpec) -> int:
        """Return the multiplications of all small matrix products, those of padding included."""
        axes = zip(dst.dims[2:], self.tile, self.dilations, strict=True)
        tiles = dst.dims[0] * prod(_tiles_along(*axis) for axis in axes)
        return tiles * self._count(src, dst, _LANE_STEP)

    def __str__(self) -> str:
        return f"F({'x'.join(map(str, self.tile))})"


def _strides(direct: KernelSpec) -> tuple[int, ...]:
    return cast("tuple[int, ...]", dict(direct.params)["strides"])


def folded_window(window: tuple[int, ...], strides: tuple[int, ...]) -> tuple[int, ...]:
    """Return the taps along each axis that are left when strides become 1."""
    return tuple(-(-taps // step) for taps, step in zip(window, strides, strict=True))


def folds(context: KernelContext, strides: tuple[int, ...]) -> bool | Refusal:
    """Return whether a convolution with strides has kernels, or why a usual window has none.

    Args:
        context: the node.
        strides: its strides, of which some are not 1.
    """
    window = context.value(context.node.inputs[1]).shape[2:]
    left = folded_window(window, strides)
    if len(window) != 2 or not (_tiles(window) or _tiles(left)):
        return False
    text = f"with strides of 1 its window is {left[0]}x{left[1]}, for which there are no tiles"
    return bool(_tiles(left)) or Refusal(_RULE, context.node.name, text)


def suits(context: KernelContext, direct: KernelSpec) -> bool:
    """Return whether windows and formats of a direct convolution are those of these kernels."""
    src, dst = _images(direct)
    window = folded_window(context.value(context.node.inputs[1]).shape[2:], _strides(direct))
    tags = ("acdb", f"aBcd{block_lanes(context)}b")
    if len(window) != 2 or not _tiles(window) or dst.tag not in tags:
        return False
    return src.tag == dst.tag if set(_strides(direct)) == {1} else src.tag in ("abcd", "acdb")


def _fills(context: KernelContext) -> bool:
    """Return whether the channels of every group fill vectors; those of one group need not."""
    groups = context.node.int_attr("groups", 1)
    outputs, channels = context.value(context.node.inputs[1]).shape[:2]
    sizes = (channels, outputs // groups)
    return groups == 1 or all(size % block_lanes(context) == 0 for size in sizes)


def _reason(context: KernelContext, direct: KernelSpec) -> str:
    """Return why a convolution with such a window cannot be computed so, or ``""``."""
    params = dict(direct.params)
    has_blocks, unknown = block_lanes(context) in (8, 16), unknown_post_op(direct.post_ops)
    has_strides = set(_strides(direct)) != {1}
    is_constant = context.is_constant(context.node.inputs[1])
    has_gaps = context.node.int_attr("groups", 1) > 1 or params["dilations"] != (1, 1)
    reasons = (
        (has_strides and has_gaps, "it has strides, and groups or a dilation"),
        (has_strides and not is_constant, "it has strides, and its weights change"),
        (not has_blocks, "the target has no blocks of 8 or 16 channels"),
        (has_blocks and not _fills(context), "its groups fill no whole vectors of channels"),
        (bool(unknown), f"there is no post-op {unknown}"),
    )
    return next((text for applies, text in reasons if applies), "")


def _images(direct: KernelSpec) -> tuple[MemorySpec, MemorySpec]:
    src, dst = direct.memory("src"), direct.memory("dst")
    assert src is not None  # convolutions have both
    assert dst is not None
    return src, dst


def can_pool(spec: KernelSpec) -> bool:
    """Return whether a kernel can store the maxima of 2x2 results instead of these."""
    if spec.kind != KIND:
        return False
    params = dict(spec.params)
    square = 1 not in cast("tuple[int, ...]", params["window"])
    return (
        square
        and cast("int", params["tile"]) % 2 == 0
        and (params["groups"], params["dilations"]) == (1, (1, 1))
        and all(post.kind == "eltwise" for post in spec.post_ops)
    )


def pooled(spec: KernelSpec, result: MemorySpec) -> KernelSpec:
    """Return the kernel that stores the maxima of 2x2 results of another one in ``result``."""
    memories = tuple((role, result if role == "dst" else m) for role, m in spec.memories)
    return replace(spec, memories=memories, params=(*spec.params, ("pool", 2)))


def in_pairs(spec: KernelSpec) -> KernelSpec | None:
    """Return the kernel that multiplies pairs of bfloat16; None where there is none.

    It is for tiles of 2x2 alone: their results have 1.5 times the error of direct convolution in
    bfloat16, those of 4x4 four times.

    Args:
        spec: the kernel with float32 products of a bfloat16 source.
    """
    params = dict(spec.params)
    if spec.kind not in (KIND, FITTED) or params["groups"] != 1:
        return None
    if (params["tile"], params["window"]) != (2, (3, 3)):
        return None
    # Weights of a run are rounded after their transform.
    rounded = "weights" if spec.kind == KIND else ""
    memories = tuple(
        (role, replace(memory, dtype="bf16") if role == rounded else memory)
        for role, memory in spec.memories
    )
    return replace(
        spec,
        memories=memories,
        params=(*spec.params, ("products", "bf16")),
        transformed_nbytes=spec.transformed_nbytes // 2,
    )


def specs(
    context: KernelContext, direct: KernelSpec, *, is_transposed: bool = False
) -> Iterator[tuple[str, KernelSpec] | Refusal]:
    """Yield the kernels, by name, that compute the same as a direct one which :func:`suits`.

    Tiles for which padding eats all that is saved are refused.

    Args:
        context: the node.
        direct: a convolution.
        is_transposed: whether its weights are rotated, and have the channels before the outputs.
    """
    reason = _reason(context, direct)
    if reason:
        yield Refusal(_RULE, context.node.name, reason)
        return
    src, dst = _images(direct)
    lanes, params = block_lanes(context), dict(direct.params)
    w, strides = context.value(context.node.inputs[1]), _strides(direct)
    window = folded_window(w.shape[2:], strides)
    dilations = context.node.ints_attr("dilations", (1, 1))
    groups = context.node.int_attr("groups", 1)
    is_fitted = not context.is_constant(w.name)
    for tile in _tiles(window):
        if is_fitted and tile > _LARGEST_FITTED:
            continue
        results = tuple(1 if taps == 1 else tile for taps in window)
        tiling = _Tiling(results, window, dilations, groups, lanes, prod(strides))
        name = f"winograd {tiling}"
        products = tiling.products(src, dst)
        most = 1.0 if set(strides) == {1} else MOST_FOLDED
        if 2 * products >= most * direct.flops:
            reason = f"{name}: too many multiplications, for padding of channels, tiles, windows"
            yield Refusal(_RULE, context.node.name, reason)
            continue
        count = tiling.packed_count(src, dst)
        weights = plain_memory(w.shape) if is_fitted else MemorySpec((count,), "a")
        memories = tuple((r, weights if r == "weights" else m) for r, m in direct.memories)
        own = (("begins", params["begins"]), ("dilations", dilations), ("ends", params["ends"]))
        own += (("groups", groups), ("lanes", lanes), ("tile", tile), ("window", w.shape[2:]))
        if is_transposed:
            own += (("transposed", 1),)
        kind, nbytes = (FITTED, 0) if is_fitted else (KIND, 4 * count)
        if set(strides) != {1}:
            kind, own = STRIDED, (*own, ("strides", strides))
        spec = KernelSpec(kind, memories, own, direct.post_ops, 2.0 * products, nbytes)
        yield name, spec


def volume_specs(context: KernelContext, direct: KernelSpec) -> Iterator[tuple[str, KernelSpec]]:
    """Yield the kernels, by name, that compute the same as a direct convolution over three axes.

    Args:
        context: the node.
        direct: its direct kernel with channels last, with constant weights.
    """
    src, dst = _images(direct)
    taps, *window = context.value(context.node.inputs[1]).shape[2:]
    lanes, params = block_lanes(context), dict(direct.params)
    stride, *strides = _strides(direct)
    dilation, *dilations = cast("tuple[int, ...]", params["dilations"])
    (front, *begins), (back, *ends) = (
        cast("tuple[int, ...]", params[name]) for name in ("begins", "ends")
    )
    left = folded_window(tuple(window), tuple(strides))
    is_plain = context.node.int_attr("groups", 1) == 1 and set(dilations) == {1}
    if lanes not in (8, 16) or not is_plain or taps == 1 or unknown_post_op(direct.post_ops):
        return

    def slices(memory: MemorySpec) -> MemorySpec:
        images, channels, count, *extents = memory.dims
        return MemorySpec((images * count, channels, *extents), "acdb")

    images = {"src": slices(src), "dst": slices(dst)}
    posts = tuple(
        post if post.operand is None else replace(post, operand=images["dst"])
        for post in direct.post_ops
    )
    for tile in _tiles(left):
        results = tuple(1 if extent == 1 else tile for extent in left)
        tiling = _Tiling(results, left, (1, 1), 1, lanes, taps * prod(strides))
        products = tiling.products(images["src"], images["dst"])
        if 2 * products >= MOST_FOLDED * direct.flops:
            continue
        count = tiling.packed_count(images["src"], images["dst"])
        known = {**images, "weights": MemorySpec((count,), "a")}
        own = (("begins", tuple(begins)), ("ends", tuple(ends)), ("lanes", lanes))
        own += (("slices", (src.dims[2], taps, stride, dilation, front, back)),)
        own += (("strides", tuple(strides)), ("tile", tile), ("window", tuple(window)))
        memories = tuple((role, known.get(role, memory)) for role, memory in direct.memories)
        yield (
            f"winograd {tiling}",
            KernelSpec(VOLUMES, memories, own, posts, 2.0 * products, 4 * count),
        )


def weight_gradients(
    src: MemorySpec, diff_dst: MemorySpec, dst: MemorySpec, geometry: Geometry, lanes: int
) -> Iterator[tuple[str, KernelSpec]]:
    """Yield the kernels, by name, that compute the gradient of the weights of a convolution.

    Args:
        src: the source of the convolution.
        diff_dst: the gradient of its result.
        dst: the gradient of its weights, without groups.
        geometry: strides, dilations and pads of the convolution.
        lanes: elements of a vector of the target, 0 where it has none.
    """
    strides, dilations, begins, ends = geometry
    window = dst.dims[2:]
    tags = ("acdb", f"aBcd{lanes}b")
    if (
        lanes not in (8, 16)
        or window != (3, 3)
        or set(strides) != {1}
        or min(*begins, *ends) < 0
        or src.tag != diff_dst.tag
        or src.tag not in tags
    ):
        return
    params = (("begins", begins), ("dilations", dilations), ("ends", ends), ("lanes", lanes))
    direct = 2.0 * prod(diff_dst.dims) * prod(dst.dims[1:])
    for tile in (2, 4):
        tiling = _Tiling((tile, tile), window, dilations, 1, lanes)
        flops = 2.0 * tiling.products(src, diff_dst)
        if flops < direct:
            memories = (("src", src), ("diff_dst", diff_dst), ("dst", dst))
            own = (*params, ("tile", tile), ("window", window))
            yield f"winograd {tiling}", KernelSpec(WEIGHTS, memories, own, flops=flops)


_TRANSFORM: dict[object, float] = {2: 12.0, 3: 12.0, 4: 24.0, 5: 24.0, 6: 24.0}
"""By results of a tile along an axis, what transforming a pixel, either way, takes in products.

Fits ``benchmarks/winograd.py`` on Zen 3: with 64, 128, 256, 512 channels, products and transforms
together reached 0.48, 0.62, 0.73 and 0.75 of the peak of the products for tiles of 4x4, and 0.50,
0.61, 0.73 and 0.74 for tiles of 6x6.
"""


def _share(spec: KernelSpec) -> float:
    """Return which part of the time of Winograd convolution goes into its products.

    A transformed pixel takes part in the products with the channels of its group only.
    """
    params = dict(spec.params)
    groups, each = params.get("groups", 1), _TRANSFORM[params["tile"]]
    if not isinstance(groups, int):
        return 1.0
    images = (spec.memory(role) for role in ("src", "dst"))
    # Products of pairs take half the time, transforms as much as ever.
    each *= 2.0 if "products" in params else 1.0
    folded = prod(cast("tuple[int, ...]", params.get("strides", ())))
    folded *= cast("tuple[int, ...]", params.get("slices", (1, 1)))[1]
    factors = (folded, 1)
    share = sum(
        each * groups / (factor * image.dims[1])
        for image, factor in zip(images, factors, strict=True)
        if image is not None
    )
    return 1.0 / (1.0 + share)


def _fitted_share(spec: KernelSpec) -> float:
    """Return the same of kernels that transform a window as often as it meets few tiles."""
    dst, tile = spec.memory("dst"), dict(spec.params)["tile"]
    assert dst is not None  # all have one
    assert isinstance(tile, int)
    tiles = dst.dims[0] * prod(-(-extent // tile) for extent in dst.dims[2:])
    return 1.0 / (1.0 / _share(spec) + _WINDOW / tiles)


_WINDOW = 25.0
"""Tiles whose products with a window take as long as the transform of the window."""


def _weights_share(spec: KernelSpec) -> float:
    """Return the same of weight gradients, whose sums are loaded and stored for few tiles."""
    src, diff_dst, tile = spec.memory("src"), spec.memory("diff_dst"), dict(spec.params)["tile"]
    assert src is not None  # all have both
    assert diff_dst is not None
    assert isinstance(tile, int)
    tiles = diff_dst.dims[0] * prod(-(-extent // tile) for extent in diff_dst.dims[2:])
    each = _TRANSFORM[tile]
    return 1.0 / (1.0 + each / src.dims[1] + each / diff_dst.dims[1] + _SUMS / tiles)


_SUMS = 30.0
"""Tiles whose products take as long as the transform of their sums."""

_EFFICIENCY = {"channels-last": 0.85, "blocked": 0.85}

FAMILY = Family(
    # Of the multiplications that are left, those of padding included, except for the transforms.
    kinds={
        FITTED: KernelKind(_EFFICIENCY, share=_fitted_share),
        KIND: KernelKind(_EFFICIENCY, share=_share),
        STRIDED: KernelKind(_EFFICIENCY, share=_share),
        VOLUMES: KernelKind(_EFFICIENCY, share=_share),
        WEIGHTS: KernelKind({"plain": 0.85}, share=_weights_share),
    }
)
