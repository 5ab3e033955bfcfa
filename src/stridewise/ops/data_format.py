"""Data formats: the axis order of the feature maps that anchor operators read and write.

A node in channels-last carries the attribute ``data_format`` (``"NWC"``, ``"NHWC"``, ``"NDHWC"``);
without it, feature maps are channels-first. Parameters are OIHW either way. Operators know
canonical order only: the registry transposes types and arrays for them, and transposes the results
back.
"""

from __future__ import annotations

from collections.abc import Mapping

from stridewise.classes import dataclass
from stridewise.errors import GraphError
from stridewise.formats import Format
from stridewise.graph import Node, TensorType

__all__ = [
    "ATTRIBUTE",
    "CHANNELS_FIRST",
    "CHANNELS_LAST",
    "DATA_FORMATS",
    "canonical_order",
    "canonical_type",
    "channel_axis",
    "data_format",
    "inverse",
    "is_turned",
    "user_type",
]

ATTRIBUTE = "data_format"

_AXES = {3: tuple("NCW"), 4: tuple("NCHW"), 5: tuple("NCDHW")}
CHANNELS_FIRST: Mapping[int, Format] = {rank: Format(axes, axes) for rank, axes in _AXES.items()}
CHANNELS_LAST: Mapping[int, Format] = {
    rank: Format(axes, (axes[0], *axes[2:], axes[1])) for rank, axes in _AXES.items()
}
"""The two families of data formats, by rank."""

_MATRIX = Format(("N", "C"), ("N", "C"))

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

    Values of rank 1 are rows of numbers a channel, not feature maps.

    Raises:
        GraphError: the attribute is no data format of that rank.
    """
    if rank < _MATRIX.rank:
        return None
    if not is_turned(node):
        return _MATRIX if rank == _MATRIX.rank else CHANNELS_FIRST.get(rank)
    name = node.str_attr(ATTRIBUTE)
    found = DATA_FORMATS.get(name, {}).get(rank)
    if found is None or str(found) != name:
        known = [str(family[rank]) for family in (CHANNELS_FIRST, CHANNELS_LAST) if rank in family]
        raise GraphError.at(
            f"node {node.name!r} ({node.op}), attribute {ATTRIBUTE!r}",
            expected=f"{' or '.join(known) or 'none'} for an input of rank {rank}",
            found=repr(name),
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
