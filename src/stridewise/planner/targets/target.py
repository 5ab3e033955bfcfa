"""What a target is: storage formats, the ways to compute a node in them, and reorders."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Literal, Protocol

from stridewise.formats import Block, Format, nd
from stridewise.graph import Refusal, Value
from stridewise.ops.geometry import canonical_shape
from stridewise.ops.kernels import KernelContext, KernelOption, KernelSpec, MemorySpec
from stridewise.ops.registry import kernel_options

__all__ = ["Accuracy", "FormatKind", "Kind", "LibraryTarget", "Machine", "Target"]


Accuracy = Literal["fast", "exact"]
"""``"exact"`` keeps to kernels that sum products as the operator is defined."""


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
    def reorder(self) -> str:
        """What the target calls a reorder."""
        ...

    def formats(self, value: Value) -> Mapping[str, Format]:
        """Return the formats that a value can be stored in, by the name of their kind."""
        ...

    def options(self, context: KernelContext) -> Iterable[KernelOption | Refusal]:
        """Yield the ways to compute a node, and why others are not offered."""
        ...

    def reorder_spec(self, value: Value, source: Format, goal: Format) -> KernelSpec:
        """Return the kernel that stores a value in another format."""
        ...

    def spell(self, fmt: Format) -> str:
        """Return what reports call a format."""
        ...


@dataclass(frozen=True, slots=True)
class FormatKind:
    """A family of storage formats over N, C and any number of spatial axes.

    Attributes:
        name: ``"plain"``, ``"channels-last"`` or ``"blocked"``.
        channels_last: whether channels are the innermost axis.
        block: channels per block; 0 for none.
    """

    name: str
    channels_last: bool = False
    block: int = 0

    def of(self, axes: tuple[str, ...]) -> Format:
        """Return the format of this kind over ``axes``."""
        return _format(axes, self.channels_last, self.block)


@cache
def _format(axes: tuple[str, ...], channels_last: bool, block: int) -> Format:
    order = (axes[0], *axes[2:], axes[1]) if channels_last else axes
    blocks = (Block(axes[1], block),) if block else ()
    return Format(axes, (*order, *blocks))


@dataclass(frozen=True, slots=True)
class Machine:
    """What plans and cost figures depend on.

    Attributes:
        cpu: the processor's model name.
        isa: the instruction set that the library uses, in oneDNN's spelling.
        threads: how many threads run a model.
        library: name and version of the kernel library.
    """

    cpu: str
    isa: str
    threads: int
    library: str

    @property
    def has_avx512(self) -> bool:
        """Whether 16 float32 lanes are in use."""
        return self.isa.startswith("AVX512") or self.isa.startswith("AVX10")

    def __str__(self) -> str:
        return f"{self.cpu}, {self.isa}, {self.threads} threads, {self.library}"


@dataclass(frozen=True, slots=True)
class LibraryTarget:
    """A target whose kernels are a library's: the rooms in ``ops`` describe them.

    Attributes:
        name: the target's name in the API and on the command line.
        kinds: the storage formats on offer, ``plain`` first.
        efficiency: which part of the roofline a kernel reaches, for ``tune="model"``.
        dtypes: element types that kernels compute in.
        reorder: what reports call a reorder.
        accuracy: whether kernels may round otherwise than the definition of an operator does.
    """

    name: str
    kinds: tuple[FormatKind, ...]
    efficiency: Callable[[KernelSpec], float]
    dtypes: frozenset[str] = frozenset({"float32"})
    reorder: str = "reorder"
    accuracy: Accuracy = "fast"

    def formats(self, value: Value) -> Mapping[str, Format]:
        """Return the formats that a value can be stored in, by the name of their kind."""
        origin = value.origin
        if origin is None:
            return {"plain": nd(len(value.shape))}
        if origin.rank < 3 or origin.axes[:2] != ("N", "C"):
            return {"plain": Format(origin.axes, origin.axes)}
        return {kind.name: kind.of(origin.axes) for kind in self.kinds}

    def options(self, context: KernelContext) -> Iterable[KernelOption | Refusal]:
        """Yield the ways to compute a node, and why others are not offered."""
        for item in kernel_options(context):
            if self.accuracy == "exact" and isinstance(item, KernelOption) and item.approximate:
                reason = f"{item.algorithm}: it rounds otherwise than the definition"
                yield Refusal("accuracy", context.node.name, reason)
            else:
                yield item

    def reorder_spec(self, value: Value, source: Format, goal: Format) -> KernelSpec:
        """Return the kernel that stores a value in another format."""
        if source.axes != goal.axes:
            raise AssertionError("formats of one value are over the same axes")
        shape = canonical_shape(value, source)
        memories = (("src", MemorySpec.of(source, shape)), ("dst", MemorySpec.of(goal, shape)))
        return KernelSpec("reorder", memories)

    def spell(self, fmt: Format) -> str:
        """Return what reports call a format."""
        return fmt.name
