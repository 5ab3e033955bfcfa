"""What a memory format is.

A :class:`Format` says in which order the elements of a tensor follow each other in memory. It
knows axes by name and holds no extents; everything that needs a shape is a free function in
:mod:`stridewise.formats.algebra`. Foreign spellings are parsed and printed in
:mod:`stridewise.formats.dialects`, never here.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from stridewise.errors import FormatError, describe

__all__ = ["Block", "Format", "nd"]


@dataclass(frozen=True, slots=True)
class Block:
    """A block of ``size`` consecutive indices of one axis."""

    axis: str
    size: int

    def __str__(self) -> str:
        return f"{self.size}{self.axis.lower()}"


@dataclass(frozen=True, slots=True)
class Format:
    """The order of a tensor's elements in memory.

    Attributes:
        axes: the named axes in canonical order (``("N", "C", "H", "W")`` for NCHW *and* NHWC);
            shapes, indices and strides that go with a format are in this order.
        order: the same axes, outermost to innermost, as they are walked in memory.
        blocks: inner blocks, outermost to innermost, after all of ``order``. An axis with blocks
            is padded with zeros to a multiple of the product of its block sizes.

    Two formats are equal when they have the same axes and put the same bytes in the same places
    for every shape.

    Raises:
        FormatError: an axis is repeated, missing or unknown, or a block size is below 2.

    >>> Format(("N", "C", "H", "W"), ("N", "C", "H", "W"), (Block("C", 16),)).name
    'nChw16c'
    """

    axes: tuple[str, ...]
    order: tuple[str, ...]
    blocks: tuple[Block, ...] = ()

    def __post_init__(self) -> None:
        if len(set(self.axes)) != len(self.axes) or sorted(self.axes) != sorted(self.order):
            raise FormatError(
                describe(
                    "format",
                    expected="each axis exactly once in `axes` and in `order`",
                    found=f"axes {self.axes}, order {self.order}",
                )
            )
        for block in self.blocks:
            if block.axis not in self.axes or block.size < 2:
                raise FormatError(
                    describe(
                        "format",
                        expected=f"blocks of 2 or more of the axes {self.axes}",
                        found=f"a block of {block.size} of axis {block.axis!r}",
                    )
                )

    @property
    def rank(self) -> int:
        """Number of logical axes."""
        return len(self.axes)

    @property
    def permutation(self) -> tuple[int, ...]:
        """``order`` as positions in ``axes``: canonical shape to memory order."""
        return tuple(self.axes.index(axis) for axis in self.order)

    @property
    def is_blocked(self) -> bool:
        """Whether any axis is split into blocks."""
        return bool(self.blocks)

    def multiple(self, axis: str) -> int:
        """Return what the extent of ``axis`` is padded to a multiple of."""
        return prod(block.size for block in self.blocks if block.axis == axis)

    @property
    def name(self) -> str:
        """The name that reports use: letters in memory order, blocked axes in capitals.

        Formats without blocks are spelled in capitals (``NHWC``), the others the way oneDNN does
        (``nChw16c``).
        """
        if not self.blocks:
            return "".join(self.order)
        blocked = {block.axis for block in self.blocks}
        outer = "".join(axis.upper() if axis in blocked else axis.lower() for axis in self.order)
        return outer + "".join(str(block) for block in self.blocks)

    def __str__(self) -> str:
        return self.name


def nd(rank: int) -> Format:
    """Return the row-major format over ``rank`` positional axes, whose meaning nobody knows.

    The axes are named ``a``, ``b``, ``c``, ... as in oneDNN's abstract tags.

    Raises:
        FormatError: the rank is above 12, the most that oneDNN takes.

    >>> nd(3).axes
    ('a', 'b', 'c')
    """
    if not 0 <= rank <= 12:
        raise FormatError(describe("format", expected="rank 0 to 12", found=f"rank {rank}"))
    axes = tuple("abcdefghijkl"[:rank])
    return Format(axes, axes)
