"""What a lost memory format costs: copies of the tensors of a run, timed on this machine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter_ns
from typing import Any

from stridewise.frontends.torch.library import torch
from stridewise.torch.layouts import channels_last_strides

__all__ = ["Loss"]

_RUNS = 5


@dataclass(frozen=True, slots=True)
class Loss:
    """A result that is not stored channels-last.

    Attributes:
        shape: of the result.
        strides: of the result, in elements.
        dtype: of the result.
        source: strides of what was copied to make it; None if it was computed.
    """

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: Any
    source: tuple[int, ...] | None = None

    @classmethod
    def of(cls, result: Any, source: Any = None) -> Loss:
        """Return the loss of a result.

        Args:
            result: the tensor.
            source: the tensor of the same shape that it is a copy of, if it is one.
        """
        strides = None
        if source is not None and source.shape == result.shape:
            strides = tuple(source.stride())
        return cls(tuple(result.shape), tuple(result.stride()), result.dtype, strides)

    def milliseconds(self) -> float:
        """Time the copy, if it is one, and the copy of the result to channels-last."""
        result = self._tensor(self.strides)
        found = 0.0
        if self.source is not None:
            source = self._tensor(self.source)
            found += _fastest(lambda: result.copy_(source))
        last = self._tensor(channels_last_strides(self.shape))
        return found + _fastest(lambda: last.copy_(result))

    def _tensor(self, strides: tuple[int, ...]) -> Any:
        found = torch.empty_strided(self.shape, strides, dtype=self.dtype, device="cpu")
        return found.zero_()


def _fastest(run: Callable[[], object]) -> float:
    """Return the least of a few times, in milliseconds."""
    times: list[int] = []
    for _ in range(_RUNS):
        start = perf_counter_ns()
        run()
        times.append(perf_counter_ns() - start)
    return min(times) / 1e6
