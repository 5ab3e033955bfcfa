"""Sums of tables, which ``eliminate.py`` and ``integer.py`` minimize."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Array", "Minimum", "Table"]

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """A cost for every combination of values of some variables.

    Attributes:
        scope: the variables, each once.
        costs: one axis a variable; infinity for what cannot be combined.
    """

    scope: tuple[int, ...]
    costs: Array


@dataclass(frozen=True, slots=True)
class Minimum:
    """The cheapest combination.

    Attributes:
        values: one for each variable.
        slack: how much cheaper the true minimum may be; 0 unless time ran out.
    """

    values: tuple[int, ...]
    slack: float
