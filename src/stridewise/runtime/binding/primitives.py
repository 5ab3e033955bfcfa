"""Kernels and primitives of a :class:`KernelSpec`: which there are, and the one to run."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from stridewise.errors import ExecutionError
from stridewise.runtime.binding.arguments import KernelArguments
from stridewise.runtime.binding.defects import is_wrong
from stridewise.runtime.binding.factories import FACTORIES, KERNELS
from stridewise.runtime.binding.library import load_core
from stridewise.runtime.binding.reorders import (
    OWN_REORDERS,
    PlannedReorder,
    is_own,
    native_reorder,
    scaling_of,
)
from stridewise.targets.kernels import KernelSpec

if TYPE_CHECKING:
    from stridewise import _core

__all__ = ["create", "create_planned", "implementations", "pack_into", "packs_itself"]

_SLOW_COPIES = "simple:"
"""What the library calls its reorders without a loop over vectors."""

_BYTES = ("s8", "u8")

_MOST_KEPT = 1024
"""Primitives that are kept, as many as the library itself would keep."""


def _descriptors(spec: KernelSpec, threads: int) -> Iterator[_core.PrimitiveDesc]:
    """Yield the descriptor at each implementation in turn; it is one object that moves on.

    Implementations with wrong results are left out.
    """
    if spec.kind in KERNELS:
        return
    descriptor = FACTORIES[spec.kind](KernelArguments(spec, threads))
    has_more = True
    while has_more:
        if not is_wrong(spec, descriptor.impl):
            yield descriptor
        has_more = descriptor.next()


def _instruction_set(implementation: str) -> str:
    return implementation.rpartition(":")[2]


def _threads(spec: KernelSpec, threads: int) -> int:
    return 1 if spec.is_small else threads


def implementations(spec: KernelSpec, threads: int, limit: int = 3) -> tuple[str, ...]:
    """Return the implementations worth measuring, in the library's order.

    Those are the ones for the same instruction set as the library's first choice, and the naive
    ``ref`` loops only where there is nothing else.

    Raises:
        NativeError: the library has none at all.
    """
    threads = _threads(spec, threads)
    if spec.kind in KERNELS:
        return (KERNELS[spec.kind](KernelArguments(spec, threads)).impl,)
    own = _own_reorder(spec, threads)
    if own is not None and scaling_of(spec) is not None:
        return (own.impl,)
    # Programs name their implementations, and need no list.
    from stridewise.targets.cost import is_reference  # noqa: PLC0415

    found: list[str] = []
    try:
        for descriptor in _descriptors(spec, threads):
            name, others = descriptor.impl, _instruction_set(descriptor.impl)
            if found and (is_reference(name) or others != _instruction_set(found[0])):
                continue
            if name not in found:
                found.append(name)
            if len(found) == limit or is_reference(name):
                break
    except load_core().NativeError:
        if own is None:
            raise
    return tuple(found) if own is None else (*found, own.impl)


def _own_reorder(spec: KernelSpec, threads: int) -> _core.ReorderKernel | None:
    if spec.kind != "reorder" or not is_own(spec):
        return None
    # Stored programs have planned reorders.
    from stridewise.runtime.binding.reorder_kernels import planned_reorder  # noqa: PLC0415

    return _native_reorder(spec, planned_reorder(spec), threads)


def _native_reorder(spec: KernelSpec, planned: PlannedReorder, threads: int) -> _core.ReorderKernel:
    s = KernelArguments(spec, threads)
    return native_reorder(planned, s.memory("src"), s.memory("dst"), threads)


def create_planned(
    spec: KernelSpec, planned: PlannedReorder, implementation: str, threads: int
) -> _core.ReorderKernel:
    """Return the kernel of a reorder that was planned before.

    Raises:
        ExecutionError: the core has another implementation for this machine.
    """
    made = _native_reorder(spec, planned, _threads(spec, threads))
    if made.impl != implementation:
        raise ExecutionError.at(f"kernel {spec}", expected=implementation, found=made.impl)
    return made


def packs_itself(operation: _core.Primitive | _core.Kernel, role: str) -> bool:
    """Return whether a kernel of the core transforms a constant while packing it."""
    core = load_core()
    return role == "weights" and isinstance(operation, (core.Winograd, core.StridedWinograd))


def pack_into(
    operation: _core.Primitive | _core.Kernel,
    role: str,
    array: NDArray[Any],
    buffer: _core.Buffer,
    offset: int,
    first: int = 0,
) -> bool:
    """Pack a constant for a kernel of the core; return False if it uses its default packing.

    Args:
        operation: what reads the constant.
        role: as what it reads it.
        array: the constant in the user's order, or some of its outputs.
        buffer: where it goes.
        offset: from which byte on the whole constant goes there.
        first: the first of the outputs.
    """
    if not packs_itself(operation, role):
        return False
    kernel = cast("_core.Winograd | _core.StridedWinograd", operation)
    given = np.ascontiguousarray(array, np.float32)
    kernel.pack_into(given, buffer, offset, first, len(given))
    return True


def _has_integers(spec: KernelSpec) -> bool:
    return any(memory.dtype in _BYTES for _, memory in spec.memories)


def _is_fast(own: _core.ReorderKernel, spec: KernelSpec) -> bool:
    """Return whether the core's reorder is usually faster than the library's: one of bytes.

    The library moves bytes one by one where channels move, the core in vectors. Blocks that end in
    padding have short rows, for which the core is slower.
    """
    memories = [memory for _, memory in spec.memories]
    if any(memory.dtype not in _BYTES for memory in memories) or own.impl.endswith("portable"):
        return False
    # Imported here, as programs name their implementations and a start does not come here.
    from stridewise.targets.onednn.memory import block_of  # noqa: PLC0415

    return all(m.strides is None and m.dims[1:2] for m in memories) and not any(
        memory.dims[1] % block_of(memory) for memory in memories
    )


def _preferred(spec: KernelSpec, threads: int) -> str:
    """Return the implementation to use if none is named; "" for the library's first choice."""
    # Programs name their implementations; the target, which has the rule, takes long to import.
    from stridewise.targets.onednn.conv import prefers_direct  # noqa: PLC0415

    if not prefers_direct(spec):
        return ""
    names = implementations(spec, threads)
    direct = [name for name in names if name.startswith("jit")]
    return direct[0] if direct and names[0].startswith("br") else ""


@lru_cache(maxsize=_MOST_KEPT)
def create(spec: KernelSpec, implementation: str, threads: int) -> _core.Primitive | _core.Kernel:
    """Return the primitive; where no implementation is named, the one that is usually fastest.

    Small kernels are created for one thread.

    Primitives hold no state of a run. The last ones that were asked for are kept, because creating
    one means generating code. The key is the whole description, which the library's own cache does
    not compare (see :mod:`stridewise.runtime.binding.library`).

    Raises:
        ExecutionError: the library no longer has that implementation.
    """
    core, threads = load_core(), _threads(spec, threads)
    if is_wrong(spec, implementation):  # named by a plan or by costs of an earlier version
        implementation = ""
    try:
        if spec.kind in KERNELS:
            kernel = KERNELS[spec.kind](KernelArguments(spec, threads))
            if implementation in ("", kernel.impl):
                return kernel
        is_scaled = scaling_of(spec) is not None
        may_be_own = is_scaled or not implementation or implementation.startswith(OWN_REORDERS)
        own = _own_reorder(spec, threads) if may_be_own else None
        if own is not None and (is_scaled or implementation == own.impl):
            return own
        implementation, first = implementation or _preferred(spec, threads), ""
        for descriptor in _descriptors(spec, threads):
            name = descriptor.impl
            is_slow = name.startswith(_SLOW_COPIES)
            if own is not None and not implementation and (is_slow or _is_fast(own, spec)):
                return own
            first = first or _instruction_set(name)
            # Older instruction sets saturate sums of products of integers at 16 bits.
            if _has_integers(spec) and _instruction_set(name) != first:
                continue
            if implementation in ("", name):
                return descriptor.create()
    except core.NativeError as error:
        # The library converts only types that it has kernels of on the machine.
        own = None if implementation else _own_reorder(spec, threads)
        if own is not None:
            return own
        found = str(error)
    else:
        found = "none of that name"
    raise ExecutionError.at(
        f"kernel {spec}",
        expected=f"the implementation {implementation or 'of the library'}",
        found=found,
        fix="clear the cost cache (`stridewise info` shows where it is) and compile again",
    )
