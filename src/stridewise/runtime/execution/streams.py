"""Several requests at once on one model: how many run, and the threads that run them.

Direct calls run in the thread of the caller; submitted requests run in threads of the model. Both
pass the same gate, so that together they use no more processors than the model may have.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from queue import SimpleQueue
from threading import Lock
from typing import TYPE_CHECKING, TypeVar
from weakref import WeakSet

from stridewise.errors import ExecutionError, InputError
from stridewise.interrupts import Deferred
from stridewise.runtime.binding.library import load_core
from stridewise.runtime.machine.cpus import available_cpus

if TYPE_CHECKING:
    from stridewise import _core

__all__ = ["Streams", "stream_threads"]

Item = TypeVar("Item")
Answer = TypeVar("Answer")

_AHEAD = 2
"""Default number of requests for each stream that are submitted ahead, one of which runs."""


def stream_threads(threads: int | None, streams: int) -> int | None:
    """Return how many threads each of some streams has; None for the default.

    Raises:
        InputError: there are fewer threads than streams, or no stream.
    """
    if isinstance(streams, bool) or streams < 1:
        raise InputError.at("streams", expected="a number from 1 on", found=repr(streams))
    if streams == 1:
        return threads
    all_threads = available_cpus() if threads is None else threads
    if streams > all_threads:
        raise InputError.at(
            "streams",
            expected=f"at most {all_threads}, one for each thread",
            found=str(streams),
            fix=f"give threads={streams} or more",
        )
    return all_threads // streams


class Streams:
    """The number of requests that run at once, and the threads of submitted requests.

    Threads start with the first submitted request. They end when the streams are closed, or when
    the last reference is dropped and all requests are done.
    """

    def __init__(self, count: int = 1) -> None:
        """Begin without threads."""
        self.count = count
        self._closed = False
        self._begin()
        self._gate: _core.Gate | None = None
        _ALIVE.add(self)

    def _begin(self) -> None:
        self._lock = Lock()
        self._threads: ThreadPoolExecutor | None = None

    def renew(self) -> None:
        """Forget threads, which a fork does not copy to the child."""
        self._begin()
        if self._gate is not None:
            self._gate.renew()

    @property
    def gate(self) -> _core.Gate:
        """The gate that native programs pass; it admits as many requests as there are streams."""
        with self._lock:
            gate = self._gate = self._gate or load_core().Gate(self.count)
            return gate

    def submit(self, answer: Callable[[], Answer]) -> Future[Answer]:
        """Call a function in a thread of the model, as soon as one is free.

        Raises:
            ExecutionError: the streams are closed, or the interpreter is ending.
        """
        try:
            with self._lock:
                if self._threads is None and not self._closed:
                    self._threads = ThreadPoolExecutor(self.count, "stridewise")
                threads = self._threads
            if threads is not None:
                with Deferred():
                    return threads.submit(answer)
            found = "a model that was closed"
        except RuntimeError as error:
            found = str(error)
        raise ExecutionError.at("submit", expected="an open model", found=found)

    def map(
        self, answer: Callable[[Item], Answer], items: Iterable[Item], ahead: int | None = None
    ) -> Iterator[Answer]:
        """Yield what a function returns for each item, in their order.

        Args:
            answer: called in threads of the model.
            items: taken one by one, in the thread that takes the answers.
            ahead: how many items may have been taken whose answers have not; by default twice the
                number of streams.

        Raises:
            InputError: ``ahead`` is below 1.
        """
        # Values come from callers, whatever their declared types are.
        if ahead is not None and (type(ahead) is not int or ahead < 1):
            raise InputError.at("ahead", expected="a whole number, 1 or more", found=repr(ahead))
        return self._answers(answer, items, ahead or _AHEAD * self.count)

    def _answers(
        self, answer: Callable[[Item], Answer], items: Iterable[Item], ahead: int
    ) -> Iterator[Answer]:
        waiting: deque[Future[Answer]] = deque()
        done: SimpleQueue[Future[Answer]] = SimpleQueue()
        known: set[Future[Answer]] = set()

        def first() -> Answer:
            # The queue, unlike a future, can be waited for and interrupted at any moment.
            while waiting[0] not in known:
                known.add(done.get())
            known.discard(waiting[0])
            with Deferred():
                return waiting.popleft().result()

        try:
            for item in items:
                with Deferred():
                    waiting.append(self.submit(partial(answer, item)))
                    waiting[-1].add_done_callback(done.put)
                if len(waiting) == ahead:
                    yield first()
            while waiting:
                yield first()
        finally:
            # After an error, an interrupt, or when the iterator is closed early.
            with Deferred():
                for future in waiting:
                    future.cancel()

    def close(self, *, cancel: bool = False) -> None:
        """End the threads, once all that was submitted is done; nothing can be submitted then.

        Args:
            cancel: give up requests that do not run yet.
        """
        with self._lock:
            self._closed = True
            threads, self._threads = self._threads, None
        if threads is not None:
            with Deferred():
                threads.shutdown(wait=False, cancel_futures=cancel)
            threads.shutdown()


_ALIVE: WeakSet[Streams] = WeakSet()


def _renew_all() -> None:
    for streams in list(_ALIVE):
        streams.renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_all)
