"""Lookup of tensors, nodes and formats of a plan by the names that users give."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches

from stridewise.errors import FormatError, PlanError, describe
from stridewise.formats import Format, nd, same_bytes
from stridewise.formats.data import FormatData
from stridewise.formats.dialects import Parameters, readings
from stridewise.graph import Value
from stridewise.ops.geometry import canonical_shape, user_format
from stridewise.planner.plan import PlanData, Spell

__all__ = ["Offer", "find_format", "find_node", "find_tensor", "offers", "unknown"]


@dataclass(frozen=True, slots=True)
class Offer:
    """A format that a tensor can be produced in.

    Attributes:
        format: the format.
        kinds: what the target calls formats of these bytes (``"plain"``, ``"blocked"``, ...).
        makers: indices of the candidates of the tensor's node that produce it so.
        spell: returns the target's name of a format.
    """

    format: Format
    kinds: tuple[str, ...]
    makers: tuple[int, ...]
    spell: Spell = field(default=str, compare=False, repr=False)

    def __str__(self) -> str:
        name = self.spell(self.format)
        kinds = ", ".join(kind for kind in self.kinds if kind != name)
        return f"{name} ({kinds})" if kinds else name


def unknown(where: str, what: str, name: str, known: Iterable[str]) -> PlanError:
    """Return the error for an unknown name, with similar names.

    Args:
        where: the object that was searched.
        what: the kind of name.
        name: the unknown name.
        known: the known names.
    """
    everyone = list(known)
    close = get_close_matches(name, everyone, 3, 0.5)
    few = ", ".join(everyone) if len(everyone) <= 6 else ""
    fix = f"did you mean {' or '.join(map(repr, close))}?" if close else ""
    if not fix and few:
        fix = f"there are {few}"
    return PlanError(describe(where, expected=what, found=repr(name), fix=fix))


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
        raise PlanError(
            describe(
                where,
                expected="a tensor that is computed",
                found=f"the constant {name!r}",
                fix="constants are packed at compilation, each as its reader wants it",
            )
        )
    if name in graph.values:
        return name
    position = plan.terms.positions.get(name)
    if position is not None:
        return graph.nodes[position].outputs[0]
    known = [value for value in graph.values if not graph.is_packed(value)]
    names = dict.fromkeys((*known, *plan.terms.positions))
    raise unknown(where, "the name of a tensor or node", name, names)


def _kinds(plan: PlanData, value: Value, fmt: Format) -> tuple[str, ...]:
    shape = canonical_shape(value, fmt)
    return tuple(
        kind for kind, other in plan.target.formats(value).items() if same_bytes(fmt, other, shape)
    )


def offers(plan: PlanData, tensor: str) -> Mapping[str, Offer]:
    """Return the formats that a tensor can be produced in, by the name of its storage."""
    value = plan.graph.value(tensor)
    storages = plan.storages
    node = plan.terms.producers.get(tensor)
    if node is None:
        fmt = plan.input_formats.get(tensor, user_format(value))
        return {
            storages.key(tensor, fmt): Offer(fmt, _kinds(plan, value, fmt), (), plan.target.spell)
        }
    position = node.outputs.index(tensor)
    makers: dict[str, list[int]] = {}
    for index, candidate in enumerate(plan.candidates.nodes[node.name]):
        key = storages.key(tensor, candidate.option.outputs[position])
        makers.setdefault(key, []).append(index)
    found: dict[str, Offer] = {}
    for key, indices in makers.items():
        fmt = storages.format(tensor, key)
        found[key] = Offer(fmt, _kinds(plan, value, fmt), tuple(indices), plan.target.spell)
    return found


def _spelled(value: Value, text: str) -> list[FormatData]:
    """Return the formats that a text names in any dialect, as given and in lower and upper case."""
    parameters = Parameters(dtype=value.dtype.name, rank=len(value.shape))
    found: dict[FormatData, None] = {}
    for spelling in dict.fromkeys((text, text.lower(), text.upper())):
        meant, _ = readings(spelling, parameters)
        found.update(dict.fromkeys(meant.values()))
    return list(found)


def _is_named(offer: Offer, spelled: str | Format) -> bool:
    if isinstance(spelled, Format):
        return offer.format == spelled
    names = (*offer.kinds, offer.format.name, offer.spell(offer.format))
    return spelled.lower() in map(str.lower, names)


def _same(fmt: Format, other: FormatData, shape: tuple[int, ...]) -> bool:
    """Return whether both have the same bytes; positional axes are in canonical order."""
    if other.axes == nd(other.rank).axes and other.rank == fmt.rank:
        other = other.renamed(dict(zip(other.axes, fmt.axes, strict=True)))
    try:
        return same_bytes(fmt, other, shape)
    except FormatError:  # some formats fit only certain extents
        return False


def _meant(value: Value, spelled: str | Format, known: Mapping[str, Offer]) -> dict[str, Offer]:
    """Return the offers that a spelling means: by their own names, else in any dialect."""
    named = {key: offer for key, offer in known.items() if _is_named(offer, spelled)}
    if named:
        return named
    formats = _spelled(value, spelled) if isinstance(spelled, str) else [spelled]
    return {
        key: offer
        for key, offer in known.items()
        if any(_same(offer.format, f, canonical_shape(value, offer.format)) for f in formats)
    }


def find_format(plan: PlanData, tensor: str, spelled: str | Format) -> tuple[str, Offer]:
    """Return the one format on offer for a tensor that ``spelled`` means.

    Args:
        plan: the plan that has the tensor.
        tensor: the name of a tensor that is not a constant.
        spelled: a kind of the target (``"blocked"``), a name in any dialect in any case
            (``"nhwc"``, ``"NCHW16c"``, ``"b_fs_yx_fsv16"``), or a format.

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
    raise PlanError(
        describe(
            f"tensor {tensor!r}",
            expected=f"one of the formats on offer: {', '.join(map(str, known.values()))}",
            found=f"{str(spelled)!r}" + (", which means several of them" if found else ""),
            fix="" if tensor not in plan.graph.inputs else "inputs come as the caller has them",
        )
    )
