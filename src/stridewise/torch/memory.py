"""Memory of results that is used again in the next step of a training."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stridewise.frontends.torch.library import torch
from stridewise.runtime.execution.arrays import LARGE, empty

__all__ = ["Memory"]


class Memory:
    """Makes tensors in memory that earlier ones of the same size no longer need.

    A tensor has its memory for itself until nothing refers to it: no view, no graph that may run
    backward again. The allocator of PyTorch returns large memory to the operating system, and its
    pages would be allocated and set to zero anew in each step.
    """

    def __init__(self) -> None:
        """Start without memory."""
        self._free: dict[int, list[NDArray[np.uint8]]] = {}

    def empty(self, shape: Sequence[int], strides: Sequence[int], *, dtype: Any) -> Any:
        """Return a tensor without values.

        Args:
            shape: its extents.
            strides: in elements; they leave no gaps.
            dtype: of PyTorch.
        """
        nbytes = prod(shape) * dtype.itemsize
        if nbytes < LARGE:
            return torch.empty_strided(shape, strides, dtype=dtype)
        free = self._free.setdefault(nbytes, [])
        try:
            block = free.pop()
        except IndexError:
            block = empty((nbytes,), np.dtype(np.uint8))
        lent = block.view()  # lives as long as the storage of the tensor
        weakref.finalize(lent, free.append, block).atexit = False
        storage = torch.from_numpy(lent).untyped_storage()
        return torch.empty(0, dtype=dtype).set_(storage, 0, shape, strides)

    def release(self) -> None:
        """Give back what no tensor uses now."""
        self._free.clear()
