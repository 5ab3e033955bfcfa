"""Native kernels by their descriptions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from stridewise.interrupts import Deferred
from stridewise.runtime.binding.arguments import role_argument
from stridewise.runtime.binding.primitives import create, create_planned
from stridewise.runtime.binding.reorders import OWN_REORDERS, PlannedReorder
from stridewise.targets.kernels import KernelSpec

if TYPE_CHECKING:
    from stridewise import _core

__all__ = ["Kernels"]

_MOST_AT_ONCE = 8


class Kernels:
    """Primitives, each created once."""

    def __init__(
        self,
        threads: int,
        planned: Mapping[KernelSpec, PlannedReorder] | None = None,
        *,
        anew: bool = False,
    ) -> None:
        """Start without a primitive.

        Args:
            threads: how many run a primitive.
            planned: reorders of the core that were planned before.
            anew: whether to create again what this process has created before.
        """
        self._threads, self._planned = threads, planned or {}
        self._new = create.__wrapped__ if anew else create
        self._made: dict[tuple[KernelSpec, str], _core.Primitive | _core.Kernel] = {}

    def get(self, spec: KernelSpec, implementation: str) -> _core.Primitive | _core.Kernel:
        """Return the primitive of an implementation; ExecutionError where there is none."""
        key = (spec, implementation)
        if key not in self._made:
            self._made[key] = self._create(key)
        return self._made[key]

    def make(self, wanted: Iterable[tuple[KernelSpec, str]]) -> None:
        """Create primitives beforehand, several at a time: the library generates code for each.

        Ctrl-C waits for all of them, at most some seconds.

        Raises:
            ExecutionError: there is none for one of them.
        """
        keys = [key for key in dict.fromkeys(wanted) if key not in self._made]
        with Deferred(), ThreadPoolExecutor(min(self._threads, _MOST_AT_ONCE)) as pool:
            made = list(pool.map(self._create, keys))
        self._made.update(zip(keys, made, strict=True))

    def _create(self, key: tuple[KernelSpec, str]) -> _core.Primitive | _core.Kernel:
        spec, implementation = key
        planned = self._planned.get(spec)
        if planned is not None and implementation.startswith(OWN_REORDERS):
            return create_planned(spec, planned, implementation, self._threads)
        return self._new(spec, implementation, self._threads)

    def scratch(self, spec: KernelSpec, implementation: str) -> int:
        """Return the bytes of scratchpad that an implementation needs."""
        return self.get(spec, implementation).scratchpad_nbytes

    def layout(self, spec: KernelSpec, implementation: str, role: str) -> str:
        """Return the memory layout in which an implementation reads a constant."""
        return self.get(spec, implementation).arg_desc(role_argument(spec.kind, role)).layout
