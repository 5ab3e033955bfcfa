"""Threads of streams that are alive."""

from __future__ import annotations

import gc
import threading
import time


def ours() -> int:
    """How many threads of streams are alive."""
    return sum(thread.name.startswith("stridewise") for thread in threading.enumerate())


def gone() -> bool:
    """Whether all of them end soon."""
    for _ in range(500):
        gc.collect()
        if not ours():
            return True
        time.sleep(0.01)
    return False
