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

    Extents are in the order of the axes, which all formats of one value share.
    """
    if source.format.axes != goal.format.axes:
        raise AssertionError("formats of one value are over the same axes")
    sides = (("src", _memory(value, source)), ("dst", _memory(value, goal)))
    if source.quantization is None and goal.quantization is None:
        return KernelSpec("reorder", sides)
    src, dst = source.quantization or Quantization(), goal.quantization or Quantization()
    numbers = (*src.zero_points, *src.scales, *dst.scales, *dst.zero_points)
    return KernelSpec("reorder", sides, ((SCALING, tuple(map(float, numbers))),))


FAMILY = Family(kinds={"reorder": KernelKind()})
