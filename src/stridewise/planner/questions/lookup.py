"""Lookup of tensors, nodes and formats of a plan by the names that users give."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field
from difflib import get_close_matches

from stridewise.classes import dataclass
from stridewise.dtypes import DType, dtype_of
from stridewise.errors import DTypeError, FormatError, PlanError
from stridewise.formats import Format, nd, same_bytes
from stridewise.formats.data import FormatData
from stridewise.formats.dialects import Parameters, readings
from stridewise.graph import Value
from stridewise.ops.geometry import canonical_shape
from stridewise.planner.plan import PlanData
from stridewise.tensor import Spell, Storage

__all__ = [
    "Offer",
    "StorageName",
    "find_format",
    "find_node",
    "find_tensor",
    "of_element",
    "offers",
    "unknown",
]


StorageName = str | Format | Storage
"""How users say in which storage a tensor shall be."""


@dataclass(frozen=True, slots=True)
class Offer:
    """A way to store a tensor that it can be produced in.

    Attributes:
        storage: format and elements.
        kinds: what the target calls storages of these bytes (``"plain"``, ``"blocked"``, ...).
        makers: indices of the candidates of the tensor's node that produce it so.
        spell: returns the target's name of a format.
    """

    storage: Storage
    kinds: tuple[str, ...]
    makers: tuple[int, ...]
    spell: Spell = field(default=str, compare=False, repr=False)

    def __str__(self) -> str:
        name = self.storage.spelled(self.spell)
        kinds = ", ".join(kind for kind in self.kinds if kind != name)
        return f"{name} ({kinds})" if kinds else name


def unknown(where: str, what: str, name: str, known: Iterable[str]) -> PlanError:
    """Return the error for an unknown name, with similar names.

    Args:
        where: the object that was searched.
        what: the kind of name.
        name: the unknown name, which may be of a type other than a string.
        known: the known names.
    """
    everyone = list(known)
    close = get_close_matches(str(name), everyone, 3, 0.5)
    few = ", ".join(everyone) if len(everyone) <= 6 else ""
    fix = f"did you mean {' or '.join(map(repr, close))}?" if close else ""
    if not fix and few:
        fix = f"known: {few}"
    return PlanError.at(where, expected=what, found=repr(name), fix=fix)


def find_node(plan: PlanData, name: str) -> int:
    """Return the position of a node in the graph.

    Raises:
        PlanError: no node has that name. The message lists similar names.
    """
    position = plan.terms.positions.get(name)
    if position is None:
        where = f"plan of {plan.graph.name!r}"
        raise unknown(where, "the name of a node", name, plan.terms.positions)
    return position


def find_tensor(plan: PlanData, name: str) -> str:
    """Return the tensor with a name, or the first output of the node with that name.

    Raises:
        PlanError: neither exists, or it is a constant, which is packed in the formats of its
            readers.
    """
    graph = plan.graph
    where = f"plan of {graph.name!r}"
    if graph.is_packed(name):
        raise PlanError.at(
            where,
            expected="a tensor that is computed",
            found=f"the constant {name!r}",
            fix="constants are packed in the format that their kernel needs",
        )
    if name in graph.values:
        return name
    position = plan.terms.positions.get(name)
    if position is not None:
        return graph.nodes[position].outputs[0]
    known = [value for value in graph.values if not graph.is_packed(value)]
    names = dict.fromkeys((*known, *plan.terms.positions))
    raise unknown(where, "the name of a tensor or node", name, names)


def _kinds(plan: PlanData, tensor: str, key: str) -> tuple[str, ...]:
    ways = plan.target.storages(plan.graph.value(tensor))
    return tuple(kind for kind, stored in ways.items() if plan.storages.key(tensor, stored) == key)


def offers(plan: PlanData, tensor: str) -> Mapping[str, Offer]:
    """Return the storages that a tensor can be produced in, by name."""
    storages = plan.storages
    node = plan.terms.producers.get(tensor)
    makers: dict[str, list[int]] = {}
    if node is None:
        makers[storages.key(tensor, plan.made(tensor))] = []
    else:
        position = node.outputs.index(tensor)
        for index, candidate in enumerate(plan.candidates.nodes[node.name]):
            key = storages.key(tensor, candidate.option.makes[position])
            makers.setdefault(key, []).append(index)
    return {
        key: Offer(
            plan.made(tensor) if node is None else storages.storage(tensor, key),
            _kinds(plan, tensor, key),
            tuple(indices),
            plan.target.spell,
        )
        for key, indices in makers.items()
    }


def _spelled(value: Value, text: str) -> list[FormatData]:
    """Return the formats that a text names in any dialect, as given and in lower and upper case."""
    parameters = Parameters(dtype=value.dtype.name, rank=len(value.shape))
    found: dict[FormatData, None] = {}
    for spelling in dict.fromkeys((text, text.lower(), text.upper())):
        meant, _ = readings(spelling, parameters)
        found.update(dict.fromkeys(meant.values()))
    return list(found)


def _is_named(offer: Offer, spelled: str) -> bool:
    names = (*offer.kinds, offer.storage.spelled(_name), offer.storage.spelled(offer.spell))
    return spelled.lower() in map(str.lower, names)


def _name(fmt: Format) -> str:
    return fmt.name


def _element(spelled: str, own: DType) -> tuple[str, DType]:
    """Return a spelling without the element type that ends it, and this type or ``own``."""
    text, _, last = spelled.rpartition(" ")
    try:
        return (text, dtype_of(last)) if text else (spelled, own)
    except DTypeError:
        return spelled, own


def _same(fmt: Format, other: FormatData, shape: tuple[int, ...]) -> bool:
    """Return whether both have the same bytes; positional axes are in canonical order."""
    if other.axes == nd(other.rank).axes and other.rank == fmt.rank:
        other = other.renamed(dict(zip(other.axes, fmt.axes, strict=True)))
    try:
        return same_bytes(fmt, other, shape)
    except FormatError:  # some formats fit only certain extents
        return False


def _meant(value: Value, spelled: StorageName, known: Mapping[str, Offer]) -> dict[str, Offer]:
    """Return the offers that a spelling means: by their own names, else in any dialect.

    A format alone stands for elements of the value's own type.
    """
    dtype = value.dtype
    if isinstance(spelled, Storage):
        spelled, dtype = spelled.format, spelled.element(value.dtype)
    if isinstance(spelled, str):
        named = {key: offer for key, offer in known.items() if _is_named(offer, spelled)}
        if named:
            return named
        spelled, dtype = _element(spelled, value.dtype)
    formats = _spelled(value, spelled) if isinstance(spelled, str) else [spelled]
    stored = {key: offer.storage for key, offer in known.items()}
    return {
        key: known[key]
        for key, way in stored.items()
        if way.element(value.dtype) == dtype
        and any(_same(way.format, f, canonical_shape(value, way.format)) for f in formats)
    }


def of_element(plan: PlanData, tensor: str, spelled: StorageName) -> tuple[Offer, ...]:
    """Return the offers of an element type; () if ``spelled`` is not the name of one alone."""
    if not isinstance(spelled, str):
        return ()
    try:
        dtype = dtype_of(spelled)
    except DTypeError:
        return ()
    own = plan.graph.value(tensor).dtype
    return tuple(o for o in offers(plan, tensor).values() if o.storage.element(own) == dtype)


def find_format(plan: PlanData, tensor: str, spelled: StorageName) -> tuple[str, Offer]:
    """Return the one format on offer for a tensor that ``spelled`` means.

    Args:
        plan: the plan that has the tensor.
        tensor: the name of a tensor that is not a constant.
        spelled: a kind of the target (``"blocked"``), a name in any dialect in any case
            (``"nhwc"``, ``"NCHW16c"``, ``"b_fs_yx_fsv16"``), or a format. An element type after a
            name (``"nhwc bf16"``) stands for tensors that are stored in it; so does a storage.

    Returns:
        The name of the storage, and the offer.

    Raises:
        PlanError: ``spelled`` names none or several of the offered formats.
    """
    value = plan.graph.value(tensor)
    known = offers(plan, tensor)
    found = _meant(value, spelled, known)
    if len(found) == 1:
        return next(iter(found.items()))
    raise PlanError.at(
        f"tensor {tensor!r}",
        expected=f"one of the formats on offer: {', '.join(map(str, known.values()))}",
        found=f"{str(spelled)!r}" + (", which means several of them" if found else ""),
        fix="" if tensor not in plan.graph.inputs else "inputs come as the caller has them",
    )
