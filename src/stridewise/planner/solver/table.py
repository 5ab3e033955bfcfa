"""Tables, whose sums ``eliminate.py`` and ``integer.py`` minimize."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from stridewise.classes import dataclass

__all__ = ["Array", "Minimum", "Table"]

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """A cost for every combination of values of some variables.

    Attributes:
        scope: the variables, without repetition.
        costs: an array with one axis per variable; infinity for forbidden combinations.
    """

    scope: tuple[int, ...]
    costs: Array


@dataclass(frozen=True, slots=True)
class Minimum:
    """The cheapest combination.

    Attributes:
        values: the value of each variable.
        slack: upper bound of the distance from the minimum; 0 unless the time limit was reached.
    """

    values: tuple[int, ...]
    slack: float
