"""The definition of a memory format.

A format maps the index of an element to a place in memory. It has named axes and no extents.
Functions that need a shape are in :mod:`stridewise.formats.algebra`. Format names of other systems
are parsed and printed in :mod:`stridewise.formats.dialects`. The public class,
:class:`stridewise.Format`, offers both as methods.

The common case is a permutation with blocks, outermost first::

    Format(("N", "C", "H", "W"), ("N", "H", "W", "C"))                     # NHWC
    Format(("N", "C", "H", "W"), ("N", "C", "H", "W", Block("C", 16)))     # nChw16c

A few systems need more: padding without a block (:class:`Pad`), axes that are flattened or split
before they are laid out (:class:`Fuse`, :class:`Split`), digits in an unusual order
(``Block(axis, size, step)``), and rows that start at a multiple (:class:`Pitch`).
"""

from __future__ import annotations

from dataclasses import field, replace
from math import prod
from typing import Literal, Self

from stridewise.classes import dataclass
from stridewise.errors import FormatError
from stridewise.formats.axes import POSITIONAL, canonical

__all__ = ["Block", "Digit", "FormatData", "Fuse", "Pad", "Pitch", "Policy", "Split", "nd"]

Policy = Literal["zero", "unspecified", "divide"]
"""Content of padding: zeros, unspecified values, or no padding (the extent must be a multiple)."""

_POLICIES: tuple[Policy, ...] = ("zero", "unspecified", "divide")


@dataclass(frozen=True, slots=True)
class Block:
    """A digit of an axis: ``size`` values, each ``step`` indices of the axis apart.

    Attributes:
        axis: the axis.
        size: the number of values of the digit; at least 2.
        step: distance between consecutive values in indices of the axis. By default the product of
            the later blocks of the axis, so that the digits of an axis read from left to right.
            OpenVINO's swizzled weights and XLA's repeated tiles use other steps.
    """

    axis: str
    size: int
    step: int | None = None

    def __str__(self) -> str:
        step = "" if self.step is None else f"@{self.step}"
        return f"{self.size}*{self.axis}{step}"


@dataclass(frozen=True, slots=True)
class Pitch:
    """A marker among the digits: the digits inside it occupy a multiple of ``multiple`` elements.

    Rows of TensorRT's DLA and channel planes of ncnn start at such multiples. Reorders write zeros
    to the gap and never read it.
    """

    multiple: int

    def __str__(self) -> str:
        return f"|{self.multiple}"


Digit = str | Block | Pitch
"""One item of a format's memory walk. A string is the outer part of an axis, outside its blocks."""


@dataclass(frozen=True, slots=True)
class Pad:
    """A multiple to which an axis is rounded up, whether or not it has blocks."""

    axis: str
    multiple: int
    policy: Policy = "zero"

    def __str__(self) -> str:
        return f"pad {self.axis} {self.multiple}" + (
            "" if self.policy == "zero" else f" {self.policy}"
        )


@dataclass(frozen=True, slots=True)
class Fuse:
    """Flatten ``axes`` row-major into one axis ``into``. Each axis is padded first."""

    axes: tuple[str, ...]
    into: str

    def __str__(self) -> str:
        return f"fuse {self.into} = {' '.join(self.axes)}"


@dataclass(frozen=True, slots=True)
class Split:
    """View ``axis`` as two: index = outer * size + inner. Its extent must be a multiple of size."""

    axis: str
    outer: str
    inner: str
    size: int

    def __str__(self) -> str:
        return f"split {self.axis} = {self.outer} {self.inner} {self.size}"


def _refuse(expected: str, found: str) -> FormatError:
    return FormatError.at("format", expected=expected, found=found)


@dataclass(frozen=True, slots=True)
class FormatData:
    """The fields of a format, described at :class:`stridewise.Format`, and their normal form."""

    axes: tuple[str, ...] = field(compare=False)
    digits: tuple[Digit, ...] = field(compare=False)
    pads: tuple[Pad, ...] = field(default=(), compare=False)
    steps: tuple[Fuse | Split, ...] = field(default=(), compare=False)
    order: tuple[str, ...] = field(init=False, repr=False, compare=False)
    """The axes of the walk without blocks, outermost to innermost."""
    blocks: tuple[Block, ...] = field(init=False, repr=False, compare=False)
    """The blocks, outermost to innermost. Every step is set."""
    _walk: tuple[tuple[str, int, int], ...] = field(init=False, repr=False, compare=False)
    _padding: tuple[Pad, ...] = field(init=False, repr=False, compare=False)
    _key: tuple[object, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        walked = self._walked_axes()
        order = tuple(item for item in self.digits if isinstance(item, str))
        blocks = self._checked_blocks(walked)
        if len(set(order)) != len(order) or not set(order) <= set(walked):
            raise _refuse(
                f"each of the axes {', '.join(walked)} once in `digits`", f"digits {self.text}"
            )
        missing = set(walked) - set(order) - {block.axis for block in blocks}
        if missing:
            raise _refuse(
                f"each of the axes {', '.join(walked)} once in `digits`", f"digits {self.text}"
            )
        object.__setattr__(self, "order", order)
        object.__setattr__(self, "blocks", blocks)
        self._check_pads(walked)
        object.__setattr__(self, "_walk", self._merged_walk())
        every = dict.fromkeys((*self.axes, *walked))
        padding = (Pad(axis, self.multiple(axis), self.policy(axis)) for axis in every)
        object.__setattr__(self, "_padding", tuple(pad for pad in padding if pad.multiple > 1))
        object.__setattr__(self, "_key", self._compared())

    # --- checks -----------------------------------------------------------------------------

    def _walked_axes(self) -> tuple[str, ...]:
        """Return the axes after all steps, in order. These are the axes that digits can name."""
        axes = list(self.axes)
        if len(set(axes)) != len(axes) or any(not axis for axis in axes):
            raise _refuse("axes with distinct names", f"axes {self.axes}")
        named = set(axes)
        for step in self.steps:
            taken = step.axes if isinstance(step, Fuse) else (step.axis,)
            given = (step.into,) if isinstance(step, Fuse) else (step.outer, step.inner)
            if len(set(taken)) != len(taken) or not set(taken) <= set(axes) or not taken:
                raise _refuse(f"a step over some of the axes {', '.join(axes)}", f"{step}")
            at = axes.index(taken[0])
            axes = [axis for axis in axes if axis not in taken]
            axes[at:at] = given
            if len(set(given) - named) != len(given) or "" in given:
                raise _refuse("a step that creates axes with new names", f"{step}")
            if isinstance(step, Split) and step.size < 1:
                raise _refuse("a split by 1 or more", f"{step}")
            named |= set(given)
        return tuple(axes)

    def _checked_blocks(self, walked: tuple[str, ...]) -> tuple[Block, ...]:
        given = [item for item in self.digits if isinstance(item, Block)]
        for block in given:
            if block.axis not in walked or block.size < 2:
                raise _refuse(
                    f"blocks of 2 or more of the axes {', '.join(walked)}",
                    f"a block of {block.size} of axis {block.axis!r}",
                )
        if any(item.multiple < 1 for item in self.digits if isinstance(item, Pitch)):
            raise _refuse("a pitch of 1 element or more", f"digits {self.text}")
        blocks: list[Block] = []
        for position, block in enumerate(given):
            later = prod(b.size for b in given[position + 1 :] if b.axis == block.axis)
            blocks.append(block if block.step is not None else replace(block, step=later))
        for axis in walked:
            unit = 1
            for step, size in sorted((b.step or 0, b.size) for b in blocks if b.axis == axis):
                if step != unit:
                    raise _refuse(
                        f"digits of {axis} whose steps reach every index exactly once",
                        f"digits {self.text}",
                    )
                unit *= size
        return tuple(blocks)

    def _check_pads(self, walked: tuple[str, ...]) -> None:
        split = {step.axis for step in self.steps if isinstance(step, Split)}
        known = {*walked, *self.axes} - split
        for pad in self.pads:
            block = prod(b.size for b in self.blocks if b.axis == pad.axis)
            if pad.axis not in known or pad.multiple < 1 or pad.multiple % block:
                raise _refuse(
                    f"padding of an axis to a multiple of its blocks ({block})",
                    f"{pad}",
                )
            if pad.axis in walked and pad.axis not in self.order and pad.multiple != block:
                raise _refuse(f"the extent {block} of {pad.axis}, which is fixed", f"{pad}")
            if pad.policy not in _POLICIES:
                raise _refuse(f"one of the policies {', '.join(_POLICIES)}", f"{pad.policy!r}")
        if len({pad.axis for pad in self.pads}) != len(self.pads):
            raise _refuse("at most one pad per axis", "; ".join(map(str, self.pads)))

    # --- normal form ------------------------------------------------------------------------

    def _merged_walk(self) -> tuple[tuple[str, int, int], ...]:
        """Return the digits in the form that equality compares: adjacent digits of one axis merged.

        An item is (axis, size, step). Size 0 is the outer part of the axis. A pitch has no axis.
        """
        walk: list[tuple[str, int, int]] = []
        blocks = iter(self.blocks)
        for item in self.digits:
            if isinstance(item, Pitch):
                if item.multiple > 1:
                    walk.append(("", item.multiple, 0))
                continue
            if isinstance(item, str):
                walk.append((item, 0, self._block_product(item)))
                continue
            block = next(blocks)
            axis, size, step = block.axis, block.size, block.step or 1
            if walk and walk[-1][0] == axis and walk[-1][2] == size * step:
                walk[-1] = (axis, walk[-1][1] * size, step)
            else:
                walk.append((axis, size, step))
        return tuple(walk)

    def _compared(self) -> tuple[object, ...]:
        """Return the key for equality, with axes that a step creates named by its operands."""
        names = {axis: axis for axis in self.axes}
        steps: list[Fuse | Split] = []
        for step in self.steps:
            if isinstance(step, Fuse):
                parts = tuple(names[axis] for axis in step.axes)
                names[step.into] = f"({' '.join(parts)})"
                steps.append(Fuse(parts, names[step.into]))
            else:
                axis = names[step.axis]
                names[step.outer], names[step.inner] = f"({axis}/)", f"({axis}%)"
                steps.append(Split(axis, names[step.outer], names[step.inner], step.size))
        walk = tuple((names[axis] if axis else "", *size) for axis, *size in self._walk)
        pads = {replace(pad, axis=names[pad.axis]) for pad in self._padding}
        return (self.axes, walk, frozenset(pads), tuple(steps))

    def _block_product(self, axis: str) -> int:
        return prod(block.size for block in self.blocks if block.axis == axis)

    # --- questions --------------------------------------------------------------------------

    @property
    def rank(self) -> int:
        """Number of logical axes."""
        return len(self.axes)

    @property
    def is_simple(self) -> bool:
        """Whether the format is a permutation with blocks innermost, as in oneDNN's tags."""
        outer, inner = self.digits[: len(self.order)], self.digits[len(self.order) :]
        blocked = all(isinstance(item, Block) and item.step is None for item in inner)
        plain = outer == self.order and blocked and self.is_complete
        return plain and not self.pads and not self.steps

    @property
    def is_complete(self) -> bool:
        """Whether every axis may have any extent (CuTe's layouts fix theirs)."""
        return len(self.order) == len(set(self.order) | {block.axis for block in self.blocks})

    @property
    def permutation(self) -> tuple[int, ...]:
        """``order`` as positions in ``axes``; it takes a canonical shape to memory order."""
        return tuple(self.axes.index(axis) for axis in self.order)

    @property
    def is_blocked(self) -> bool:
        """Whether any axis is split into blocks."""
        return bool(self.blocks)

    @property
    def is_plain(self) -> bool:
        """Whether the format is a pure permutation of the axes."""
        return self.is_simple and not self.blocks

    def multiple(self, axis: str) -> int:
        """Return the multiple to which the extent of ``axis`` is padded."""
        for pad in self.pads:
            if pad.axis == axis:
                return pad.multiple
        return self._block_product(axis)

    def policy(self, axis: str) -> Policy:
        """Return the rule for the padding of ``axis``."""
        for pad in self.pads:
            if pad.axis == axis:
                return pad.policy
        return "zero"

    @property
    def name(self) -> str:
        """The name that reports use: letters in memory order, blocked axes in capitals.

        Formats without blocks are in capitals (``NHWC``), others follow oneDNN (``nChw16c``).
        Formats that neither notation can express use :attr:`text`. The name parses to an equal
        format.
        """
        if not self.is_simple or canonical(self.axes) != self.axes:
            return self.text
        if not self.blocks:
            return "".join(self.order)
        blocked = {block.axis for block in self.blocks}
        outer = "".join(axis.upper() if axis in blocked else axis.lower() for axis in self.order)
        return outer + "".join(f"{block.size}{block.axis.lower()}" for block in self.blocks)

    @property
    def text(self) -> str:
        """The format in full: axes, then steps, walk and pads.

        >>> FormatData(("N", "C"), ("C", "N", Block("C", 8)), (Pad("N", 2),)).text
        'N,C: walk C N 8*C; pad N 2'
        """
        walk = "walk " + " ".join(map(str, self.digits))
        return f"{','.join(self.axes)}: " + "; ".join(
            [*map(str, self.steps), walk, *map(str, self.pads)]
        )

    def __str__(self) -> str:
        return self.name

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, FormatData):
            return NotImplemented
        return self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    def normal(self) -> Self:
        """Return an equal format with the fewest digits and pads.

        >>> FormatData(("N", "C"), ("C", "N", Block("C", 2), Block("C", 8))).normal().text
        'N,C: walk C N 16*C'
        """
        digits: list[Digit] = []
        blocks: list[Block] = []
        for axis, size, step in reversed(self._walk):
            if not axis:
                digits.append(Pitch(size))
            elif not size:
                digits.append(axis)
            else:
                inner = prod(block.size for block in blocks if block.axis == axis)
                blocks.append(Block(axis, size, None if step == inner else step))
                digits.append(blocks[-1])
        pads: list[Pad] = []
        for pad in self._padding:
            block = prod(b.size for b in blocks if b.axis == pad.axis)
            if pad.multiple != block or pad.policy != "zero":
                pads.append(pad)
        return type(self)(self.axes, tuple(reversed(digits)), tuple(pads), self.steps)

    def renamed(self, names: dict[str, str]) -> Self:
        """Return the same format with other names for its axes.

        >>> from stridewise.formats import Format
        >>> Format.parse("FRACTAL_Z", "ascend", block=16).renamed({"N": "O", "C": "I"}).axes
        ('O', 'I', 'H', 'W')
        """

        def new(axis: str) -> str:
            return names.get(axis, axis)

        def digit(item: Digit) -> Digit:
            if isinstance(item, Block):
                return replace(item, axis=new(item.axis))
            return new(item) if isinstance(item, str) else item

        def step(item: Fuse | Split) -> Fuse | Split:
            if isinstance(item, Fuse):
                return Fuse(tuple(map(new, item.axes)), item.into)
            return replace(item, axis=new(item.axis))

        return type(self)(
            tuple(map(new, self.axes)),
            tuple(map(digit, self.digits)),
            tuple(replace(pad, axis=new(pad.axis)) for pad in self.pads),
            tuple(map(step, self.steps)),
        )


def nd(rank: int) -> FormatData:
    """Return the row-major format over ``rank`` positional axes.

    Raises:
        FormatError: the rank is above 12.
    """
    if not 0 <= rank <= len(POSITIONAL):
        raise _refuse("rank 0 to 12", f"rank {rank}")
    axes = tuple(POSITIONAL[:rank])
    return FormatData(axes, axes)
