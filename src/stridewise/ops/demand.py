"""How much memory a graph needs to run, and whether it may have it."""

from __future__ import annotations

from stridewise.classes import dataclass
from stridewise.errors import MemoryLimitError
from stridewise.graph import Graph
from stridewise.ops.effort import nbytes
from stridewise.ops.fallback import foreign_nbytes

__all__ = ["MemoryDemand", "check_demand", "memory_demand", "spelled"]

_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB")


def spelled(count: int) -> str:
    """Return bytes for people.

    >>> spelled(1536), spelled(3 << 40)
    ('1.5 KiB', '3.0 TiB')
    """
    unit = min(max(count.bit_length() - 1, 0) // 10, len(_UNITS) - 1)
    value = count / (1 << (10 * unit)) if count.bit_length() < 1000 else float("inf")
    return f"{count} bytes" if unit == 0 else f"{value:.1f} {_UNITS[unit]}"


@dataclass(frozen=True, slots=True)
class MemoryDemand:
    """An estimate of the bytes that running a graph takes.

    Attributes:
        weights: the constants as the model has them.
        packed_weights: their copies in the formats that kernels want.
        activations: the most that inputs, outputs and results need at one moment.
        largest: the largest value, as a hint at the reason.
    """

    weights: int
    packed_weights: int
    activations: int
    largest: str = ""

    @property
    def total(self) -> int:
        """All of it."""
        return self.weights + self.packed_weights + self.activations

    def __str__(self) -> str:
        parts = (
            f"weights {spelled(self.weights)}",
            f"packed weights {spelled(self.packed_weights)}",
            f"activations {spelled(self.activations)}",
        )
        largest = f", the largest value is {self.largest!r}" if self.largest else ""
        return f"an estimate of {spelled(self.total)} ({', '.join(parts)}){largest}"


def memory_demand(graph: Graph) -> MemoryDemand:
    """Return what a graph needs at least, stored as the user wrote it.

    Constants are counted as they are seen: one that repeats an element counts in full, because its
    packed copy will. Scratchpads of kernels and padding of formats come on top.
    """
    sizes = {name: nbytes((value.type,)) for name, value in graph.values.items()}
    last: dict[str, int] = {}
    for index, node in enumerate(graph.nodes):
        last |= dict.fromkeys((*node.inputs, *node.outputs), index)
    last |= dict.fromkeys((*graph.inputs, *graph.stored, *graph.sinks), len(graph.nodes))
    ends: list[list[str]] = [[] for _ in range(len(graph.nodes) + 1)]
    for name, index in last.items():
        if name and not graph.is_packed(name):
            ends[index].append(name)
    level = highest = sum(sizes[name] for name in (*graph.inputs, *graph.stored))
    for index, node in enumerate(graph.nodes):
        level += sum(sizes[name] for name in node.outputs)
        highest = max(highest, level)
        level -= sum(sizes[name] for name in ends[index])
    weights = sum(sizes[name] for name in graph.sources if graph.is_packed(name))
    weights += foreign_nbytes(graph)
    largest = max(sizes, key=lambda name: sizes[name], default="")
    return MemoryDemand(weights, weights, highest, largest)


def check_demand(where: str, demand: MemoryDemand, limit: int | None) -> None:
    """Check a demand against a limit in bytes; None allows everything.

    Raises:
        MemoryLimitError: it is above; the message has the estimate.
    """
    if limit is not None and demand.total > limit:
        raise MemoryLimitError.at(
            where,
            expected=f"at most {spelled(limit)} of memory",
            found=str(demand),
            fix="give smaller shapes, or a higher memory_limit",
        )
