"""Compiling without pauses for Python's garbage collector."""

from __future__ import annotations

import gc
from collections.abc import Generator
from contextlib import contextmanager

__all__ = ["without_collection"]


@contextmanager
def without_collection() -> Generator[None]:
    """Leave cycles of objects for later.

    The collector reads all objects of the process again and again while a graph grows, those of
    PyTorch among them: 0.3 seconds each time, and none of them is garbage.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
