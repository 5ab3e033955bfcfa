"""The names that systems have for one format: equal ones, and those that only pad otherwise."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from stridewise.errors import FormatError
from stridewise.formats.axes import POSITIONAL
from stridewise.formats.data import FormatData, Pad, Pitch, Policy
from stridewise.formats.dialects import DIALECTS, Dialect, Parameters, find, spell

__all__ = ["Equivalent", "equivalent", "equivalents", "padding_rule", "with_policy"]

_POLICIES: tuple[Policy, ...] = ("zero", "unspecified", "divide")
_AS_DATA = {"O": "N", "I": "C"}
# Systems that name the axes of weights like those of data, and one with names for any axes.
_REUSING = frozenset({"ascend", "pytorch"})
_POSITIONAL = frozenset({"onednn"})


@dataclass(frozen=True, slots=True)
class Equivalent:
    """What a system calls a format.

    Attributes:
        dialect: the system.
        name: its name for the format, or for one that differs only as ``note`` says; or None.
        exact: whether the name means the same places and the same rule for padding; ``note`` says
            where it calls axes otherwise.
        note: how the two differ, or why there is no name.
    """

    dialect: str
    name: str | None
    exact: bool
    note: str


def _padded(fmt: FormatData) -> tuple[str, ...]:
    """Return the axes that are padded: those with a multiple whose extent is not fixed."""
    free = dict.fromkeys((*fmt.axes, *fmt.order))
    fixed = {block.axis for block in fmt.blocks} - set(fmt.order)
    return tuple(axis for axis in free if fmt.multiple(axis) > 1 and axis not in fixed)


def with_policy(fmt: FormatData, policy: Policy) -> FormatData:
    """Return the format that puts elements in the same places under another rule of padding.

    >>> from stridewise.formats import parse
    >>> with_policy(parse("nChw4c"), "divide") == parse("NCHW_VECT_C", "tensorflow")
    True
    """
    pads = tuple(Pad(axis, fmt.multiple(axis), policy) for axis in _padded(fmt))
    return FormatData(fmt.axes, fmt.digits, pads, fmt.steps)


def padding_rule(fmt: FormatData) -> str:
    """Return how a format pads, in words.

    >>> from stridewise.formats import parse
    >>> padding_rule(parse("nChw16c")), padding_rule(parse("NHWC"))
    ('C to a multiple of 16, with zeros', 'none')
    """
    rules = {"zero": "with zeros", "unspecified": "with anything", "divide": "which it must be"}
    found = {
        policy: [axis for axis in _padded(fmt) if fmt.policy(axis) == policy]
        for policy in _POLICIES
    }
    parts = [
        " and ".join(f"{axis} to a multiple of {fmt.multiple(axis)}" for axis in axes)
        + f", {rules[policy]}"
        for policy, axes in found.items()
        if axes
    ]
    pitches = [item.multiple for item in fmt.digits if isinstance(item, Pitch)]
    parts += [f"what follows |{size} to a multiple of {size} elements" for size in pitches]
    return "; ".join(parts) or "none"


def _compared(fmt: FormatData, meant: FormatData) -> tuple[bool, str]:
    """Return whether a name's format pads as ``fmt`` does, and how the two differ."""
    notes: list[str] = []
    if meant.axes != fmt.axes:
        notes.append(f"{' '.join(meant.axes)} stand for {' '.join(fmt.axes)}")
        meant = meant.renamed(dict(zip(meant.axes, fmt.axes, strict=True)))
    differing = _padded(meant) if meant != fmt else ()
    policies = {meant.policy(axis) for axis in differing}
    rules = {
        "zero": "pads with zeros",
        "unspecified": "padding holds anything",
        "divide": "does not pad: "
        + ", ".join(f"{axis} must be a multiple of {fmt.multiple(axis)}" for axis in _padded(fmt)),
    }
    notes += [rules[policy] for policy in _POLICIES if policy in policies]
    return meant == fmt, "; ".join(notes)


def _tried(fmt: FormatData, dialect: Dialect) -> Iterable[FormatData]:
    """Return the formats whose names would do, from equal to merely the same places."""
    named = [fmt]
    if dialect.name in _REUSING and "O" in fmt.axes and not {"N", "C"} & set(fmt.axes):
        named.append(fmt.renamed(_AS_DATA))
    if dialect.name in _POSITIONAL and fmt.rank <= len(POSITIONAL):
        named.append(fmt.renamed(dict(zip(fmt.axes, POSITIONAL, strict=False))))
    yield from named
    if _padded(fmt):
        for renamed in named:
            yield from (with_policy(renamed, policy) for policy in _POLICIES)


def equivalent(fmt: FormatData, dialect: str, parameters: Parameters | None = None) -> Equivalent:
    """Return what one system calls a format.

    Raises:
        FormatError: the dialect is unknown.

    >>> from stridewise.formats import parse
    >>> near = equivalent(parse("nChw4c"), "tensorflow")
    >>> near.name, near.exact, near.note
    ('NCHW_VECT_C', False, 'does not pad: C must be a multiple of 4')
    """
    given = parameters or Parameters()
    system = find(dialect)
    why = ""
    for wanted in _tried(fmt, system):
        try:
            name = spell(wanted, system.name, given)
        except FormatError as error:
            why = why or str(error)
            continue
        meant = system.parse(name, given)
        exact, note = (True, "") if meant is None else _compared(fmt, meant)
        return Equivalent(system.name, name, exact, note)
    return Equivalent(system.name, None, False, why)


def equivalents(fmt: FormatData, parameters: Parameters | None = None) -> tuple[Equivalent, ...]:
    """Return what each system calls a format, in the order of the dialects."""
    return tuple(equivalent(fmt, dialect, parameters) for dialect in DIALECTS)
