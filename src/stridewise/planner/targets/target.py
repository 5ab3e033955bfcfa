"""What a target is: a table of storage formats and of what kernels make of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache

from stridewise.formats import Block, Format, nd
from stridewise.graph import Value
from stridewise.ops.kernels import KernelSpec

__all__ = ["FormatKind", "Machine", "Target"]


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
class Target:
    """Storage formats and kernels of one kind of machine.

    Attributes:
        name: the target's name in the API and on the command line.
        kinds: the storage formats on offer, ``plain`` first.
        efficiency: which part of the roofline a kernel reaches, for ``tune="model"``.
        dtypes: element types that kernels compute in.
    """

    name: str
    kinds: tuple[FormatKind, ...]
    efficiency: Callable[[KernelSpec], float]
    dtypes: frozenset[str] = frozenset({"float32"})

    def formats(self, value: Value) -> Mapping[str, Format]:
        """Return the formats that a value can be stored in, by kind."""
        origin = value.origin
        if origin is None:
            return {"plain": nd(len(value.shape))}
        if origin.rank < 3 or origin.axes[:2] != ("N", "C"):
            return {"plain": Format(origin.axes, origin.axes)}
        return {kind.name: kind.of(origin.axes) for kind in self.kinds}
