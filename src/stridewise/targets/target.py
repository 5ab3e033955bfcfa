"""What a target is: storage formats, the ways to compute a node in them, and reorders."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal, Protocol

from stridewise.formats import Format
from stridewise.graph import Refusal, Value
from stridewise.targets.kernels import KernelContext, KernelOption, KernelSpec
from stridewise.tensor import Storage

__all__ = ["NATIVE", "Accuracy", "Kind", "Precision", "PrecisionChoice", "Target"]

NATIVE = "onednn-cpu"
"""The target that runs on this machine."""

Accuracy = Literal["fast", "exact"]
"""``"exact"`` keeps to kernels that sum products as the operator is defined."""

Precision = Literal["model", "float32", "bfloat16"]
"""What tensors may be stored in, where that is not slower.

``"model"`` stores quantized tensors as integers and all others in their own type, ``"float32"``
computes quantized tensors in float32, and ``"bfloat16"`` also lets float32 tensors be stored in it.
"""

PrecisionChoice = Precision | Literal["auto"]
"""``"auto"`` limits the error of what ``"bfloat16"`` allows."""


class Kind(Protocol):
    """A family of storage formats, one for each rank; a uniform plan has tensors of one kind."""

    @property
    def name(self) -> str:
        """What reports call it."""
        ...


class Target(Protocol):
    """What the planner asks of a target. Nothing else in the planner depends on hardware."""

    @property
    def name(self) -> str:
        """The target's name in the API and on the command line."""
        ...

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """The kinds of format on offer."""
        ...

    @property
    def dtypes(self) -> frozenset[str]:
        """Element types that kernels compute in."""
        ...

    @property
    def has_host(self) -> bool:
        """Whether nodes without a kernel run on the host; else they are errors."""
        ...

    @property
    def precision(self) -> Precision:
        """In which element types float32 tensors may be stored."""
        ...

    @property
    def reorder(self) -> str:
        """What the target calls a reorder."""
        ...

    @property
    def library(self) -> str:
        """What implements the kernels; the rule of refusals for kernels that it lacks."""
        ...

    def formats(self, value: Value) -> Mapping[str, Format]:
        """Return the formats that a value can be stored in, by the name of their kind."""
        ...

    def storages(self, value: Value) -> Mapping[str, Storage]:
        """Return the ways to store a value, by the name of their kind.

        They are the formats with elements of the value's own type, and possibly with others.
        """
        ...

    def options(self, context: KernelContext) -> Iterable[KernelOption | Refusal]:
        """Yield the ways to compute a node, and why others are not offered."""
        ...

    def joins(self, op: str) -> frozenset[str]:
        """Return the operators whose results kernels of an operator may compute as well."""
        ...

    def reorder_spec(self, value: Value, source: Storage, goal: Storage) -> KernelSpec:
        """Return the kernel that stores a value in another way."""
        ...

    def spell(self, fmt: Format) -> str:
        """Return what reports call a format."""
        ...
