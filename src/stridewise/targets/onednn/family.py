"""What a family of kernels registers: kernels by operator, and what is known of each kind.

Each file of a family ends with its :class:`Family`; ``table.py`` collects them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from functools import wraps

from stridewise.classes import dataclass
from stridewise.graph import Node, Refusal
from stridewise.targets.cost import FUNCTION_NS
from stridewise.targets.kernels import KernelContext, KernelOption, KernelSpec, MemorySpec
from stridewise.targets.target import NATIVE

__all__ = [
    "DEFAULT_EFFICIENCY",
    "MOST_SUMMED",
    "Family",
    "KernelKind",
    "KernelRule",
    "Offer",
    "float32_only",
    "other_than_float32",
    "refused",
]

KernelRule = Callable[[KernelContext], Iterable[KernelOption | Refusal]]
"""Yields the options of a node, and refusals with their reasons."""

DEFAULT_EFFICIENCY = 0.60
"""Which part of the roofline a kernel reaches where nothing else is known."""

MOST_SUMMED = 1 << 12
"""Elements that kernels of the library sum for one result, at most.

They add one after the other in float32, so relative errors grow with the square root of the number:
1e-6 for a mean of 64 x 64 elements, 1e-5 for 512 x 512. The core's kernels add sums of 128 elements
in double precision.
"""


def _no_post_ops(_node: Node) -> frozenset[str]:
    return frozenset()


def _never(_spec: KernelSpec, _storage: str, _dst: MemorySpec) -> bool:
    return False


def _whole(_spec: KernelSpec) -> float:
    return 1.0


def _nothing(_spec: KernelSpec) -> float:
    return 0.0


@dataclass(frozen=True, slots=True)
class Offer:
    """The kernels of one operator.

    Attributes:
        kernels: yields the options of a node, and refusals with their reasons.
        joins: operators whose results the kernels may compute as well; see
            :meth:`KernelContext.ahead`.
        post_ops: returns the operators that kernels of a node take as its next post-op.
    """

    kernels: KernelRule
    joins: frozenset[str] = frozenset()
    post_ops: Callable[[Node], frozenset[str]] = _no_post_ops


@dataclass(frozen=True, slots=True)
class KernelKind:
    """What is known of one kind of kernel; ``tune="model"`` uses it.

    Attributes:
        efficiency: which part of the roofline it reaches, by the storage of its destination:
            ``"plain"``, ``"channels-last"`` or ``"blocked"``.
        is_naive: whether the library has only its naive ``ref`` loops for a kernel, given the
            storage and the memory of its destination.
        share: which part of its time a kernel spends on the operations that its spec counts.
        function_ns: what one thread takes for a value of an exponential function in a post-op.
        loops_ns: what one thread takes for loops beside the operations that the spec counts: for
            post-ops in naive loops, say, or for products that are stored and added up later.
    """

    efficiency: Mapping[str, float] = field(default_factory=dict[str, float])
    is_naive: Callable[[KernelSpec, str, MemorySpec], bool] = _never
    share: Callable[[KernelSpec], float] = _whole
    function_ns: float = FUNCTION_NS
    loops_ns: Callable[[KernelSpec], float] = _nothing


@dataclass(frozen=True, slots=True)
class Family:
    """The registration of a file.

    Attributes:
        offers: kernels by operator.
        kinds: kinds of kernel by the name that their specs have; the runtime has a factory for
            each in ``runtime/binding/factories.py``.
        typed: kernels of nodes with a tensor of another type than floats, by operator; they check
            the types themselves.
    """

    offers: Mapping[str, Offer] = field(default_factory=dict[str, Offer])
    kinds: Mapping[str, KernelKind] = field(default_factory=dict[str, KernelKind])
    typed: Mapping[str, KernelRule] = field(default_factory=dict[str, KernelRule])


def refused(node: Node, reason: str) -> Refusal:
    """Return why this target does not compute a node in some way, or at all."""
    return Refusal(NATIVE, node.name, reason)


def other_than_float32(context: KernelContext) -> Refusal | None:
    """Return why the library has no kernel for a node: a tensor of another type than float32."""
    node = context.node
    for name in (*node.inputs, *node.outputs):
        if name and context.value(name).dtype.name != "float32":
            reason = f"{name!r} is {context.value(name).dtype}; the kernels are of float32"
            return refused(node, reason)
    return None


def float32_only(rule: KernelRule) -> KernelRule:
    """Make a rule refuse nodes with a tensor of another type than float32."""

    @wraps(rule)
    def checked(context: KernelContext) -> Iterable[KernelOption | Refusal]:
        refusal = other_than_float32(context)
        return rule(context) if refusal is None else (refusal,)

    return checked
