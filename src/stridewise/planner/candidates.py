"""Candidates: every way that a target has to compute each node, with its cost.

The rooms in ``ops`` describe kernels, the target says which storage formats there are, and the
oracle knows the times. Formats that put the same bytes in the same places of a tensor count as
one, so that free changes of format never look like work.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import prod

from stridewise.errors import ModelError, describe
from stridewise.formats import Format, same_bytes
from stridewise.graph import Graph, Node, Refusal, Value
from stridewise.ops import OPS
from stridewise.ops.geometry import canonical_shape, user_format
from stridewise.ops.kernels import KernelOption, KernelSpec, MemorySpec
from stridewise.planner.boundary import Boundary
from stridewise.planner.cost import KernelCost, KernelOracle, Progress
from stridewise.planner.targets import Target

__all__ = ["Candidate", "Candidates", "enumerate_candidates"]

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
        """The library's names of the kernels, or ``view`` where nothing runs."""
        names = dict.fromkeys(cost.implementation or "library's choice" for cost in self.costs)
        return ", ".join(names) or "no work"


class Storages:
    """The storage formats of each value, those of equal bytes under one name."""

    def __init__(self, graph: Graph, target: Target) -> None:
        self._graph = graph
        self._target = target
        self._known: dict[str, dict[str, Format]] = {}
        self._keys: dict[tuple[str, Format], str] = {}

    def key(self, name: str, fmt: Format) -> str:
        """Return the name under which a format of a value counts; like ones share a name."""
        found = self._keys.get((name, fmt))
        if found is None:
            found = self._keys[name, fmt] = self._find(name, fmt)
        return found

    def _find(self, name: str, fmt: Format) -> str:
        value = self._graph.values[name]
        if name not in self._known:
            self._known[name] = self._offered(value)
        known = self._known[name]
        shape = canonical_shape(value, fmt)
        for key, other in known.items():
            if same_bytes(fmt, other, shape):
                return key
        known[fmt.name] = fmt
        return fmt.name

    def format(self, name: str, key: str) -> Format:
        """Return a format of that name."""
        return self._known[name][key]

    def _offered(self, value: Value) -> dict[str, Format]:
        distinct: dict[str, Format] = {}
        for fmt in (user_format(value), *self._target.formats(value).values()):
            shape = canonical_shape(value, fmt)
            if not any(same_bytes(fmt, other, shape) for other in distinct.values()):
                distinct[fmt.name] = fmt
        return distinct


class _Context:
    """What an operator's room may ask; see :class:`stridewise.ops.kernels.KernelContext`."""

    def __init__(
        self, graph: Graph, target: Target, node: Node, placing: Mapping[str, str]
    ) -> None:
        self._graph, self._target, self._node = graph, target, node
        self._placing = placing

    @property
    def node(self) -> Node:
        return self._node

    def value(self, name: str) -> Value:
        return self._graph.value(name)

    def is_constant(self, name: str) -> bool:
        return name in self._graph.constants

    def formats(self, name: str) -> Mapping[str, Format]:
        return self._target.formats(self._graph.value(name))

    def may_place(self, index: int) -> bool:
        name = self._node.inputs[index]
        return self._placing.get(name) == self._node.name


def _placing(graph: Graph) -> dict[str, str]:
    """Return, for each value, the one concat that it may be produced inside of.

    Inputs of the graph lie in the caller's memory, and outputs must.
    """
    producers = graph.producers()
    found: dict[str, str] = {}
    for node in graph.nodes:
        if node.op != "concat":
            continue
        for name in node.inputs:
            producer = producers.get(name)
            movable = producer is not None and name not in graph.outputs
            if movable and node.inputs.count(name) == 1:
                found.setdefault(name, node.name)
    return found


@dataclass(frozen=True, slots=True)
class Candidates:
    """All that the solver chooses from.

    Attributes:
        storages: names of formats of equal bytes.
        nodes: the candidates of each node.
        reorders: the cost of each reorder that could help: (value, from, to).
        refusals: formats and kernels that are not offered, and why.
    """

    storages: Storages
    nodes: Mapping[str, tuple[Candidate, ...]]
    reorders: Mapping[tuple[str, str, str], KernelCost]
    refusals: tuple[Refusal, ...]


def reorder_spec(value: Value, source: Format, target: Format) -> KernelSpec:
    """Return the kernel that stores a value in another format."""
    shape = canonical_shape(value, source)
    aligned = canonical_shape(value, target)
    if source.axes != target.axes:
        raise AssertionError("formats of one value are over the same axes")
    memories = (("src", MemorySpec.of(source, shape)), ("dst", MemorySpec.of(target, aligned)))
    return KernelSpec("reorder", memories)


def _check_tensors(graph: Graph, target: Target) -> None:
    computed: list[tuple[str, tuple[str, ...]]] = [
        (
            f"node {node.name!r} ({node.op})",
            tuple(name for name in node.inputs if name and name not in graph.constants)
            + node.outputs,
        )
        for node in graph.nodes
    ]
    # An output may be a constant, which no node computes.
    for where, names in (*computed, ("inputs", graph.inputs), ("outputs", graph.outputs)):
        for name in names:
            value = graph.values[name]
            if value.dtype.name not in target.dtypes:
                raise ModelError(
                    describe(
                        f"{where}, tensor {name!r}",
                        expected=f"dtype {' or '.join(sorted(target.dtypes))}",
                        found=value.dtype.name,
                        fix="export the model in float32",
                    )
                )
            if 0 in value.shape:
                raise ModelError(
                    describe(
                        f"{where}, tensor {name!r}",
                        expected="a tensor with elements",
                        found=str(value.type),
                        fix="give larger shapes, or leave out what is computed of nothing",
                    )
                )
            if prod(value.shape) * value.dtype.itemsize > _MOST_BYTES:
                raise ModelError(
                    describe(
                        f"{where}, tensor {name!r}",
                        expected="a tensor that fits into the address space",
                        found=str(value.type),
                        fix="give smaller shapes",
                    )
                )


def _options(
    graph: Graph, target: Target, refusals: list[Refusal]
) -> dict[str, list[KernelOption]]:
    placing = _placing(graph)
    found: dict[str, list[KernelOption]] = {}
    for node in graph.nodes:
        options: list[KernelOption] = []
        for item in OPS[node.op].kernels(_Context(graph, target, node, placing)):
            if isinstance(item, Refusal):
                refusals.append(item)
            else:
                options.append(item)
        if not options:
            reasons = [refusal.reason for refusal in refusals if refusal.subject == node.name]
            raise ModelError(
                describe(
                    f"node {node.name!r} ({node.op})",
                    expected=f"an operator that target {target.name} has a kernel for",
                    found="; ".join(reasons) or "none",
                    fix="replace the operator, or fold it into a constant",
                )
            )
        found[node.name] = options
    return found


def _extra_ns(graph: Graph, node: Node, option: KernelOption) -> float:
    """Return the cost of what is no kernel: fills, and copies of operands still needed."""
    nbytes = 4.0 * option.fill.count if option.fill else 0.0
    for alias in option.aliases:
        if alias.kind == "accumulate" and not _dies(graph, node, node.inputs[alias.input]):
            nbytes += 8.0 * prod(graph.values[node.inputs[alias.input]].shape)
    return nbytes / _COPY_BYTES_PER_NS


def _dies(graph: Graph, node: Node, name: str) -> bool:
    """Return whether nobody reads a value after a node, and the node reads it only once."""
    if name in graph.inputs or name in graph.outputs or node.inputs.count(name) > 1:
        return False
    readers = [reader for reader in graph.nodes if name in reader.inputs]
    return readers[-1].name == node.name


def _wanted_reorders(
    graph: Graph, storages: Storages, options: Mapping[str, list[KernelOption]], edge: Boundary
) -> list[tuple[str, str, str]]:
    """Return every (value, from, to) that some option yields and another one needs."""
    made: dict[str, dict[str, None]] = {}
    needed: dict[str, dict[str, None]] = {}
    for name, formats in edge.inputs.items():
        made.setdefault(name, {}).update({storages.key(name, fmt): None for fmt in formats})
    for name, formats in edge.outputs.items():
        needed.setdefault(name, {}).update({storages.key(name, fmt): None for fmt in formats})
    for node in graph.nodes:
        for option in options[node.name]:
            for name, fmt in zip(node.outputs, option.outputs, strict=True):
                made.setdefault(name, {})[storages.key(name, fmt)] = None
            for name, fmt in zip(node.inputs, option.inputs, strict=True):
                if fmt is not None:
                    needed.setdefault(name, {})[storages.key(name, fmt)] = None
    return [
        (name, source, target)
        for name, targets in needed.items()
        for target in targets
        for source in made.get(name, ())
        if source != target
    ]


def _best(known: tuple[KernelCost, ...] | Refusal | None) -> KernelCost | None:
    return known[0] if isinstance(known, tuple) and known else None


def _price(
    graph: Graph,
    node: Node,
    options: Iterable[KernelOption],
    known: Mapping[KernelSpec, tuple[KernelCost, ...] | Refusal],
    refusals: list[Refusal],
) -> tuple[Candidate, ...]:
    found: list[Candidate] = []
    for option in options:
        costs = [_best(known.get(call.spec)) for call in option.calls]
        complete = tuple(cost for cost in costs if cost is not None)
        if len(complete) != len(costs):
            reason = f"{option.algorithm}: the library has no such kernel"
            refusals.append(Refusal("onednn", node.name, reason))
            continue
        total = sum(cost.cost_ns for cost in complete) + _extra_ns(graph, node, option)
        found.append(Candidate(option, complete, total))
    fast = [c for c in found if not any(cost.is_reference for cost in c.costs)]
    for slow in found if fast else ():
        if slow not in fast:
            reason = f"{slow.algorithm}: the library has only its naive reference loops"
            refusals.append(Refusal("onednn", node.name, reason))
    if not found:
        raise ModelError(
            describe(
                f"node {node.name!r} ({node.op})",
                expected="a kernel of the library for these shapes",
                found="none in any format",
                fix="run `stridewise info` and check the library's version",
            )
        )
    return tuple(fast or found)


def enumerate_candidates(
    graph: Graph,
    target: Target,
    oracle: KernelOracle,
    edge: Boundary,
    progress: Progress | None = None,
) -> Candidates:
    """Return every candidate of every node of a derived graph, with costs.

    Args:
        graph: its values know their Origin.
        target: formats and kernels on offer.
        oracle: which kernels exist and how long they take.
        edge: formats in which the caller gives inputs and takes outputs.
        progress: called while kernels are being measured.

    Raises:
        ModelError: a node has no kernel on this target, or a dtype that it does not compute in.
    """
    _check_tensors(graph, target)
    refusals: list[Refusal] = []
    storages = Storages(graph, target)
    options = _options(graph, target, refusals)
    reorders = {
        (name, source, goal): reorder_spec(
            graph.values[name], storages.format(name, source), storages.format(name, goal)
        )
        for name, source, goal in _wanted_reorders(graph, storages, options, edge)
    }
    specs = [call.spec for group in options.values() for option in group for call in option.calls]
    known = oracle.costs(tuple(dict.fromkeys((*specs, *reorders.values()))), progress)
    nodes = {
        node.name: _price(graph, node, options[node.name], known, refusals) for node in graph.nodes
    }
    priced = {key: _best(known.get(spec)) for key, spec in reorders.items()}
    return Candidates(
        storages,
        nodes,
        {key: cost for key, cost in priced.items() if cost is not None},
        tuple(refusals),
    )
