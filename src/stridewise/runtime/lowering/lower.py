"""Lowering: a plan becomes a program with addresses."""

from __future__ import annotations

from itertools import accumulate
from typing import Protocol

from stridewise.classes import dataclass
from stridewise.graph import Graph
from stridewise.planning import Plan
from stridewise.program import (
    ArenaBlock,
    ArenaTensor,
    Binding,
    CopyStep,
    FillStep,
    KernelStep,
    PackedConstant,
    Program,
    Ref,
    Step,
    Written,
)
from stridewise.runtime.lowering.arena import Life, arrange, lower_bound
from stridewise.runtime.lowering.schedule import (
    Action,
    ConstantArg,
    Place,
    Schedule,
    Stored,
    make_schedule,
)
from stridewise.targets.kernels import HOST, KernelSpec

__all__ = ["KernelFacts", "Tenants", "lower"]


class KernelFacts(Protocol):
    """What lowering asks about the implementations of kernels."""

    def scratch(self, spec: KernelSpec, implementation: str) -> int:
        """Return the bytes of scratchpad that an implementation needs."""
        ...

    def layout(self, spec: KernelSpec, implementation: str, role: str) -> str:
        """Return the memory layout in which an implementation reads a constant, as text."""
        ...


@dataclass(frozen=True, slots=True)
class Tenants:
    """What needs memory of the arena, and when: families of tensors, then scratchpads.

    Attributes:
        lives: of all of them.
        roots: the tensors in whose memory the families lie.
        owners: the actions that have a scratchpad.
    """

    lives: tuple[Life, ...]
    roots: tuple[Stored, ...]
    owners: tuple[int, ...]

    @classmethod
    def of(cls, schedule: Schedule, kernels: KernelFacts) -> Tenants:
        """Return what the actions of a schedule need."""
        families = _families(schedule)
        lives = [Life(root.desc.nbytes, first, last) for root, first, last in families]
        owners: list[int] = []
        for position, action in enumerate(schedule.actions):
            if action.spec is None or action.cost is None or action.spec.kind == HOST:
                continue
            nbytes = kernels.scratch(action.spec, action.cost.implementation)
            if nbytes:
                owners.append(position)
                lives.append(Life(nbytes, position, position))
        return cls(tuple(lives), tuple(root for root, _, _ in families), tuple(owners))


class _Addresses:
    """Where every stored tensor and every scratchpad lies."""

    def __init__(self, schedule: Schedule, kernels: KernelFacts) -> None:
        tenants = Tenants.of(schedule, kernels)
        offsets, self.total = arrange(tenants.lives)
        self.bound = lower_bound(tenants.lives)
        placed = list(zip(tenants.lives, offsets, strict=True))
        roots = tenants.roots
        self.families = dict(zip(map(id, roots), placed, strict=False))
        self.scratch = dict(zip(tenants.owners, placed[len(roots) :], strict=True))

    def ref(self, place: Place) -> Ref:
        root, offset = place.stored.root()
        offset += place.offset
        if root.space == "arena":
            return Ref("arena", 0, offset + self.families[id(root)][1])
        return Ref(root.space, root.index, offset)


def _families(schedule: Schedule) -> list[tuple[Stored, int, int]]:
    """Return the roots in the arena and the actions between which their families live."""
    spans: dict[int, tuple[Stored, int, int]] = {}
    for stored in schedule.stored:
        root, _ = stored.root()
        if root.space != "arena":
            continue
        _, first, last = spans.get(id(root), (root, len(schedule.actions), -1))
        if stored.first >= 0:
            first = min(first, stored.first)
        spans[id(root)] = (root, first, max(last, stored.last, first))
    return list(spans.values())


class _Constants:
    """The constants and parameters to pack, each once for all kernels that want it alike."""

    def __init__(self, kernels: KernelFacts, graph: Graph) -> None:
        self.layout, self._graph = kernels.layout, graph
        self.packed: list[PackedConstant] = []
        # Parameters that steps write come first, as the schedule numbers them.
        self.parameters = [_plain(name) for name in graph.stored if name in graph.parameters]
        self._known: dict[PackedConstant, Ref] = {}

    def ref(self, constant: PackedConstant) -> Ref:
        if constant not in self._known:
            is_parameter = constant.value in self._graph.parameters
            forms = self.parameters if is_parameter else self.packed
            space = "parameter" if is_parameter else "constant"
            self._known[constant] = Ref(space, len(forms), 0)
            forms.append(constant)
        return self._known[constant]


def _plain(value: str) -> PackedConstant:
    return PackedConstant(value, 0.0, None, None, None, "", "")


def _kernel_step(
    action: Action, position: int, addresses: _Addresses, constants: _Constants
) -> KernelStep:
    assert action.spec is not None  # of kind "kernel"
    assert action.cost is not None
    bindings: list[Binding] = []
    for role, operand in action.args:
        if isinstance(operand, Place):
            bindings.append(Binding(role, addresses.ref(operand)))
            continue
        if action.spec.kind == HOST:
            bindings.append(Binding(role, constants.ref(_plain(operand.value))))
            continue
        constant = PackedConstant(
            operand.value, operand.fill, operand.reshape, operand.permute,
            action.spec, action.cost.implementation, role,
            constants.layout(action.spec, action.cost.implementation, role),
            operand.numbers, operand.grid, operand.affine,
        )  # fmt: skip
        bindings.append(Binding(role, constants.ref(constant)))
    return KernelStep(
        action.node,
        action.spec,
        action.cost.implementation,
        tuple(bindings),
        addresses.scratch[position][1] if position in addresses.scratch else 0,
        action.cost.cost_ns,
        _written(action, addresses),
        action.in_place,
    )


def _written(action: Action, addresses: _Addresses) -> tuple[Written, ...]:
    return tuple(
        Written(stored.value, addresses.ref(Place(stored)), stored.desc)
        for stored in action.completes
    )


def _step(action: Action, position: int, addresses: _Addresses, constants: _Constants) -> Step:
    if action.kind == "kernel":
        return _kernel_step(action, position, addresses, constants)
    assert action.target is not None  # fills and copies have one
    target = addresses.ref(action.target)
    written = _written(action, addresses)
    if action.kind == "fill":
        return FillStep(action.node, target, action.count, action.value, written)
    if isinstance(action.source, ConstantArg):
        source = constants.ref(_plain(action.source.value))
        return CopyStep(action.node, source, target, action.nbytes, written)
    assert action.source is not None
    return CopyStep(action.node, addresses.ref(action.source), target, action.nbytes, written)


def _blocks(schedule: Schedule, addresses: _Addresses) -> tuple[ArenaBlock, ...]:
    """Return what lies where in the arena, its life in steps instead of actions."""
    kept = [not action.dropped for action in schedule.actions]
    before = list(accumulate(kept, initial=0))
    final = len(kept) - 1

    def span(first: int, last: int) -> tuple[int, int]:
        # A copy that was dropped takes no step; what it wrote lives from the next one on.
        begin = min(before[min(first, final)], before[-1] - 1)
        return begin, max(before[min(last, final) + 1] - 1, begin)

    members: dict[int, list[ArenaTensor]] = {key: [] for key in addresses.families}
    for stored in schedule.stored:
        root, offset = stored.root()
        if root.space == "arena":
            life, base = addresses.families[id(root)]
            first = stored.first if stored.first >= 0 else life.first
            tensor = ArenaTensor(
                stored.value, stored.desc, base + offset, *span(first, max(stored.last, first))
            )
            members[id(root)].append(tensor)
    blocks = [
        ArenaBlock(base, life.nbytes, *span(life.first, life.last), tuple(members[key]))
        for key, (life, base) in addresses.families.items()
    ]
    for position, (life, base) in addresses.scratch.items():
        node = schedule.actions[position].node
        blocks.append(ArenaBlock(base, life.nbytes, *span(position, position), (), node))
    return tuple(blocks)


def lower(plan: Plan, kernels: KernelFacts) -> Program:
    """Return the program of a plan.

    Args:
        plan: what was decided.
        kernels: what is known of its kernels once they are created.

    Raises:
        PlanError: the plan contradicts itself.
    """
    schedule = make_schedule(plan)
    addresses = _Addresses(schedule, kernels)
    constants = _Constants(kernels, plan.graph)
    steps = tuple(
        _step(action, position, addresses, constants)
        for position, action in enumerate(schedule.actions)
        if not action.dropped
    )
    return Program(
        plan.graph.inputs,
        plan.graph.outputs,
        steps,
        addresses.total,
        addresses.bound,
        tuple(constants.packed),
        _blocks(schedule, addresses),
        plan.split,
        tuple(constants.parameters),
        tuple(name for name in plan.graph.stored if name in plan.graph.states),
    )
