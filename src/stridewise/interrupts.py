"""Ctrl-C while state must stay consistent: the interrupt is delivered when that is done."""

from __future__ import annotations

import signal
from threading import current_thread, main_thread
from typing import Any

__all__ = ["Deferred"]


class Deferred:
    """A block that Ctrl-C does not interrupt; the interrupt is delivered at its end.

    Python raises KeyboardInterrupt in the main thread, between any two instructions. Some code of
    Python's library does not survive that: conditions of futures and pools stay locked, and an
    exception from ``__set_name__`` becomes a RuntimeError. In other threads, nothing is changed.

    >>> before = signal.signal(signal.SIGINT, lambda *_: print("interrupted"))
    >>> with Deferred():
    ...     signal.raise_signal(signal.SIGINT)
    ...     print("done")
    done
    interrupted
    >>> _ = signal.signal(signal.SIGINT, before)
    """

    __slots__ = ("_before", "_came")

    def __enter__(self) -> None:
        self._before: Any = None
        self._came: tuple[Any, ...] | None = None
        if current_thread() is main_thread() and callable(signal.getsignal(signal.SIGINT)):
            self._before = signal.signal(signal.SIGINT, self._note)

    def _note(self, *signal_and_frame: Any) -> None:
        self._came = signal_and_frame

    def __exit__(self, *_error: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)
            if self._came is not None:
                self._before(*self._came)
