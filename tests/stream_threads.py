"""What threads do: those of streams that are alive, and those that wait in native code."""

from __future__ import annotations

import gc
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


def ours() -> int:
    """How many threads of streams are alive; those that store models have other names."""
    return sum(thread.name.startswith("stridewise_") for thread in threading.enumerate())


def gone() -> bool:
    """Whether all of them end soon."""
    for _ in range(500):
        gc.collect()
        if not ours():
            return True
        time.sleep(0.01)
    return False


def wait_for_blocked(thread: threading.Thread, function: Callable[..., Any]) -> None:
    """Return once a thread sleeps within a call of native code that ``function`` makes, or ends."""
    while thread.is_alive():
        frame = sys._current_frames().get(thread.ident or 0)
        # The lock of the interpreter is here, so a frame beyond its first line is within a call.
        runs = frame is not None and frame.f_code is function.__code__
        if runs and frame.f_lineno > function.__code__.co_firstlineno and _sleeps(thread):
            return
        time.sleep(0.001)


def _sleeps(thread: threading.Thread) -> bool:
    stat = Path(f"/proc/self/task/{thread.native_id}/stat").read_text("utf-8")
    return stat.rpartition(")")[2].split()[0] == "S"
