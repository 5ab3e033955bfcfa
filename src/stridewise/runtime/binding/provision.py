"""Memory for packed weights that the system provides while a model is imported.

The system provides memory when it is first touched. This takes as long as packing, and several
times as long on a virtual machine whose host has to find the memory first.
"""

from __future__ import annotations

from threading import Event, Thread
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from stridewise.runtime.binding.library import load_core

if TYPE_CHECKING:
    from stridewise import _core

__all__ = ["Provision"]

_LARGER = 4
"""Packed weights take up to so many times the bytes of a model's file; addresses cost nothing."""
_PAGE = 4096
_AT_ONCE = 8 << 20


class Provision:
    """A thread that touches memory for one program until it is needed."""

    def __init__(self, nbytes: int) -> None:
        """Begin.

        Args:
            nbytes: what packed weights take at least.

        Raises:
            MemoryError: the system does not have as many addresses.
        """
        buffer: _core.Buffer = load_core().Buffer(_LARGER * nbytes)
        self._buffer: _core.Buffer | None = buffer
        self._is_over = Event()
        touched = buffer.array()[:nbytes]
        self._thread = Thread(target=self._touch, args=(touched,), name="stridewise memory")
        self._thread.start()

    def _touch(self, memory: NDArray[np.uint8]) -> None:
        for at in range(0, len(memory), _AT_ONCE):
            if self._is_over.is_set():
                return
            memory[at : at + _AT_ONCE : _PAGE] = 0  # without the GIL

    def end(self) -> None:
        """Stop the thread."""
        self._is_over.set()
        self._thread.join()

    def take(self, nbytes: int) -> _core.Buffer | None:
        """Return zeroed memory of at least as many bytes, once; None if there is none left."""
        self.end()
        found, self._buffer = self._buffer, None
        return found if found is not None and nbytes <= found.nbytes else None
