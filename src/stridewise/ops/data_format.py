"""Data formats: the axis order of the feature maps that anchor operators read and write.

A node in channels-last carries the attribute ``data_format`` (``"NWC"``, ``"NHWC"``, ``"NDHWC"``);
without it, feature maps are channels-first. Parameters are OIHW either way. Rooms know canonical
order only: the registry turns types, arrays and values for them, and turns back what they answer.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

from stridewise.errors import GraphError, describe
from stridewise.formats import Format, parse
from stridewise.graph import Node, Refusal, TensorType, Value
from stridewise.ops.geometry import user_format
from stridewise.ops.kernels import KernelContext, KernelOption

__all__ = [
    "ATTRIBUTE",
    "CHANNELS_FIRST",
    "CHANNELS_LAST",
    "DATA_FORMATS",
    "CanonicalContext",
    "canonical_order",
    "canonical_type",
    "channel_axis",
    "data_format",
    "fitted",
    "inverse",
    "is_turned",
    "misread",
    "user_type",
]

ATTRIBUTE = "data_format"

CHANNELS_FIRST: Mapping[int, Format] = {3: parse("NCW"), 4: parse("NCHW"), 5: parse("NCDHW")}
CHANNELS_LAST: Mapping[int, Format] = {3: parse("NWC"), 4: parse("NHWC"), 5: parse("NDHWC")}
"""The two families of data formats, by rank."""

_MATRIX = parse("NC")

DATA_FORMATS: Mapping[str, Mapping[int, Format]] = {
    **{str(fmt): CHANNELS_FIRST for fmt in CHANNELS_FIRST.values()},
    **{str(fmt): CHANNELS_LAST for fmt in CHANNELS_LAST.values()},
}
"""The family of each data format, by its name."""


def is_turned(node: Node) -> bool:
    """Return whether a node names the order of its feature maps, which may not be canonical."""
    return node.get(ATTRIBUTE) is not None


def data_format(node: Node, rank: int) -> Format | None:
    """Return the Origin that an anchor gives to feature maps of ``rank``, None where it has none.

    Raises:
        GraphError: the attribute is no data format of that rank.
    """
    if not is_turned(node):
        return _MATRIX if rank == _MATRIX.rank else CHANNELS_FIRST.get(rank)
    name = node.str_attr(ATTRIBUTE)
    found = DATA_FORMATS.get(name, {}).get(rank)
    if found is None or str(found) != name:
        known = [str(family[rank]) for family in (CHANNELS_FIRST, CHANNELS_LAST) if rank in family]
        raise GraphError(
            describe(
                f"node {node.name!r} ({node.op}), attribute {ATTRIBUTE!r}",
                expected=f"{' or '.join(known) or 'none'} for an input of rank {rank}",
                found=repr(name),
            )
        )
    return found


def canonical_order(node: Node, rank: int) -> tuple[int, ...]:
    """Return where batch, channels and spatial axes stand in the user's order of an anchor.

    >>> conv = Node("c", "conv", ("x", "w"), ("y",), (("data_format", "NHWC"),))
    >>> canonical_order(conv, 4)
    (0, 3, 1, 2)
    """
    found = data_format(node, rank) if is_turned(node) else None
    if found is None:
        return tuple(range(rank))
    return tuple(found.order.index(axis) for axis in found.axes)


def channel_axis(node: Node, rank: int) -> int:
    """Return the position of the channels in the user's order of an anchor."""
    return canonical_order(node, rank)[1]


def inverse(order: tuple[int, ...]) -> tuple[int, ...]:
    """Return the permutation that undoes another."""
    return tuple(order.index(axis) for axis in range(len(order)))


# --- types ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Turned(TensorType):
    """A type in canonical order that messages show in the user's."""

    shown: str

    def __str__(self) -> str:
        return self.shown


def canonical_type(node: Node, type_: TensorType) -> TensorType:
    """Return the type of a feature map in canonical order; its text stays in the user's."""
    order = canonical_order(node, len(type_.shape))
    return _Turned(type_.dtype, tuple(type_.shape[axis] for axis in order), str(type_))


def user_type(node: Node, type_: TensorType) -> TensorType:
    """Return the type of a feature map in the user's order."""
    order = inverse(canonical_order(node, len(type_.shape)))
    return TensorType(type_.dtype, tuple(type_.shape[axis] for axis in order))


# --- kernels --------------------------------------------------------------------------------------


def _operands(node: Node) -> tuple[str, ...]:
    return tuple(node.inputs[post.operand] for post in node.post_ops if post.operand is not None)


class CanonicalContext:
    """What the room of an anchor sees of a node that is not in canonical order.

    Storage formats are over named axes, so they are the same whatever the user's order.
    """

    def __init__(self, inner: KernelContext) -> None:
        """Wrap the context of an anchor with a data format."""
        self._inner = inner
        node = inner.node
        self._maps = frozenset((node.inputs[0], *node.outputs, *_operands(node)))

    @property
    def node(self) -> Node:
        """The node."""
        return self._inner.node

    def value(self, name: str) -> Value:
        """Return a value; feature maps in canonical order, with its Origin."""
        value = self._inner.value(name)
        if name not in self._maps:
            return value
        type_ = canonical_type(self.node, value.type)
        return Value(name, TensorType(type_.dtype, type_.shape), CHANNELS_FIRST[len(type_.shape)])

    def is_constant(self, name: str) -> bool:
        """Return whether a value is known before the run."""
        return self._inner.is_constant(name)

    def formats(self, name: str) -> Mapping[str, Format]:
        """Return the storage formats of a value by kind; of ND values only the user's order."""
        value = self._inner.value(name)
        if name not in self._maps or value.origin is not None:
            return self._inner.formats(name)
        users = data_format(self.node, len(value.shape))
        if users is None:
            raise AssertionError("inference has checked the data format")
        return {"plain": users, "channels-last": users}

    def may_place(self, index: int) -> bool:
        """Return whether input ``index`` may be produced inside an output of this node."""
        return self._inner.may_place(index)

    def ahead(self) -> KernelContext | None:
        """Return None: what lies between two nodes would have to be in canonical order, too."""
        return None

    def behind(self) -> KernelContext | None:
        """Return None, as above."""
        return None


def fitted(context: KernelContext, option: KernelOption) -> KernelOption | Refusal:
    """Return an option with its formats over the axes that each value really has.

    Values that two anchors disagree about are ND, and operands of post-ops may have axes other than
    the result. The bytes of both are in the user's order, so only options in that order fit them.
    """
    node = context.node
    operands = {post.operand for post in node.post_ops if post.operand is not None}
    if not operands and not is_turned(node):
        return option
    x, y = (context.value(name) for name in (node.inputs[0], node.outputs[0]))
    users = user_format(y)
    inputs, outputs = list(option.inputs), list(option.outputs)
    if is_turned(node):
        users = data_format(node, len(y.shape)) or users
        inputs[0] = inputs[0] if x.origin is not None else user_format(x)
        outputs[0] = outputs[0] if y.origin is not None else user_format(y)
    for index in operands:
        value, fmt = context.value(node.inputs[index]), option.inputs[index]
        if fmt is None or (value.origin == y.origin and y.origin is not None):
            continue
        if fmt != users:
            reason = f"{option.algorithm}: the axes of {value.name!r} are not those of the result"
            return Refusal("onednn-cpu", node.name, reason)
        inputs[index] = user_format(value)
    return dataclasses.replace(option, inputs=tuple(inputs), outputs=tuple(outputs))


def misread(node: Node) -> Refusal | None:
    """Return why no room can be asked about a node that reads one value in two orders."""
    own = len(node.inputs) - len(_operands(node))
    if node.inputs[0] not in node.inputs[1:own]:
        return None
    return Refusal("onednn-cpu", node.name, "its input is also one of its parameters")
