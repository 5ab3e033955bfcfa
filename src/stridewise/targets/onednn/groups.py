"""Groups of a convolution that the library computes together.

In blocks it has fast kernels of groups if the channels of each, in and out, are whole blocks, and
naive loops otherwise. With channels last it multiplies tiles (AMX) if they are. Narrower groups are
computed several at a time, as one whose weights are zero between them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from stridewise.targets.kernels import KernelOption, KernelSpec, MemorySpec
from stridewise.targets.onednn.memory import storage_of

__all__ = ["fills_tiles", "in_whole_vectors", "narrow_share", "per_group", "together"]

_TOGETHER = "groups_together"
_WIDE = 32
"""Groups of so many channels are as fast as a convolution without groups."""


def together(spec: KernelSpec) -> int:
    """Return how many groups of a convolution or of its gradient are computed as one."""
    found = dict(spec.params).get(_TOGETHER, 1)
    assert isinstance(found, int)
    return found


def per_group(spec: KernelSpec, weights: MemorySpec) -> tuple[int, ...]:
    """Return the channels out and in of a group as it is computed, none without groups."""
    src, count = spec.memory("src"), together(spec)
    has_groups = src is not None and len(weights.dims) == len(src.dims) + 1
    return tuple(count * extent for extent in weights.dims[1:3]) if has_groups else ()


def narrow_share(spec: KernelSpec, weights: MemorySpec, power: float) -> float:
    """Return which part of the rate of wide groups the library's kernels reach.

    In blocks, where groups are whole vectors, that is all of it. With channels last and groups of
    4, 8 and 16 channels, one core of Zen 4 reached 0.33, 0.54 and 0.49 of it in convolutions, 0.42,
    0.88 and 0.81 in gradients of sources, and 0.22, 0.45 and 0.72 in gradients of weights.

    Args:
        spec: a convolution, or a gradient of one.
        weights: its weights, or their gradient.
        power: how fast the rate falls with the width of groups.
    """
    channels, images = per_group(spec, weights), spec.memory("diff_dst") or spec.memory("dst")
    if set(channels) <= {1} or storage_of(images) == "blocked":
        return 1.0
    return min(1.0, min(channels) / _WIDE) ** power


def in_whole_vectors(
    direct: KernelOption, weights: MemorySpec, lanes: int
) -> Iterator[KernelOption]:
    """Yield the option that computes so many groups together that they fill vectors, if one does.

    With channels last, that is for tiles: without them, each group by itself is faster.

    Args:
        direct: one call, which computes each group by itself.
        weights: those of the call, with groups, or without for a single one.
        lanes: elements of a vector of the target, 0 where it has none.
    """
    (call,) = direct.calls
    groups, channels = weights.dims[0], per_group(call.spec, weights)
    images = call.spec.memory("diff_dst") or call.spec.memory("dst")
    is_tiled = storage_of(images) == "channels-last" and call.spec.kind == "convolution"
    if set(channels) <= {1} or not (is_tiled or storage_of(images) == "blocked"):
        return
    fitting = (
        count
        for count in range(1, lanes // 2 + 1)
        if groups % count == 0 and all(count * extent % lanes == 0 for extent in channels)
    )
    count = next(fitting, 1)
    if count == 1:
        return
    params = tuple(sorted((*call.spec.params, (_TOGETHER, count))))
    spec = replace(call.spec, params=params, flops=count * call.spec.flops)
    algorithm = f"{direct.algorithm}, {count} groups together"
    yield replace(direct, algorithm=algorithm, calls=(replace(call, spec=spec),))


def fills_tiles(option: KernelOption) -> bool:
    """Return whether an option computes groups together for the sake of tiles."""
    return any(
        together(call.spec) > 1 and storage_of(call.spec.memory("dst")) == "channels-last"
        for call in option.calls
    )
