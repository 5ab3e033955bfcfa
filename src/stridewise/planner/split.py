"""How a batch runs: as a whole, in parts one after the other, or several parts at a time."""

from __future__ import annotations

from collections.abc import Mapping

from stridewise.classes import dataclass

__all__ = ["WHOLE", "Split"]


@dataclass(frozen=True, slots=True)
class Split:
    """Parts of equal size that the arrays of a call are cut into, along their first axes.

    Attributes:
        parts: how many there are.
        lanes: how many of them run at the same time, each on one thread; else all threads run one.
    """

    parts: int = 1
    lanes: int = 1

    def whole(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of an array of a part as the caller sees it."""
        return shape if self.parts == 1 else (shape[0] * self.parts, *shape[1:])

    def part(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of a part of an array; its first axis must be a multiple of the parts.

        >>> Split(parts=8).part((16, 3, 224, 224))
        (2, 3, 224, 224)
        """
        return shape if self.parts == 1 else (shape[0] // self.parts, *shape[1:])

    def shapes(self, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
        """Return the shapes of arrays of a part by name."""
        return {name: self.part(shape) for name, shape in shapes.items()}

    def __str__(self) -> str:
        if self.parts == 1:
            return "the whole batch at once"
        how = f"{self.lanes} at a time" if self.lanes > 1 else "one after the other"
        return f"the batch in {self.parts} parts, {how}"


WHOLE = Split()
"""The batch at once."""
