"""Memory for packed weights that the system provides while a model is compiled.

The system provides memory when it is first touched. This takes as long as packing, and several
times as long on a virtual machine whose host has to find the memory first.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
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
    """Threads, one after another, that touch memory for one program until it is needed."""

    def __init__(self, nbytes: int) -> None:
        """Begin.

        Args:
            nbytes: what packed weights take at least.

        Raises:
            MemoryError: the system does not have as many addresses.
        """
        buffer: _core.Buffer = load_core().Buffer(_LARGER * nbytes)
        self._buffer: _core.Buffer | None = buffer
        self._touched, self._wanted = 0, nbytes
        self._is_over = Event()
        self._thread: Thread | None = None
        self._go_on()

    def _go_on(self) -> None:
        buffer, begin = self._buffer, self._touched
        if buffer is None or begin >= min(self._wanted, buffer.nbytes):
            return
        self._is_over.clear()
        memory = buffer.array()
        self._thread = Thread(target=self._touch, args=(memory, begin), name="stridewise memory")
        self._thread.start()

    def _touch(self, memory: NDArray[np.uint8], begin: int) -> None:
        for at in range(begin, len(memory), _AT_ONCE):
            if self._is_over.is_set() or at >= self._wanted:
                return
            memory[at : min(at + _AT_ONCE, self._wanted) : _PAGE] = 0  # without the GIL
            self._touched = at + _AT_ONCE

    def expect(self, nbytes: int) -> None:
        """Touch as many bytes, if the memory is as large."""
        self._wanted = nbytes
        if self._thread is None or not self._thread.is_alive():
            self._go_on()

    @contextmanager
    def paused(self) -> Generator[None]:
        """Touch nothing in the meantime, so that kernels can be timed."""
        self.end()
        try:
            yield
        finally:
            self._go_on()

    def end(self) -> None:
        """Stop the thread."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self._is_over.set()
            thread.join()

    def take(self, nbytes: int) -> _core.Buffer | None:
        """Return zeroed memory of at least as many bytes, once; None if there is none left."""
        self.end()
        found, self._buffer = self._buffer, None
        return found if found is not None and nbytes <= found.nbytes else None
