"""Which reorders of programs the native core has kernels of, and for which instruction set."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from stridewise.runtime.binding.library import load_core
from stridewise.targets.kernels import SCALING, KernelSpec, MemorySpec
from stridewise.tensor.quantization import Scales

if TYPE_CHECKING:
    from stridewise import _core

__all__ = [
    "OWN_REORDERS",
    "PlannedReorder",
    "best_isa",
    "is_own",
    "native_reorder",
    "permuted_strides",
    "scaling_of",
]


OWN_REORDERS = "reorder:"
"""What the names of the core's reorders begin with."""

PlannedReorder = Mapping[str, Any]
"""What the core's ``Reorder`` takes, without the instruction set: numbers, texts and lists."""


def native_reorder(
    planned: PlannedReorder, src: _core.MemoryDesc, dst: _core.MemoryDesc, threads: int
) -> _core.ReorderKernel:
    """Return the kernel of a reorder that was planned, which the core checks."""
    core, isa = load_core(), best_isa()
    made = core.Reorder(**planned, isa=isa)
    kernel: _core.ReorderKernel = core.ReorderKernel(made, src, dst, threads=threads, isa=isa)
    return kernel


def best_isa() -> str:
    """Return the instruction set of the native core: the library's, which users may lower."""
    core = load_core()
    isa: str = core.effective_isa()
    wide = isa.startswith(("AVX2", "AVX512", "AVX10"))
    return "avx2" if wide and "avx2" in core.reorder_isas() else "portable"


def scaling_of(spec: KernelSpec) -> Scales | None:
    """Return the numbers of a reorder between quantized tensors, None for others.

    The library has such reorders, too, which ignore zero points for some shapes (oneDNN 3.2).
    """
    numbers = dict(spec.params).get(SCALING)
    if not isinstance(numbers, tuple):
        return None
    return Scales(None, *((float(number),) for number in numbers))


def is_own(spec: KernelSpec) -> bool:
    """Return whether the native core has a kernel for a reorder of a program.

    It has one between any two formats, and between any two memories that strides describe. A copy
    of a scalar is left to the library, which does not scale it.
    """
    memories = [memory for _, memory in spec.memories]
    if not all(memory.dims for memory in memories):
        return scaling_of(spec) is not None
    return all(memory.strides is None for memory in memories) or all(map(_is_walked, memories))


def _is_walked(memory: MemorySpec) -> bool:
    """Return whether an element of a memory lies where the sum of its strides says."""
    if memory.strides is not None:
        steps = zip(memory.dims, memory.strides, strict=True)
        return all(stride > 0 for extent, stride in steps if extent > 1)
    return memory.tag.isalpha() and memory.tag.islower() and memory.tag != "any"


def permuted_strides(dims: tuple[int, ...], tag: str) -> tuple[int, ...]:
    """Return the strides that a tag without blocks stands for."""
    strides, step = [1] * len(dims), 1
    for letter in reversed(tag):
        axis = ord(letter) - ord("a")
        strides[axis] = step
        step *= dims[axis]
    return tuple(strides)
