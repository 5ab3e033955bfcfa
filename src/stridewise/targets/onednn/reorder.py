"""The kernel that stores a tensor in another format."""

from __future__ import annotations

from stridewise.formats import Format
from stridewise.graph import Value
from stridewise.ops.geometry import canonical_shape
from stridewise.targets.kernels import KernelSpec
from stridewise.targets.onednn.family import Family, KernelKind
from stridewise.targets.onednn.memory import memory_of

__all__ = ["FAMILY", "reorder_spec"]


def reorder_spec(value: Value, source: Format, goal: Format) -> KernelSpec:
    """Return the kernel that stores a value in another format."""
    if source.axes != goal.axes:
        raise AssertionError("formats of one value are over the same axes")
    shape = canonical_shape(value, source)
    memories = (("src", memory_of(source, shape)), ("dst", memory_of(goal, shape)))
    return KernelSpec("reorder", memories)


FAMILY = Family(kinds={"reorder": KernelKind()})
