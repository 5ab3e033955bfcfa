"""The kernel that stores a tensor in another format or element type."""

from __future__ import annotations

from dataclasses import replace

from stridewise.graph import Value
from stridewise.ops.geometry import canonical_shape
from stridewise.targets.kernels import SCALING, KernelSpec, MemorySpec
from stridewise.targets.onednn.family import Family, KernelKind
from stridewise.targets.onednn.memory import memory_of
from stridewise.tensor import Quantization, Storage

__all__ = ["FAMILY", "reorder_spec"]


def _memory(value: Value, storage: Storage) -> MemorySpec:
    memory = memory_of(storage.format, canonical_shape(value, storage.format))
    return replace(memory, dtype=storage.element(value.dtype).short)


def reorder_spec(value: Value, source: Storage, goal: Storage) -> KernelSpec:
    """Return the kernel that stores a value in another way; it converts elements as it moves them.

    Extents are in the order of the axes, which all formats of one value share. Elements of one
    quantization are moved as they are.
    """
    if source.format.axes != goal.format.axes:
        raise AssertionError("formats of one value are over the same axes")
    sides = (("src", _memory(value, source)), ("dst", _memory(value, goal)))
    numbers, types = source.quantization, {memory.dtype for _, memory in sides}
    if numbers == goal.quantization and (numbers is None or len(types) == 1):
        return KernelSpec("reorder", sides)
    src, dst = numbers or Quantization(), goal.quantization or Quantization()
    scaling = (*src.zero_points, *src.scales, *dst.scales, *dst.zero_points)
    return KernelSpec("reorder", sides, ((SCALING, tuple(map(float, scaling))),))


FAMILY = Family(kinds={"reorder": KernelKind()})
