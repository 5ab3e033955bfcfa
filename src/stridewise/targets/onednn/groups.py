"""Groups of a convolution that the library computes together.

Its kernels of groups are fast where the channels of each, in and out, are whole vectors. Narrower
groups are computed several at a time, as one whose weights are zero between them: that takes more
products, at a rate that is higher by more.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from stridewise.targets.kernels import KernelOption, KernelSpec, MemorySpec
from stridewise.targets.onednn.memory import storage_of

__all__ = ["filled", "in_whole_vectors", "per_group", "together"]

_TOGETHER = "groups_together"
_LANES = 16


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


def filled(spec: KernelSpec, weights: MemorySpec) -> float:
    """Return which part of a vector the channels of a group fill; 1 without narrow groups.

    The library's kernels of groups leave the rest of vectors empty: with channels last, those of 4
    and 8 channels reach 0.15 and 0.4 of the rate of whole vectors, measured on Zen 5.
    """
    channels = per_group(spec, weights)
    return 1.0 if set(channels) <= {1} else min(1.0, min(channels) / _LANES)


def in_whole_vectors(
    direct: KernelOption, weights: MemorySpec, lanes: int
) -> Iterator[KernelOption]:
    """Yield the option that computes so many groups together that they fill vectors, if one does.

    Args:
        direct: one call, which computes each group by itself.
        weights: those of the call, with groups, or without for a single one.
        lanes: elements of a vector of the target, 0 where it has none.
    """
    (call,) = direct.calls
    groups, channels = weights.dims[0], per_group(call.spec, weights)
    images = call.spec.memory("diff_dst") or call.spec.memory("dst")
    if set(channels) <= {1} or storage_of(images) == "plain":
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
