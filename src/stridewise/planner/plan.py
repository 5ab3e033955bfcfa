"""A plan as plain data: which kernel computes each node, and how each tensor is stored.

:class:`stridewise.Plan` adds what a plan can be asked, and the documents that it can be written as.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field

from stridewise.classes import dataclass
from stridewise.formats import Format
from stridewise.graph import Graph, Refusal
from stridewise.ops.geometry import stored, user_format
from stridewise.planner.derivation.derive import Derived
from stridewise.planner.problem.candidates import Candidate, Candidates, Storages
from stridewise.planner.problem.formulation import Terms
from stridewise.planner.split import WHOLE, Split
from stridewise.targets.machine import Machine
from stridewise.targets.target import Target
from stridewise.tensor import Spell, Storage, TensorDesc

__all__ = ["Comparison", "Decision", "Pin", "PlanData", "Point", "Reorder"]


@dataclass(frozen=True, slots=True)
class Reorder:
    """One step that stores a tensor in another way: its format, its element type, or both.

    Attributes:
        tensor: the value.
        source: its storage before.
        target: its storage after.
        nbytes: bytes written.
        cost_ns: predicted time.
        implementation: the library's name of the kernel.
    """

    tensor: str
    source: Storage
    target: Storage
    nbytes: int
    cost_ns: float
    implementation: str


@dataclass(frozen=True, slots=True)
class Decision:
    """What was chosen for one node.

    Attributes:
        node: the node's name.
        chosen: its kernel.
        rejected: the others.
    """

    node: str
    chosen: Candidate
    rejected: tuple[Candidate, ...]


@dataclass(frozen=True, slots=True)
class Comparison:
    """What one way of planning would cost.

    Attributes:
        name: ``"planned"``; ``"planned alone"``, by the costs of isolated kernels; ``"all plain"``,
            ``"all channels-last"``, ..., in which every node that has kernels of this kind uses
            one, and the others what they have; or ``"each operator for itself"``, in which no two
            operators agree on a format.
        cost_ns: predicted time of the whole graph.
        reorders: how many steps change the format of a tensor.
        nbytes: bytes written by these steps.
        measured_ns: time of the whole program, where it was run; else None.
    """

    name: str
    cost_ns: float
    reorders: int
    nbytes: int
    measured_ns: float | None


@dataclass(frozen=True, slots=True)
class Point:
    """What one plan of a training step needs.

    Attributes:
        nbytes: memory of a step: arena, packed constants, parameters and states. As
            ``memory_limit``, this number gives the plan.
        cost_ns: predicted time of a step.
        repeats: number of nodes that run a second time.
    """

    nbytes: int
    cost_ns: float
    repeats: int


@dataclass(frozen=True, slots=True)
class Pin:
    """A tensor that is produced in a given storage, whatever it costs."""

    tensor: str
    storage: Storage
    spell: Spell = field(default=str, compare=False, repr=False)

    def __str__(self) -> str:
        return f"{self.tensor} in {self.storage.spelled(self.spell)}"


@dataclass(frozen=True, slots=True, repr=False)
class PlanData:
    """Everything that was decided about a graph; :class:`stridewise.Plan` describes the fields."""

    name: str
    graph: Graph
    target: Target
    machine: Machine
    decisions: tuple[Decision, ...]
    reorders: tuple[Reorder, ...]
    cost_ns: float
    lower_bound_ns: float
    refusals: tuple[Refusal, ...]
    derived: Derived
    comparisons: Sequence[Comparison]
    input_formats: Mapping[str, Format]
    output_formats: Mapping[str, Format]
    terms: Terms = field(compare=False)
    pins: tuple[Pin, ...] = ()
    notes: tuple[str, ...] = ()
    split: Split = WHOLE
    repeats: Mapping[str, str] = field(default_factory=dict[str, str])
    points: Callable[[], tuple[Point, ...]] | None = field(default=None, compare=False, repr=False)

    @property
    def candidates(self) -> Candidates:
        """Every way to compute each node, every reorder, and what they cost."""
        return self.terms.candidates

    @property
    def storages(self) -> Storages:
        """Names of formats of equal bytes."""
        return self.terms.candidates.storages

    @property
    def gap(self) -> float:
        """How far the plan may be from the optimum, as a part of its cost; 0 if proved optimal."""
        return 0.0 if not self.cost_ns else max(0.0, 1 - self.lower_bound_ns / self.cost_ns)

    def __repr__(self) -> str:
        return (
            f"Plan({self.graph.name!r}, {self.name}, {len(self.decisions)} nodes, "
            f"{len(self.reorders)} reorders, {self.cost_ns / 1e6:.3f} ms)"
        )

    def decision(self, node: str) -> Decision:
        """Return what was decided for a node.

        Raises:
            KeyError: there is no node of that name.
        """
        return self.decisions[self.terms.positions[node]]

    def storage(self, value: str) -> TensorDesc:
        """Return Origin and Storage of a value as its producer leaves it."""
        found = self.graph.value(value)
        return stored(found, self.made(value))

    def made(self, value: str) -> Storage:
        """Return how the producer of a value stores it."""
        producer = self.terms.producers.get(value)
        if producer is None:
            own = user_format(self.graph.value(value))
            return Storage(self.input_formats.get(value, own))
        option = self.decision(producer.name).chosen.option
        return option.makes[producer.outputs.index(value)]
