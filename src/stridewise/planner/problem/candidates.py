"""Candidates: every way that a target has to compute each node, with its cost.

The target says which storage formats and kernels there are, and the oracle knows the times. Formats
that put the same bytes in the same places of a tensor count as one, so that free changes of format
never look like work.

Networks repeat themselves, so whatever does not depend on names is worked out once: formats for
values of the same type and Origin, options for nodes of the same signature.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import prod

from stridewise.classes import dataclass
from stridewise.errors import FormatError, ModelError
from stridewise.formats import Format
from stridewise.graph import Graph, Node, Refusal, Value
from stridewise.ops.geometry import user_format
from stridewise.planner.problem.context import NodeContext, Pairs, Storages, placing
from stridewise.planner.problem.fallback_kernel import host_option, host_refusal
from stridewise.planner.problem.io_formats import Boundary, boundary
from stridewise.planner.problem.weight_limit import within_weight_limit
from stridewise.targets.cost import KernelCost, KernelOracle, Progress
from stridewise.targets.kernels import KernelOption, KernelSpec
from stridewise.targets.target import Target
from stridewise.tensor import Storage

__all__ = ["Candidate", "Candidates", "Move", "Offers", "enumerate_candidates", "user_moves"]

Move = tuple[str, str, str]
"""A reorder: value, and the names of its formats before and after."""

_MOST_BYTES = 1 << 47
"""More than any x86-64 process can map."""

_COPY_BYTES_PER_NS = 10.0
"""What fills and whole-tensor copies reach; they are too rare to be measured one by one."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """One way to compute a node.

    Attributes:
        option: formats and calls.
        costs: one for each call, the cheapest implementation there is.
        cost_ns: the whole node, fills and copies included.
    """

    option: KernelOption
    costs: tuple[KernelCost, ...]
    cost_ns: float

    @property
    def algorithm(self) -> str:
        """What the report calls it."""
        return self.option.algorithm

    @property
    def implementation(self) -> str:
        """The library's names of the kernels, or why nothing runs."""
        if self.option.held:
            return "its reader's kernel"
        names = dict.fromkeys(cost.implementation or "library's choice" for cost in self.costs)
        return ", ".join(names) or "no work"


@dataclass(frozen=True, slots=True)
class Candidates:
    """All that the solver chooses from.

    Attributes:
        storages: names of formats of equal bytes.
        nodes: the candidates of each node.
        reorders: the cost of each reorder that could help: (value, from, to).
        refusals: formats and kernels that are not offered, and why.
        user_reorders: the cost of each reorder between the user's format and one of a candidate.
    """

    storages: Storages
    nodes: Mapping[str, tuple[Candidate, ...]]
    reorders: Mapping[Move, KernelCost]
    refusals: tuple[Refusal, ...]
    user_reorders: Mapping[Move, KernelCost]


def _check_tensors(graph: Graph, target: Target) -> None:
    computed: list[tuple[str, tuple[str, ...]]] = [
        (
            f"node {node.name!r} ({node.op})",
            tuple(name for name in node.inputs if name and not graph.is_packed(name))
            + node.outputs,
        )
        for node in graph.nodes
    ]
    # An output may be a constant, which no node computes. Inputs without a reader may be of any
    # type, but the caller has to make them.
    for where, names in (*computed, ("outputs", graph.sinks)):
        for name in names:
            value = graph.values[name]
            if value.dtype.name not in target.dtypes and not target.has_host:
                raise ModelError.at(
                    f"{where}, tensor {name!r}",
                    expected=f"dtype {' or '.join(sorted(target.dtypes))}",
                    found=value.dtype.name,
                    fix="export the model in float32",
                )
            if 0 in value.shape and not target.has_host:
                raise ModelError.at(
                    f"{where}, tensor {name!r}",
                    expected="a tensor with elements",
                    found=str(value.type),
                    fix="give larger shapes, or leave out nodes whose operands are empty",
                )
            _check_size(where, value)
    for name in graph.inputs:
        _check_size("inputs", graph.values[name])


def _check_size(where: str, value: Value) -> None:
    # NumPy makes no array without elements, either, whose other extents are too large.
    if prod(extent or 1 for extent in value.shape) * value.dtype.itemsize > _MOST_BYTES:
        raise ModelError.at(
            f"{where}, tensor {value.name!r}",
            expected="a tensor that fits into the address space",
            found=str(value.type),
            fix="give smaller shapes",
        )


def _check_edge(graph: Graph, target: Target, edge: Boundary) -> None:
    """Raise FormatError where a reorder at the edge would be of a dtype that has none."""
    for side, table in (("input", edge.inputs), ("output", edge.outputs)):
        for name, formats in table.items():
            value = graph.values[name]
            if value.dtype.name in target.dtypes or user_format(value) in formats:
                continue
            raise FormatError.at(
                f"{side} {name!r}",
                expected=f"the format {user_format(value)}, as {value.dtype} has no reorders",
                found=", ".join(map(str, formats)),
                fix="leave it out",
            )


def _options(
    graph: Graph, target: Target, storages: Storages, refusals: list[Refusal]
) -> dict[str, tuple[KernelOption, ...]]:
    """Return the options of each node; nodes of one signature share the tuple."""
    places, pairs = placing(graph), Pairs.of(graph, target)
    found: dict[str, tuple[KernelOption, ...]] = {}
    known: dict[Hashable, tuple[tuple[KernelOption, ...], tuple[Refusal, ...]]] = {}
    for node in graph.nodes:
        context = NodeContext(graph, storages, node, places, pairs)
        signature = context.signature()
        if signature not in known:
            known[signature] = _offered(context, target)
        options, against = known[signature]
        refusals += (replace(refusal, subject=node.name) for refusal in against)
        if not options:
            raise ModelError.at(
                f"node {node.name!r} ({node.op})",
                expected=f"an operator that target {target.name} has a kernel for",
                found="; ".join(refusal.reason for refusal in against) or "none",
                fix="replace the operator, or fold it into a constant",
            )
        found[node.name] = options
    return found


def _offered(
    context: NodeContext, target: Target
) -> tuple[tuple[KernelOption, ...], tuple[Refusal, ...]]:
    """Return the options of a node, that of the host where there is no other, and refusals."""
    items = tuple(target.options(context))
    options = tuple(item for item in items if not isinstance(item, Refusal))
    against = tuple(item for item in items if isinstance(item, Refusal))
    if options or not target.has_host:
        return options, against
    refusal = host_refusal(context.node, [item.reason for item in against])
    return (host_option(context),), (*against, refusal)


def _wanted_reorders(
    graph: Graph,
    storages: Storages,
    options: Mapping[str, tuple[KernelOption, ...]],
    edge: Boundary,
) -> list[tuple[str, str, str]]:
    """Return every (value, from, to) that some option yields and another one needs."""
    made: dict[str, dict[str, None]] = {}
    needed: dict[str, dict[str, None]] = {}

    def note(
        found: dict[str, dict[str, None]], name: str, ways: Iterable[Storage | Format | None]
    ) -> None:
        keys = found.setdefault(name, {})
        for stored in ways:
            if stored is not None:
                keys[storages.key(name, stored)] = None

    for name, formats in edge.inputs.items():
        note(made, name, formats)
    for name, formats in edge.outputs.items():
        note(needed, name, formats)
    for node in graph.nodes:
        for position, name in enumerate(node.outputs):
            note(made, name, [option.makes[position] for option in options[node.name]])
        for position, name in enumerate(node.inputs):
            if name:
                note(needed, name, [option.needs[position] for option in options[node.name]])
    return [
        (name, source, target)
        for name, targets in needed.items()
        for target in targets
        for source in made.get(name, ())
        if source != target
    ]


def user_moves(
    graph: Graph, storages: Storages, node: Node, option: KernelOption
) -> Iterator[Move]:
    """Yield the reorders around a node whose surroundings are in the user's format, each once."""
    own = {name: user_format(graph.values[name]) for name in (*node.inputs, *node.outputs) if name}
    needed: dict[Move, None] = {}
    for name, stored in zip(node.inputs, option.needs, strict=True):
        if stored is not None:
            needed[name, storages.key(name, own[name]), storages.key(name, stored)] = None
    for name, stored in zip(node.outputs, option.makes, strict=True):
        needed[name, storages.key(name, stored), storages.key(name, own[name])] = None
    yield from (move for move in needed if move[1] != move[2])


def _best(known: tuple[KernelCost, ...] | Refusal | None) -> KernelCost | None:
    return known[0] if isinstance(known, tuple) and known else None


class _Prices:
    """Turns options into candidates; nodes of the same options and costs share them."""

    def __init__(
        self,
        graph: Graph,
        target: Target,
        known: Mapping[KernelSpec, tuple[KernelCost, ...] | Refusal],
    ) -> None:
        self._graph, self._rule, self._costs = graph, target.library, known
        self._kept = frozenset((*graph.inputs, *graph.stored, *graph.sinks))
        self._last = {name: node.name for node in graph.nodes for name in node.inputs}
        self._known: dict[Hashable, tuple[tuple[Candidate, ...], tuple[Refusal, ...]]] = {}

    def candidates(
        self, node: Node, options: tuple[KernelOption, ...], refusals: list[Refusal]
    ) -> tuple[Candidate, ...]:
        """Return the options of a node with their costs."""
        extra = tuple([self._extra_ns(node, option) for option in options])
        key = id(options), extra
        if key not in self._known:
            reasons: list[Refusal] = []
            self._known[key] = self._price(node, options, extra, reasons), tuple(reasons)
        found, against = self._known[key]
        refusals += (replace(refusal, subject=node.name) for refusal in against)
        return found

    def _dies(self, node: Node, name: str) -> bool:
        """Return whether no node reads a value after a node, and the node reads it only once."""
        if name in self._kept or node.inputs.count(name) > 1:
            return False
        return self._last[name] == node.name

    def _extra_ns(self, node: Node, option: KernelOption) -> float:
        """Return the cost of what is no kernel: fills, and copies of operands still needed."""
        nbytes = 4.0 * option.fill.count if option.fill else 0.0
        for alias in option.aliases:
            name = node.inputs[alias.input]
            if alias.kind == "accumulate" and not self._dies(node, name):
                value, element = self._graph.values[name], option.needs[alias.input]
                dtype = value.dtype if element is None else element.element(value.dtype)
                nbytes += 2.0 * dtype.itemsize * prod(value.shape)
        return nbytes / _COPY_BYTES_PER_NS

    def _price(
        self,
        node: Node,
        options: Sequence[KernelOption],
        extra: Sequence[float],
        refusals: list[Refusal],
    ) -> tuple[Candidate, ...]:
        found: list[Candidate] = []
        for option, extra_ns in zip(options, extra, strict=True):
            costs = [_best(self._costs.get(call.spec)) for call in option.calls]
            complete = tuple(cost for cost in costs if cost is not None)
            if len(complete) != len(costs):
                reason = f"{option.algorithm}: the library has no such kernel"
                refusals.append(Refusal(self._rule, node.name, reason))
                continue
            total = sum(cost.cost_ns for cost in complete) + extra_ns
            found.append(Candidate(option, complete, total))
        # What goes only with a certain kernel of another node is no reason to do without others.
        usual = [c for c in found if not c.option.is_joint]
        fast = [c for c in usual if not any(cost.is_reference for cost in c.costs)]
        slow = [c for c in usual if c not in fast] if fast else []
        for candidate in slow:
            reason = f"{candidate.algorithm}: the library has only its naive reference loops"
            refusals.append(Refusal(self._rule, node.name, reason))
        if not usual:
            raise ModelError.at(
                f"node {node.name!r} ({node.op})",
                expected="a kernel of the library for these shapes",
                found="none in any format",
                fix="run `stridewise info` and check the library's version",
            )
        return tuple(c for c in found if c not in slow)


@dataclass(frozen=True, slots=True)
class _Moving:
    """The reorders that may help.

    Attributes:
        wanted: from a format that some option makes to one that another needs.
        around: between the user's format and one of a candidate.
        groups: for each of both, the values that one kernel reorders, and the formats.
        specs: the kernel of each group.
    """

    wanted: tuple[Move, ...]
    around: tuple[Move, ...]
    groups: Mapping[Move, tuple[int, str, str]]
    specs: Mapping[tuple[int, str, str], KernelSpec]

    @classmethod
    def of(
        cls,
        graph: Graph,
        target: Target,
        storages: Storages,
        options: Mapping[str, tuple[KernelOption, ...]],
        edge: Boundary,
    ) -> _Moving:
        """Return the reorders between the formats of all options."""
        wanted = tuple(_wanted_reorders(graph, storages, options, edge))
        around = tuple(
            dict.fromkeys(
                move
                for node in graph.nodes
                for option in options[node.name]
                for move in user_moves(graph, storages, node, option)
            )
        )
        groups = {move: (storages.group(move[0]), move[1], move[2]) for move in (*wanted, *around)}
        specs = {
            group: target.reorder_spec(
                graph.values[name], storages.storage(name, source), storages.storage(name, goal)
            )
            for group, (name, source, goal) in {g: move for move, g in groups.items()}.items()
        }
        return cls(wanted, around, groups, specs)

    def priced(
        self, known: Mapping[KernelSpec, tuple[KernelCost, ...] | Refusal]
    ) -> dict[Move, KernelCost]:
        """Return the cost of each reorder that the library has."""
        best = {group: _best(known.get(spec)) for group, spec in self.specs.items()}
        costs = {move: best[group] for move, group in self.groups.items()}
        return {move: cost for move, cost in costs.items() if cost is not None}


def _specs(
    options: Mapping[str, tuple[KernelOption, ...]], moving: _Moving
) -> tuple[KernelSpec, ...]:
    """Return all kernels that options call and reorders need, each once."""
    distinct = {id(group): group for group in options.values()}.values()
    calls = [call.spec for group in distinct for option in group for call in option.calls]
    return tuple(dict.fromkeys((*calls, *moving.specs.values())))


def _hosted(
    graph: Graph,
    storages: Storages,
    options: Mapping[str, tuple[KernelOption, ...]],
    known: Mapping[KernelSpec, tuple[KernelCost, ...] | Refusal],
    refusals: list[Refusal],
) -> Mapping[str, tuple[KernelOption, ...]]:
    """Return the options, those of the host where the library lacks the kernels of all others."""
    changed: dict[str, tuple[KernelOption, ...]] = {}
    instead: dict[int, tuple[KernelOption, ...]] = {}
    for node in graph.nodes:
        group = options[node.name]
        usual = [option for option in group if not option.is_joint]
        if any(all(_best(known.get(c.spec)) for c in option.calls) for option in usual):
            continue
        reason = "the library has no kernel for these shapes in any format"
        refusals.append(host_refusal(node, [reason]))
        if id(group) not in instead:
            context = NodeContext(graph, storages, node, {}, Pairs({}, {}))
            instead[id(group)] = (host_option(context),)
        changed[node.name] = instead[id(group)]
    return {**options, **changed} if changed else options


@dataclass(frozen=True, slots=True, eq=False)
class Offers:
    """What a target offers for a derived graph, for any costs.

    Attributes:
        graph: the graph; its values know their Origin.
        target: formats and kernels on offer.
        edge: formats in which the caller gives inputs and takes outputs.
        storages: names of formats of equal bytes.
        options: the options of each node.
        moving: the reorders that may help.
        refusals: formats and kernels that are not offered, and why.
    """

    graph: Graph
    target: Target
    edge: Boundary
    storages: Storages
    options: Mapping[str, tuple[KernelOption, ...]]
    moving: _Moving
    refusals: tuple[Refusal, ...]

    @classmethod
    def of(cls, graph: Graph, target: Target, edge: Boundary | None = None) -> Offers:
        """Return the offers for a graph.

        Args:
            graph: its values know their Origin.
            target: formats and kernels on offer.
            edge: formats in which the caller gives inputs and takes outputs; by default the user's
                own axis orders.

        Raises:
            ModelError: a node has no kernel on this target, or a dtype that it does not compute
                in, and the target has no host.
            FormatError: a format is wanted for an input or output of a dtype without reorders.
        """
        _check_tensors(graph, target)
        edge = edge or boundary(graph)
        if target.has_host:
            _check_edge(graph, target, edge)
        refusals: list[Refusal] = []
        storages = Storages(graph, target)
        options = _options(graph, target, storages, refusals)
        moving = _Moving.of(graph, target, storages, options, edge)
        return cls(graph, target, edge, storages, options, moving, tuple(refusals))


def enumerate_candidates(
    graph: Graph,
    target: Target,
    oracle: KernelOracle,
    edge: Boundary | None = None,
    progress: Progress | None = None,
    weight_limit: int | None = None,
    offers: Offers | None = None,
) -> Candidates:
    """Return every candidate of every node of a derived graph, with costs.

    Args:
        graph: its values know their Origin.
        target: formats and kernels on offer.
        oracle: which kernels exist and how long they take.
        edge: formats in which the caller gives inputs and takes outputs; by default the user's
            own axis orders.
        progress: called while kernels are being measured.
        weight_limit: the most bytes that transformed weights of Winograd kernels may take.
        offers: those of the target for this graph and edge, if they are known.

    Raises:
        ModelError: a node has no kernel on this target, or a dtype that it does not compute in,
            and the target has no host.
        FormatError: a format is wanted for an input or output of a dtype that has no reorders.
    """
    offers = offers or Offers.of(graph, target, edge)
    storages, edge, refusals = offers.storages, offers.edge, list(offers.refusals)
    options, moving = offers.options, offers.moving
    known = oracle.costs(_specs(options, moving), progress)
    hosted = _hosted(graph, storages, options, known, refusals) if target.has_host else options
    if hosted is not options:
        # Other options read and write other formats.
        options = hosted
        moving = _Moving.of(graph, target, storages, options, edge)
        known = oracle.costs(_specs(options, moving), progress)
    prices = _Prices(graph, target, known)
    nodes = {
        node.name: prices.candidates(node, options[node.name], refusals) for node in graph.nodes
    }
    if weight_limit is not None:
        options, against = within_weight_limit(graph, options, nodes, weight_limit)
        nodes = {
            node.name: prices.candidates(node, options[node.name], refusals) for node in graph.nodes
        }
        refusals = list(dict.fromkeys((*refusals, *against)))
    priced = moving.priced(known)
    return Candidates(
        storages,
        nodes,
        {key: priced[key] for key in moving.wanted if key in priced},
        tuple(refusals),
        {key: priced[key] for key in moving.around if key in priced},
    )
