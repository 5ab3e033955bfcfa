"""What a target is: storage formats, the ways to compute a node in them, and reorders."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Protocol

from stridewise.formats import Block, Format, nd
from stridewise.graph import Refusal, Value
from stridewise.ops.geometry import canonical_shape, user_format
from stridewise.ops.kernels import KernelContext, KernelOption, KernelSpec, MemorySpec
from stridewise.ops.registry import kernel_options

__all__ = ["FormatKind", "Kind", "LibraryTarget", "Machine", "Target"]


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


_MOST_AXES = 12
"""The most that oneDNN takes."""


def _odd(value: Value) -> str:
    """Return why no kernel needs to know a shape; "" where some may."""
    if 0 in value.shape:
        return "has no elements"
    rank = len(value.shape)
    return f"has {rank} axes, kernels take {_MOST_AXES} at most" if rank > _MOST_AXES else ""


def _is_view(context: KernelContext, option: KernelOption) -> bool:
    """Return whether an option runs nothing and keeps to the formats of host kernels."""
    if option.calls or option.fill is not None:
        return False
    node = context.node
    pairs = zip((*node.inputs, *node.outputs), (*option.inputs, *option.outputs), strict=True)
    return all(fmt is None or fmt == user_format(context.value(name)) for name, fmt in pairs)


@dataclass(frozen=True, slots=True)
class LibraryTarget:
    """A target whose kernels are a library's: the rooms in ``ops`` describe them.

    Attributes:
        name: the target's name in the API and on the command line.
        kinds: the storage formats on offer, ``plain`` first.
        efficiency: which part of the roofline a kernel reaches, for ``tune="model"``.
        dtypes: element types that kernels compute in.
        reorder: what reports call a reorder.
        has_host: whether nodes without a kernel run on the host.
    """

    name: str
    kinds: tuple[FormatKind, ...]
    efficiency: Callable[[KernelSpec], float]
    dtypes: frozenset[str] = frozenset({"float32"})
    reorder: str = "reorder"
    has_host: bool = True

    def formats(self, value: Value) -> Mapping[str, Format]:
        """Return the formats that a value can be stored in, by the name of their kind.

        What no kernel takes is stored as host kernels take it.
        """
        origin = value.origin
        if self._foreign(value) or _odd(value):
            return {"plain": user_format(value)}
        if origin is None:
            return {"plain": nd(len(value.shape))}
        if origin.rank < 3 or origin.axes[:2] != ("N", "C"):
            return {"plain": Format(origin.axes, origin.axes)}
        return {kind.name: kind.of(origin.axes) for kind in self.kinds}

    def options(self, context: KernelContext) -> Iterable[KernelOption | Refusal]:
        """Yield the ways to compute a node, and why others are not offered.

        Around values that no kernel takes, only views are left.
        """
        sides = (("input", context.node.inputs), ("output", context.node.outputs))
        named = [
            (side, index, context.value(name))
            for side, names in sides
            for index, name in enumerate(names)
            if name
        ]
        odd = [f"{side} {index} {why}" for side, index, value in named if (why := _odd(value))]
        foreign = [
            f"{side} {index} {why}"
            for side, index, value in named
            if not context.is_constant(value.name) and (why := self._foreign(value))
        ]
        if odd or foreign:
            yield Refusal(self.name, context.node.name, (odd or foreign)[0])
        if odd:
            return
        for item in kernel_options(context):
            if not foreign or (isinstance(item, KernelOption) and _is_view(context, item)):
                yield item

    def _foreign(self, value: Value) -> str:
        """Return why kernels do not take the dtype of a value; "" where they do."""
        if value.dtype.name in self.dtypes:
            return ""
        return f"is {value.dtype}, kernels take {' and '.join(sorted(self.dtypes))}"

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
