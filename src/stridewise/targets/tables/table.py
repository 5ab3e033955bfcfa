"""Targets that are tables: formats, rules and rates by which candidates are made and priced.

What a table says is read by :mod:`stridewise.targets.tables.load`; here it is applied to nodes.
Such a target has no kernels. Its calls exist to be priced, and its plans are executed by
simulation.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from stridewise.errors import FormatError
from stridewise.formats import Format, Parameters, algebra, parse, spell
from stridewise.graph import Node, Refusal, Value
from stridewise.ops.geometry import canonical_shape, user_format
from stridewise.ops.pointwise import steps
from stridewise.targets.cost import KernelCost, Progress
from stridewise.targets.kernels import KernelContext, KernelOption, KernelSpec, MemorySpec
from stridewise.targets.machine import Machine
from stridewise.targets.tables.fit import UnfitError, fit
from stridewise.targets.tables.rules import ND, Kind, Padding, Rates, Rule
from stridewise.targets.target import Precision
from stridewise.targets.views import VIEWS, view
from stridewise.tensor import Storage

__all__ = ["TableTarget"]

_ONLY_VIEWS = frozenset({"reshape", "identity"})


@dataclass(frozen=True, slots=True)
class TableTarget:
    """A target described by a file.

    Attributes:
        name: the target's name in reports.
        source: the file, for messages.
        dialect: the system in whose names formats are written.
        dtypes: element types that it computes in.
        padding: what kernels find between the elements of blocked tensors: zeros, or anything.
        rates: what costs are computed from.
        reorder: what the target calls a reorder.
        reorder_efficiency: which part of the bandwidth a reorder reaches.
        blocks: by dtype, the block where names of formats leave it open.
        data: kinds of format of activations, by name.
        weights: kinds of format of constant weights, by name.
        rules: by operator, the ways to compute it.
        default: for all other nodes; takes and gives the user's own order.
    """

    name: str
    source: str
    dialect: str
    dtypes: frozenset[str]
    padding: Padding
    rates: Rates
    reorder: str
    reorder_efficiency: float
    blocks: Mapping[str, int]
    data: Mapping[str, Kind]
    weights: Mapping[str, Kind]
    rules: Mapping[str, tuple[Rule, ...]]
    default: Rule

    def __hash__(self) -> int:
        return hash((self.name, self.source))  # the tables of the file have no hash

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """The user's own order, where some rule takes it, and the kinds of the file."""
        own = any(ND in (rule.takes, rule.gives) for group in self.rules.values() for rule in group)
        return (*((Kind(ND, ()),) if own else ()), *self.data.values())

    @property
    def has_host(self) -> bool:
        """No: simulated targets compute every node by rules of their own."""
        return False

    @property
    def precision(self) -> Precision:
        """Tensors are stored in their own types."""
        return "model"

    @property
    def library(self) -> str:
        """The target itself: its kernels are rules."""
        return self.name

    @property
    def machine(self) -> Machine:
        """What the costs hold for: no machine, but the rates of the file."""
        return Machine(f"rates of {self.source}", "simulated", 1, f"{self.dialect} formats")

    # --- formats ----------------------------------------------------------------------------

    def parameters(self, dtype: str, rank: int, groups: int = 1) -> Parameters:
        """Return what names of formats leave open."""
        return Parameters(dtype, self.blocks.get(dtype), groups, rank)

    def formats(self, value: Value) -> Mapping[str, Format]:
        """Return the formats that a value can be stored in, by the name of their kind."""
        found = {ND: user_format(value)}
        if value.origin is not None and value.origin.axes[:2] == ("N", "C"):
            given = self.parameters(value.dtype.name, value.origin.rank)
            for name, kind in self.data.items():
                fmt = self._of(kind, given, value.origin.axes)
                if fmt is not None and _holds(fmt, canonical_shape(value, fmt)):
                    found[name] = fmt
        return found

    def storages(self, value: Value) -> Mapping[str, Storage]:
        """Return the formats, with elements of the value's own type."""
        return {kind: Storage(fmt) for kind, fmt in self.formats(value).items()}

    def _of(self, kind: Kind, given: Parameters, axes: tuple[str, ...]) -> Format | None:
        for name in kind.names:
            fmt = parse(name, self.dialect, given)
            if fmt.axes == axes:
                return fmt
        return None

    def weights_format(self, kind: str, dtype: str, rank: int, groups: int) -> Format:
        """Return the format of weights; with groups, over an axis G and the others.

        Args:
            kind: a name of :attr:`weights`.
            dtype: the element type.
            rank: that of the weights as the user has them, without an axis for groups.
            groups: of a convolution.

        Raises:
            FormatError: the kind has none for this rank, or none with groups.
        """
        grouped = groups > 1
        refused: FormatError | None = None
        for name in self.weights[kind].names:
            try:
                fmt = parse(name, self.dialect, self.parameters(dtype, rank, groups))
            except FormatError as error:
                refused = refused or error
                continue
            if fmt.rank == rank + grouped and ("G" in fmt.axes) == grouped:
                return fmt
        if refused is not None:
            raise refused
        beside = " and an axis G for groups" if grouped else ""
        raise FormatError(f"{kind} has no format for weights of rank {rank}{beside}")

    def memory(self, fmt: Format, shape: Sequence[int], dtype: str) -> MemorySpec:
        """Return what is priced of a stored tensor: its bytes, padding included."""
        return MemorySpec(algebra.storage_shape(fmt, shape), fmt.name, dtype=dtype)

    def spell(self, fmt: Format) -> str:
        """Return the target's own name of a format, where it has one."""
        for dtype in sorted(self.dtypes):
            try:
                return spell(fmt, self.dialect, self.parameters(dtype, fmt.rank))
            except FormatError:
                continue
        return fmt.name

    # --- candidates -------------------------------------------------------------------------

    def options(self, context: KernelContext) -> Iterable[KernelOption | Refusal]:
        """Yield views, then what the rules of the operator allow, and why they do not.

        Where neither offers anything, the default rule does.
        """
        node = context.node
        found = list(self._views(context))
        seen = {(option.inputs, option.outputs) for option in found}
        yield from found
        for rule in () if node.op in _ONLY_VIEWS else self._rules(node):
            try:
                option = fit(self, context, rule)
            except (UnfitError, FormatError) as error:
                yield Refusal(self.name, node.name, f"{rule}: {error}")
                continue
            if (option.inputs, option.outputs) not in seen:
                found.append(option)
                yield option
        if not found:
            yield fit(self, context, self.default)

    def _rules(self, node: Node) -> Iterable[Rule]:
        """Return the rules of an operator; of an expression, those of all of its steps."""
        if node.op != "pointwise":
            return self.rules.get(node.op, ())
        first, *others = (self.rules.get(step.op, ()) for step in steps(node))
        return [rule for rule in first if all(rule in other for other in others)]

    def _views(self, context: KernelContext) -> Iterator[KernelOption]:
        """Yield what moves no byte: the same bytes under other axes, or part of them."""
        node = context.node
        if node.op == "identity":
            x, y = context.value(node.inputs[0]), context.value(node.outputs[0])
            same = self.formats(x).values() if x.origin == y.origin else ()
            pairs = [(fmt, fmt) for fmt in same] or [(user_format(x), user_format(y))]
            for source, result in pairs:
                yield view(source, result)
        elif node.op in VIEWS:
            yield from VIEWS[node.op](context)

    # --- costs ------------------------------------------------------------------------------

    def joins(self, op: str) -> frozenset[str]:
        """Return none: every node has a step of its own."""
        del op
        return frozenset()

    def reorder_spec(self, value: Value, source: Storage, goal: Storage) -> KernelSpec:
        """Return the reorder of a value, to be priced."""
        sides = (("src", source), ("dst", goal))
        memories = tuple(
            (role, self.memory(side.format, canonical_shape(value, side.format), dtype.short))
            for role, side in sides
            for dtype in (side.element(value.dtype),)
        )
        return KernelSpec("reorder", memories, (("efficiency", self.reorder_efficiency),))

    def costs(
        self, specs: Sequence[KernelSpec], progress: Progress | None = None
    ) -> Mapping[KernelSpec, tuple[KernelCost, ...] | Refusal]:
        """Return the modelled cost of each step; a table is its own oracle."""
        del progress  # nothing takes long enough
        return {spec: (self._cost(spec),) for spec in specs}

    def _cost(self, spec: KernelSpec) -> KernelCost:
        efficiency = next(v for k, v in spec.params if k == "efficiency" and isinstance(v, float))
        cost_ns = self.rates.cost_ns(spec.flops, spec.nbytes, efficiency)
        name = self.reorder if spec.kind == "reorder" else self.name
        return KernelCost(cost_ns, name, "model")


def _holds(fmt: Format, shape: tuple[int, ...]) -> bool:
    """Return whether a format can store a shape; some want extents that divide."""
    try:
        return prod(algebra.storage_shape(fmt, shape)) >= 0
    except FormatError:
        return False
