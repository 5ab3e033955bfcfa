"""A bounded cache of the programs of one model, for use by any number of threads."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import CancelledError, Future
from threading import Lock
from typing import Generic, TypeVar

from stridewise.classes import dataclass
from stridewise.runtime.execution.executor import CompiledModel

__all__ = ["ProgramCache"]

K = TypeVar("K", bound=Hashable)


@dataclass(slots=True)
class _Slot:
    """A program, or one that is being made."""

    future: Future[CompiledModel]
    runs: int = 0

    @property
    def model(self) -> CompiledModel | None:
        return self.future.result() if self.future.done() else None


class ProgramCache(Generic[K]):
    """Compiled programs by shape; the least recently used is dropped first.

    Calls that need a program which is being made wait for it; other calls continue. One program is
    made at a time, so that timings are undisturbed and no weights are packed twice. A program that
    is dropped while it runs lives until its run ends.

    Attributes:
        max_programs: how many programs there may be.
        max_nbytes: bytes that arenas and weights may take together, of all programs but the last
            one used; None for no limit.
        hits: how often a program was there, or being made.
        misses: how often it had to be made.
        evictions: how many programs were dropped.
    """

    def __init__(self, max_programs: int, max_nbytes: int | None) -> None:
        """Start empty."""
        self.max_programs, self.max_nbytes = max_programs, max_nbytes
        self.hits = self.misses = self.evictions = 0
        self._lock, self._making = Lock(), Lock()
        self._slots: OrderedDict[K, _Slot] = OrderedDict()

    def find(self, key: K) -> CompiledModel | None:
        """Return a program that is there, None for one that is not, or not yet."""
        with self._lock:
            slot = self._slots.get(key)
            if slot is None or not slot.future.done():
                return None
            return self._used(key, slot).model

    def get(self, key: K, make: Callable[[], CompiledModel]) -> CompiledModel:
        """Return the program of a key; ``make`` makes it if there is none.

        Errors of ``make`` are raised in all calls that wait for it, and the next call tries again.
        """
        while True:
            with self._lock:
                slot = self._slots.get(key)
                mine = slot is None
                if slot is None:
                    slot = self._slots[key] = _Slot(Future())
                else:
                    self._used(key, slot)
            if mine:
                return self._make(key, slot, make)
            try:
                return slot.future.result()
            except CancelledError:
                continue  # only the call that made it was interrupted

    def _used(self, key: K, slot: _Slot) -> _Slot:
        self._slots.move_to_end(key)
        self.hits += 1
        slot.runs += 1
        return slot

    def _make(self, key: K, slot: _Slot, make: Callable[[], CompiledModel]) -> CompiledModel:
        try:
            with self._making:
                # The limit also holds while the next program is made.
                self._evict(reserved=1)
                model = make()
        except BaseException as error:
            with self._lock:
                self._slots.pop(key, None)
            if isinstance(error, Exception):
                slot.future.set_exception(error)
            else:
                slot.future.cancel()
            raise
        with self._lock:
            self.misses += 1
            slot.runs += 1
            slot.future.set_result(model)
        self._evict(reserved=0)
        return model

    def _evict(self, reserved: int) -> None:
        """Drop the least recently used programs until the limits hold."""
        with self._lock:
            # Slots of failures are gone before they are done.
            done = [(key, s.model) for key, s in self._slots.items() if s.model is not None]
            sizes = [model.memory.arenas + model.weights.own_nbytes for _, model in done if model]
            count, total = len(done) + reserved, sum(sizes)
            limit = self.max_nbytes
            for (key, _), nbytes in zip(done, sizes, strict=True):
                heavy = limit is not None and total > limit and count > 1
                if count <= self.max_programs and not heavy:
                    break
                del self._slots[key]
                count, total = count - 1, total - nbytes
                self.evictions += 1

    def __len__(self) -> int:
        return len(self.models())

    def models(self) -> tuple[tuple[K, CompiledModel, int], ...]:
        """Return what is there: keys, programs, and how often each was asked for."""
        with self._lock:
            slots = [(key, slot.model, slot.runs) for key, slot in self._slots.items()]
        return tuple((key, model, runs) for key, model, runs in slots if model is not None)
