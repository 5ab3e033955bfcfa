"""Pausing Python's garbage collector while a model is compiled.

A compilation imports modules and makes tables of objects that stay. The collector would traverse
them again and again, which takes a tenth of the time of a first start, and find next to nothing.
"""

from __future__ import annotations

import gc
from collections.abc import Generator
from contextlib import contextmanager
from threading import Event, Lock

__all__ = ["paused"]

_LOCK = Lock()
_BLOCKS: list[bool] = []
"""For each block that runs, whether the collector was enabled when it began."""

_HAS_FROZEN = Event()
"""Set once objects were found frozen: to count them takes as long as a compilation if there are
millions, and they usually stay frozen."""


def _make_all_old() -> None:
    """Count all objects as old, unless some are frozen: they would no longer be."""
    if _HAS_FROZEN.is_set():
        return
    if gc.get_freeze_count():
        _HAS_FROZEN.set()
        return
    gc.freeze()
    gc.unfreeze()


@contextmanager
def paused() -> Generator[None]:
    """Do not collect garbage within a block, in any thread.

    At the end of the last block that runs, all objects count as old, so that collections of young
    ones do not traverse what was made within. If objects are frozen, they stay so.

    >>> import gc
    >>> with paused():
    ...     print(gc.isenabled())
    False
    """
    with _LOCK:
        _BLOCKS.append(gc.isenabled())
        gc.disable()
    try:
        yield
    finally:
        with _LOCK:
            was_enabled = _BLOCKS.pop(0)
            if _BLOCKS:
                _BLOCKS[0] |= was_enabled
            elif was_enabled:
                _make_all_old()
                gc.enable()
