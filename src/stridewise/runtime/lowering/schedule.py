"""From a plan to ordered actions over stored tensors, before anything has an address.

A *stored tensor* is a value in one storage format; a value that the plan reorders has several.
Stored tensors may share bytes: a view lies in what it is a view of, a piece of a concat is
produced inside it, a result may overwrite an operand that has no later consumer. Whether sharing
is safe can be told only here, where all readers are known; where it is not, a copy is made.
"""

from __future__ import annotations

from dataclasses import field
from functools import cached_property
from typing import Literal

from stridewise.classes import dataclass
from stridewise.errors import PlanError
from stridewise.graph import Node
from stridewise.ops.geometry import stored as stored_desc
from stridewise.planner.plan import Reorder
from stridewise.planner.problem.candidates import Candidate
from stridewise.planning import Plan
from stridewise.program import (
    Space,
    caller_label,
    constant_label,
    operand_label,
    piece_label,
    reorder_label,
    update_label,
)
from stridewise.targets.cost import KernelCost
from stridewise.targets.kernels import Alias, Arg, KernelSpec
from stridewise.tensor import Grid, Storage, TensorDesc

__all__ = [
    "Action",
    "ConstantArg",
    "Place",
    "Schedule",
    "Stored",
    "make_schedule",
]

_FOREVER = 1 << 60


@dataclass(slots=True, eq=False)
class Stored:
    """A value in one storage format.

    Attributes:
        value: the value.
        desc: Origin and Storage.
        first: the first action that writes it; -1 for none.
        last: the last action that touches it.
        parent: the stored tensor that it lies in, and where, in bytes.
        space: where the root of a family of shared bytes lies.
        index: which input, output, parameter or state; of parameters and states, among those that
            the graph updates.
    """

    value: str
    desc: TensorDesc
    first: int = -1
    last: int = -1
    parent: tuple[Stored, int] | None = None
    space: Space = "arena"
    index: int = 0

    def root(self) -> tuple[Stored, int]:
        """Return the tensor whose memory this one lies in, and where, in bytes."""
        stored, offset = self, 0
        while stored.parent is not None:
            stored, step = stored.parent
            offset += step
        if stored is not self:
            self.parent = (stored, offset)  # long chains are walked once
        return stored, offset

    def overlaps(self, other: Stored) -> bool:
        """Return whether both share bytes."""
        root, offset = self.root()
        other_root, other_offset = other.root()
        return (
            root is other_root
            and other_offset < offset + self.desc.nbytes
            and offset < other_offset + other.desc.nbytes
        )


@dataclass(frozen=True, slots=True)
class Place:
    """A stored tensor from an offset in bytes on."""

    stored: Stored
    offset: int = 0


@dataclass(frozen=True, slots=True)
class ConstantArg:
    """A constant of the graph, or (``value == ""``) numbers, or ``fill`` everywhere."""

    value: str
    fill: float = 0.0
    reshape: tuple[int, ...] | None = None
    permute: tuple[int, ...] | None = None
    numbers: tuple[float, ...] = ()
    grid: Grid | None = None
    affine: tuple[float, float] | None = None


@dataclass(slots=True, eq=False)
class Action:
    """One step.

    Attributes:
        node: the node, or what the step is for.
        kind: a primitive, a fill of the target, or a copy from ``source`` to ``target``.
        spec: the primitive.
        cost: its implementation and predicted time.
        args: its arguments by role.
        source: of a copy.
        target: of a copy or a fill.
        nbytes: of a copy.
        count: elements of a fill.
        value: of a fill.
        completes: stored tensors that are whole afterwards.
        dropped: a copy that sharing made needless.
        in_place: roles of results, each with the role of the operand that it overwrites.
    """

    node: str
    kind: Literal["kernel", "fill", "copy"]
    spec: KernelSpec | None = None
    cost: KernelCost | None = None
    args: tuple[tuple[str, Place | ConstantArg], ...] = ()
    source: Place | ConstantArg | None = None
    target: Place | None = None
    nbytes: int = 0
    count: int = 0
    value: float = 0.0
    completes: tuple[Stored, ...] = ()
    dropped: bool = False
    in_place: tuple[tuple[str, str], ...] = ()

    def declare(self, result: Stored, operand: Stored) -> None:
        """Note that the role of a result overwrites that of an operand, where it has both."""
        whole = [(role, place) for role, place in self.args if isinstance(place, Place)]
        read = [role for role, place in whole if place.stored is operand and not _is_result(role)]
        written = [role for role, place in whole if place.stored is result and _is_result(role)]
        self.in_place = (*self.in_place, *((w, r) for w in written for r in read))

    def reads(self) -> list[Stored]:
        """Return the stored tensors that it reads, once per argument."""
        places = [place for role, place in self.args if not _is_result(role)]
        places += [] if self.source is None else [self.source]
        return [place.stored for place in places if isinstance(place, Place)]

    def writes(self) -> list[Stored]:
        """Return the stored tensors that it writes."""
        places = [place for role, place in self.args if _is_result(role)]
        places += [] if self.target is None else [self.target]
        return [place.stored for place in places if isinstance(place, Place)]


def _is_result(role: str) -> bool:
    """Return whether a role is one that kernels write: those of fallback kernels have numbers."""
    return role == "dst" or role.startswith("out")


@dataclass(frozen=True, slots=True)
class _Overwrite:
    """A result that may overwrite an operand: by choice, or instead of a copy."""

    source: Stored
    result: Stored
    position: int
    copy: Action | None


@dataclass(slots=True)
class Schedule:
    """All actions in order, and all stored tensors."""

    actions: list[Action] = field(default_factory=list[Action])
    stored: list[Stored] = field(default_factory=list[Stored])


class _Families:
    """Which stored tensors lie in the same memory, and which actions read each."""

    def __init__(self, schedule: Schedule) -> None:
        self._members: dict[int, list[Stored]] = {}
        self._readers: dict[int, list[tuple[int, Action]]] = {}
        self.actions: dict[str, list[Action]] = {}
        """The actions of each node."""
        for stored in schedule.stored:
            self.of(stored).append(stored)
        for position, action in enumerate(schedule.actions):
            self.actions.setdefault(action.node, []).append(action)
            for stored in action.reads():
                self._readers.setdefault(id(stored), []).append((position, action))

    def of(self, stored: Stored) -> list[Stored]:
        """Return all tensors of the family of a tensor."""
        return self._members.setdefault(id(stored.root()[0]), [])

    def overlapping(self, stored: Stored) -> list[Stored]:
        """Return the tensors that share bytes with a tensor."""
        return [item for item in self.of(stored) if item.overlaps(stored)]

    def join(self, child: Stored, parent: Stored) -> None:
        """Let a tensor without a parent lie at the first byte of another one."""
        members = self.of(child)
        child.parent = (parent, 0)
        self.of(parent).extend(members)

    def last_read(self, stored: Stored, copy: Action) -> int:
        """Return the last action but a copy that reads a byte of a tensor; -1 for none."""
        positions = (
            position
            for item in self.overlapping(stored)
            for position, action in self._readers.get(id(item), ())
            if not action.dropped and action is not copy
        )
        return max(positions, default=-1)


@dataclass(frozen=True, slots=True)
class _Sources:
    """A node and its inputs as they are stored; None for constants and absent ones."""

    node: Node
    stored: list[Stored | None]


class _Scheduler:
    def __init__(self, plan: Plan) -> None:
        self.plan, self.graph = plan, plan.graph
        self.outputs = frozenset(plan.graph.outputs)
        self.schedule = Schedule()
        self.by_key: dict[tuple[str, str], Stored] = {}
        self.pending: dict[tuple[str, str], Reorder] = {
            self.key(reorder.tensor, reorder.target): reorder for reorder in plan.reorders
        }
        self.requests: list[_Overwrite] = []
        self.held: dict[str, _Sources] = {}
        self.stored: dict[str, Stored] = {}
        self.updates: list[tuple[Stored, Stored, Action]] = []

    @cached_property
    def families(self) -> _Families:
        """The families once all actions are known; granting joins them."""
        return _Families(self.schedule)

    def key(self, value: str, way: Storage) -> tuple[str, str]:
        return value, self.plan.storages.key(value, way)

    def new(self, value: str, way: Storage) -> Stored:
        stored = Stored(value, stored_desc(self.graph.value(value), way))
        self.by_key[self.key(value, way)] = stored
        self.schedule.stored.append(stored)
        return stored

    def get(self, value: str, way: Storage) -> Stored:
        """Return a value in a storage, reordering it first where the plan says so."""
        key = self.key(value, way)
        if key not in self.by_key:
            reorder = self.pending.get(key)
            if reorder is None:
                raise PlanError.at(
                    f"value {value!r}", expected=f"storage {way}", found="none planned"
                )
            source, target = self.get(value, reorder.source), self.new(value, reorder.target)
            spec = self.plan.target.reorder_spec(
                self.graph.value(value), reorder.source, reorder.target
            )
            cost = KernelCost(reorder.cost_ns, reorder.implementation, "cached")
            args = (("src", Place(source)), ("dst", Place(target)))
            self.emit(
                Action(reorder_label(reorder), "kernel", spec, cost, args, completes=(target,))
            )
        return self.by_key[key]

    def emit(self, action: Action) -> None:
        position = len(self.schedule.actions)
        self.schedule.actions.append(action)
        written = action.writes()
        for stored in (*action.reads(), *written):
            stored.last = max(stored.last, position)
        for stored in written:
            if stored.first < 0:
                stored.first = position

    def copy(self, why: str, source: Place | ConstantArg, target: Place, nbytes: int) -> Action:
        action = Action(why, "copy", source=source, target=target, nbytes=nbytes)
        self.emit(action)
        return action

    # --- nodes ---

    def node(self, node: Node, chosen: Candidate) -> None:
        option = chosen.option
        inputs = [
            self.get(name, way) if way is not None and name not in self.held else None
            for name, way in zip(node.inputs, option.needs, strict=True)
        ]
        if option.held:
            self.held[node.outputs[0]] = _Sources(node, inputs)
            return
        outputs = [
            self.new(name, way) for name, way in zip(node.outputs, option.makes, strict=True)
        ]
        if option.fill is not None:
            target = Place(outputs[0])
            fill = option.fill
            self.emit(Action(node.name, "fill", target=target, count=fill.count, value=fill.value))
        overwrites = [self.share(node, alias, inputs, outputs) for alias in option.aliases]
        for call, cost in zip(option.calls, chosen.costs, strict=True):
            sources = _Sources(node, inputs)
            args = tuple((arg.role, self.argument(arg, sources, outputs)) for arg in call.args)
            action = Action(node.name, "kernel", call.spec, cost, args)
            for place in dict.fromkeys(place for _, place in args if isinstance(place, Place)):
                roles = {_is_result(role) for role, other in args if other == place}
                if len(roles) > 1:  # it reads and writes the very same bytes
                    action.declare(place.stored, place.stored)
            self.emit(action)
        last = len(self.schedule.actions) - 1
        for source, result, copy in (found for found in overwrites if found is not None):
            self.requests.append(_Overwrite(source, result, last, copy))
        if last >= 0:
            action = self.schedule.actions[last]
            action.completes = (*action.completes, *outputs)

    def argument(self, arg: Arg, sources: _Sources, outputs: list[Stored]) -> Place | ConstantArg:
        operand = arg.operand
        if operand.side == "fill":
            return ConstantArg("", float(operand.index))
        if operand.side == "numbers":
            return ConstantArg("", numbers=operand.numbers)
        if operand.side == "ahead":
            sources = self.held[sources.node.inputs[0]]
        stored = (outputs if operand.side == "out" else sources.stored)[operand.index]
        if stored is None:
            name = sources.node.inputs[operand.index]
            return ConstantArg(name, 0.0, arg.reshape, arg.permute, (), arg.grid, arg.affine)
        return Place(stored, arg.offset * stored.desc.dtype.itemsize)

    def share(
        self, node: Node, alias: Alias, inputs: list[Stored | None], outputs: list[Stored]
    ) -> tuple[Stored, Stored, Action | None] | None:
        """Share bytes now, where it is sure to be safe; else return what may be overwritten."""
        source, result = inputs[alias.input], outputs[alias.output]
        if source is None:
            raise PlanError.at(
                f"node {node.name!r}", expected="shared bytes of tensors", found="a constant"
            )
        offset = alias.offset * source.desc.dtype.itemsize
        if alias.kind == "view":
            result.parent = (source, offset)
            return None
        if alias.kind == "place":
            if source.parent is None and source.space == "arena":
                source.parent = (result, offset)
            else:
                why = piece_label(node.name, source.value)
                self.copy(why, Place(source), Place(result, offset), source.desc.nbytes)
            return None
        copy = None
        if alias.kind == "accumulate":
            why = operand_label(node.name, source.value)
            copy = self.copy(why, Place(source), Place(result), source.desc.nbytes)
        return source, result, copy

    # --- the caller's memory ---

    def caller_inputs(self) -> None:
        for index, name in enumerate(self.graph.inputs):
            stored = self.new(name, Storage(self.plan.input_formats[name]))
            stored.space, stored.index = "input", index

    def mutables(self) -> None:
        """Place the parameters and states that the graph updates in memory of their own."""
        for name in self.graph.stored:
            stored = self.stored[name] = self.new(name, Storage(self.plan.input_formats[name]))
            stored.space = "state" if name in self.graph.states else "parameter"
            of_space = [item for item in self.stored.values() if item.space == stored.space]
            stored.index = len(of_space) - 1

    def reorder_outputs(self, node: Node) -> None:
        """Store outputs as the caller takes them, so that nothing keeps them as they were made."""
        for name in node.outputs:
            if name in self.outputs:
                self.get(name, Storage(self.plan.output_formats[name]))

    def caller_outputs(self) -> None:
        """Let outputs be produced in the caller's memory; copy where they cannot be."""
        for index, name in enumerate(self.graph.outputs):
            value = self.graph.value(name)
            way = Storage(self.plan.output_formats[name])
            desc = stored_desc(value, way)
            target = Stored(name, desc, space="output", index=index)
            if self.graph.is_packed(name):
                source = ConstantArg(name)
                self.copy(constant_label(name), source, Place(target), desc.nbytes)
                continue
            stored = self.get(name, way)
            root, offset = stored.root()
            if root.space == "arena" and offset == 0 and root.desc.nbytes == desc.nbytes:
                root.space, root.index = "output", index
                stored.last = _FOREVER
            else:
                self.copy(caller_label(name), Place(stored), Place(target), desc.nbytes)

    # --- updates ---

    def copy_updates(self) -> None:
        """Copy what parameters and states become to where they live, behind all that reads them."""
        sources: dict[str, Place | ConstantArg] = {}
        for name, value in self.graph.updates.items():
            target = self.stored[name]
            if self.graph.is_packed(value):
                sources[name] = ConstantArg(value)
                continue
            stored = self.get(value, Storage(self.plan.output_formats[value]))
            root, offset = stored.root()
            if root.space in ("parameter", "state") and (root, offset) != (target, 0):
                # What it is a view of may be updated first.
                aside = Stored(value, stored.desc)
                self.schedule.stored.append(aside)
                self.copy(update_label(value), Place(stored), Place(aside), stored.desc.nbytes)
                stored = aside
            sources[name] = Place(stored)
        for name, source in sources.items():
            target = self.stored[name]
            if isinstance(source, Place) and source.stored.root() == (target, 0):
                continue
            action = self.copy(update_label(name), source, Place(target), target.desc.nbytes)
            if isinstance(source, Place):
                self.updates.append((source.stored, target, action))

    def grant_updates(self) -> None:
        """Let results be computed where they are kept, if nothing reads the old value after."""
        for result, target, copy in self.updates:
            root, offset = result.root()
            if root.space != "arena" or offset != 0 or root.desc.nbytes != target.desc.nbytes:
                continue
            first = min(item.first for item in self.families.of(root) if item.first >= 0)
            last = self.families.last_read(target, copy)
            if last < first or (last == first and self.overwrites(root, target, first)):
                self.families.join(root, target)
                copy.dropped = True

    def overwrites(self, root: Stored, target: Stored, position: int) -> bool:
        """Return whether an action may overwrite a state by what it writes, and let it."""
        readers = [s for s in self.schedule.actions[position].reads() if s.overlaps(target)]
        for request in self.requests:
            if (
                request.source is not target
                or request.result.root() != (root, 0)
                or len(readers) != 1
            ):
                continue
            action = self.schedule.actions[position]
            if request.copy is action:
                action.dropped = True
                return True
            if request.copy is None and request.position == position:
                self.declare(request)
                return True
        return False

    # --- overwriting ---

    def grant_requests(self) -> None:
        """Let results overwrite operands, each of them one."""
        granted: set[int] = set()
        for request in self.requests:
            if id(request.result) in granted or not self.grant(request):
                continue
            granted.add(id(request.result))
            if request.copy is not None:
                request.copy.dropped = True
            else:
                self.declare(request)

    def declare(self, request: _Overwrite) -> None:
        """Note in all actions of the node which roles share bytes now."""
        last = self.schedule.actions[request.position]
        for action in self.families.actions[last.node]:
            if action.kind == "kernel":
                action.declare(request.result, request.source)

    def grant(self, request: _Overwrite) -> bool:
        source, result, position = request.source, request.result, request.position
        root, _ = source.root()
        if root.space != "arena" or source.desc.nbytes != result.desc.nbytes:
            return False
        if root is result.root()[0] or not self.is_dead(request):
            return False
        if result.parent is None and result.space == "arena":
            self.families.join(result, source)
            return True
        is_kept = result.root()[0].space in ("parameter", "state")
        if source.parent is None and not is_kept and self.is_unborn(result, position):
            self.families.join(source, result)
            return True
        return False

    def is_dead(self, request: _Overwrite) -> bool:
        """Return whether nothing needs the operand's bytes but the argument to be overwritten."""
        source, position = request.source, request.position
        if any(other.last > position for other in self.families.overlapping(source)):
            return False
        readers = [s for s in self.schedule.actions[position].reads() if s.overlaps(source)]
        # Without its copy, a sum starts from the operand; any other argument would see it change.
        own = 0 if request.copy is not None else 1
        return len(readers) <= own and all(stored is source for stored in readers)

    def is_unborn(self, result: Stored, position: int) -> bool:
        """Return whether the result's bytes hold nothing before this action and its copy."""
        return all(
            other is result or other.first < 0 or other.first >= position - 1
            for other in self.families.overlapping(result)
        )


def make_schedule(plan: Plan) -> Schedule:
    """Return the actions of a plan in order, needless copies left out.

    Raises:
        PlanError: the plan contradicts itself.
    """
    scheduler = _Scheduler(plan)
    scheduler.caller_inputs()
    scheduler.mutables()
    for node, decision in zip(plan.graph.nodes, plan.decisions, strict=True):
        scheduler.node(node, decision.chosen)
        scheduler.reorder_outputs(node)
    scheduler.caller_outputs()
    scheduler.copy_updates()
    scheduler.grant_updates()
    scheduler.grant_requests()
    return scheduler.schedule
