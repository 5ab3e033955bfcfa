"""Stored tensors as the library describes them: by abstract format tags."""

from __future__ import annotations

from collections.abc import Iterator

from stridewise.formats import Format
from stridewise.formats.dialects.onednn import abstract_tag
from stridewise.graph import Value
from stridewise.ops.geometry import canonical_shape, user_format
from stridewise.targets.kernels import KernelContext, MemorySpec

__all__ = [
    "block_lanes",
    "block_of",
    "elementwise_formats",
    "has_wide_blocks",
    "memory_of",
    "plain_memory",
    "storage_of",
]


def memory_of(fmt: Format, canonical_shape: tuple[int, ...]) -> MemorySpec:
    """Return the spec of a tensor of ``canonical_shape`` stored in ``fmt``."""
    return MemorySpec(canonical_shape, abstract_tag(fmt))


def plain_memory(dims: tuple[int, ...]) -> MemorySpec:
    """Return the spec of a row-major tensor."""
    return MemorySpec(dims, "abcdefghijkl"[: len(dims)])


def storage_of(memory: MemorySpec | None) -> str:
    """Return the storage kind of a tag: ``plain``, ``channels-last`` or ``blocked``."""
    tag = memory.tag if memory is not None else ""
    if any(letter.isdigit() for letter in tag):
        return "blocked"
    return "channels-last" if len(tag) > 2 and tag.endswith("b") else "plain"


def block_of(memory: MemorySpec | None) -> int:
    """Return the size of the blocks of a tag, 1 where it has none."""
    digits = "".join(c for c in (memory.tag if memory else "") if c.isdigit())
    return int(digits) if digits else 1


def filled(channels: int, lanes: int = 16) -> float:
    """Return the part of vectors of channels that is filled."""
    return channels / (-(-channels // lanes) * lanes)


def has_wide_blocks(memory: MemorySpec | None) -> bool:
    """Return whether a tag has blocks of 16 channels, as those with AVX-512 are."""
    return block_of(memory) >= _WIDE_BLOCK


_WIDE_BLOCK = 16


def block_lanes(context: KernelContext) -> int:
    """Return the lanes of a vector of the target, which are the channels of its blocks; else 0."""
    for fmt in context.formats(context.node.outputs[0]).values():
        if fmt.is_blocked:
            return fmt.blocks[-1].size
    return 0


def elementwise_formats(
    context: KernelContext, x: Value, y: Value
) -> Iterator[tuple[Format, Format, MemorySpec]]:
    """Yield the formats of a source and a result of the same shape, and the memory of both.

    Where their axes mean different things, only storage in the user's own order is the same walk.
    """
    if x.origin == y.origin:
        for fmt in context.formats(x.name).values():
            yield fmt, fmt, memory_of(fmt, canonical_shape(x, fmt))
    else:
        yield user_format(x), user_format(y), plain_memory(x.shape)
