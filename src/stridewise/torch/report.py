"""What ran where: operators, reasons and times of everything that the backend has compiled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from stridewise.errors import InputError
from stridewise.frontends.torch.library import torch
from stridewise.frontends.torch.partition import Outside
from stridewise.torch.region import REGIONS, Region, summary
from stridewise.torch.steps import NativeStep

__all__ = ["GraphReport", "Report", "report"]


@dataclass(frozen=True, slots=True)
class GraphReport:
    """One captured graph, for one set of weights and shapes.

    Attributes:
        name: of the graph.
        reason: why PyTorch computes all of it; "" if it does not.
        programs: number of native programs.
        native: number of native operators.
        outside: operators that PyTorch computes, with reasons.
        fallback_nodes: nodes of the programs that run on the NumPy fallback.
        calls: number of runs.
        native_ms: time of the programs in all runs.
        outside_ms: time of PyTorch's operators in all runs.
    """

    name: str
    reason: str
    programs: int
    native: int
    outside: tuple[Outside, ...]
    fallback_nodes: tuple[str, ...]
    calls: int
    native_ms: float
    outside_ms: float

    def __str__(self) -> str:
        if self.reason:
            return f"{self.name}: PyTorch: {self.reason}"
        total = self.native + len(self.outside)
        lines = [
            f"{self.name}: {self.native} of {total} operators in {self.programs} programs, "
            f"{self.calls} calls, {self.native_ms:.3f} ms; {self.outside_ms:.3f} ms in PyTorch"
        ]
        if self.outside:
            lines.append(f"  PyTorch: {summary(self.outside)}")
        if self.fallback_nodes:
            lines.append(f"  NumPy fallback: {', '.join(self.fallback_nodes)}")
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class Report:
    """What the backend has compiled.

    Attributes:
        graphs: one entry for each captured graph, set of weights and set of shapes.
    """

    graphs: tuple[GraphReport, ...]

    @property
    def native(self) -> int:
        """Number of native operators."""
        return sum(graph.native for graph in self.graphs)

    @property
    def outside(self) -> int:
        """Number of operators that PyTorch computes."""
        return sum(len(graph.outside) for graph in self.graphs)

    @property
    def share(self) -> float:
        """The part of the time of all runs that operators of PyTorch take, from 0 to 1."""
        outside = sum(graph.outside_ms for graph in self.graphs)
        total = outside + sum(graph.native_ms for graph in self.graphs)
        return outside / total if total else 0.0

    def __str__(self) -> str:
        return "\n".join(map(str, self.graphs)) or "no graph was compiled"


def _rows(region: Region) -> list[GraphReport]:
    rows = [
        GraphReport(region.name, reason, 0, 0, (), (), 0, 0.0, 0.0)
        for reason in sorted(region.left)
    ]
    for program in region.programs():
        native = [step for step in program.steps if isinstance(step, NativeStep)]
        times = [
            sum(step.nanoseconds for step in program.steps if (step in native) is own) / 1e6
            for own in (True, False)
        ]
        hosts = tuple(name for step in native for name in step.fallback_nodes())
        rows.append(
            GraphReport(
                region.name,
                "",
                len(native),
                program.partition.native,
                program.partition.outside,
                hosts,
                program.calls,
                *times,
            )
        )
    return rows


def report(compiled: Any = None) -> Report:
    """Return what ran where.

    Args:
        compiled: a module that ``torch.compile`` returned, or the module itself: the graphs that
            have read one of its parameters. By default all graphs that are alive.

    Raises:
        InputError: ``compiled`` is no module.

    A graph is listed once it has run.
    """
    regions = sorted(REGIONS, key=lambda region: region.name)
    if compiled is not None:
        if not isinstance(compiled, torch.nn.Module):
            raise InputError.at(
                "report",
                expected="a torch.nn.Module, compiled or not",
                found=type(compiled).__name__,
                fix="call report() for all graphs",
            )
        own = {id(t): t for t in (*compiled.parameters(), *compiled.buffers())}
        regions = [region for region in regions if region.reads(own)]
    return Report(tuple(row for region in regions for row in _rows(region)))
