"""What the table of a target consists of: kinds of format, rules and rates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from stridewise.records import Check

__all__ = ["ND", "Count", "Kind", "Padding", "Rate", "Rates", "Rule", "Share"]

ND = "ND"
"""The kind that every target has: row-major in the user's own order of axes."""

Padding = Literal["zero", "unspecified"]

Rate = Annotated[float, Check("a number above 0", lambda number: number > 0)]
Share = Annotated[float, Check("a number above 0, at most 1", lambda number: 0 < number <= 1)]
Count = Annotated[int, Check("a whole number, 0 or more", lambda number: number >= 0)]


@dataclass(frozen=True, slots=True)
class Kind:
    """A family of formats.

    Attributes:
        name: what rules and reports call it.
        names: the target's names of its formats; the first that fits a tensor's axes counts.
    """

    name: str
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Rule:
    """One way to compute an operator.

    Attributes:
        takes: the kind of format of data that it reads.
        gives: the kind of format of what it writes.
        weights: the kind of format of constant weights.
        efficiency: which part of the rates it reaches, in (0, 1].
        most_channels: the most input channels that it is made for; 0 for any number.
    """

    takes: str = ND
    gives: str = ND
    weights: str = ND
    efficiency: float = 1.0
    most_channels: int = 0

    def __str__(self) -> str:
        data = self.takes if self.takes == self.gives else f"{self.takes} to {self.gives}"
        return data if self.weights == ND else f"{data}, weights {self.weights}"


@dataclass(frozen=True, slots=True)
class Rates:
    """What costs are computed from.

    Attributes:
        bytes_per_s: bandwidth of memory.
        flops_per_s: peak rate of arithmetic.
        step_ns: fixed cost of a step.
    """

    bytes_per_s: Rate
    flops_per_s: Rate
    step_ns: Rate = 1000.0

    def cost_ns(self, flops: float, nbytes: int, efficiency: float) -> float:
        """Return the time of a step: bytes or arithmetic, whichever binds.

        >>> Rates(1e9, 1e12, 100.0).cost_ns(flops=1e3, nbytes=1000, efficiency=0.5)
        2100.0
        """
        seconds = max(flops / self.flops_per_s, nbytes / self.bytes_per_s)
        return self.step_ns + 1e9 * seconds / efficiency
