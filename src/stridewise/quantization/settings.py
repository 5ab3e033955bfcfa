"""The options of quantization."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import get_args

from stridewise.errors import InputError
from stridewise.tensor.ranges import Activations, Method

__all__ = ["METHODS", "Settings"]

METHODS = ("auto", *get_args(Method))


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Options of :func:`stridewise.quantize`, checked."""

    method: str = "auto"
    percentile: float = 99.99
    activations: Activations = "uint8"
    max_error: float | None = None
    reduce_range: bool = False
    threads: int | None = None

    def __post_init__(self) -> None:
        """Check the values.

        Raises:
            InputError: a value does not fit.
        """
        _one_of("method", self.method, METHODS)
        _one_of("activations", self.activations, get_args(Activations))
        if not 50 < self.percentile <= 100:
            raise _wrong("percentile", "a number above 50 and up to 100", self.percentile)
        error = self.max_error
        if error is not None and not (isfinite(error) and error > 0):
            raise _wrong("max_error", "a relative error above 0", error)

    @property
    def methods(self) -> tuple[Method, ...]:
        """The methods to try."""
        tried: tuple[Method, ...] = ("mse", "percentile", "minmax")
        return tried if self.method == "auto" else tuple(m for m in tried if m == self.method)

    @property
    def weight_steps(self) -> int:
        """The greatest integer of weights."""
        return 63 if self.reduce_range else 127


def _one_of(name: str, given: str, known: tuple[str, ...]) -> None:
    if given not in known:
        raise _wrong(name, f"one of {', '.join(map(repr, known))}", given)


def _wrong(name: str, expected: str, found: object) -> InputError:
    return InputError.at(name, expected=expected, found=repr(found))
