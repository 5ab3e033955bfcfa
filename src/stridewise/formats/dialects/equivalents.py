"""Names of one format in all systems: exact names, and names that differ only in padding."""

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
# Systems that name axes of weights like axes of data, and one whose names apply to any axes.
_REUSING = frozenset({"ascend", "pytorch"})
_POSITIONAL = frozenset({"onednn"})


@dataclass(frozen=True, slots=True)
class Equivalent:
    """A system's name for a format.

    Attributes:
        dialect: the system.
        name: its name for the format, or for one that differs only as described in ``note``; or
            None.
        exact: whether the name has the same places and the same padding rule. ``note`` lists axes
            with other names.
        note: the difference between the two, or the reason for a missing name.
    """

    dialect: str
    name: str | None
    exact: bool
    note: str


def _padded(fmt: FormatData) -> tuple[str, ...]:
    """Return the padded axes: those with a multiple and without a fixed extent."""
    free = dict.fromkeys((*fmt.axes, *fmt.order))
    fixed = {block.axis for block in fmt.blocks} - set(fmt.order)
    return tuple(axis for axis in free if fmt.multiple(axis) > 1 and axis not in fixed)


def with_policy(fmt: FormatData, policy: Policy) -> FormatData:
    """Return the format with the same places and another padding rule.

    >>> from stridewise.formats import parse
    >>> with_policy(parse("nChw4c"), "divide") == parse("NCHW_VECT_C", "tensorflow")
    True
    """
    pads = tuple(Pad(axis, fmt.multiple(axis), policy) for axis in _padded(fmt))
    return FormatData(fmt.axes, fmt.digits, pads, fmt.steps)


def padding_rule(fmt: FormatData) -> str:
    """Return a description of the padding of a format.

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
    """Return whether two formats have the same padding, and a description of the difference."""
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
    """Return the acceptable formats, best first: equal, then those with the same places only."""
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
    """Return one system's name for a format.

    Args:
        fmt: the format.
        dialect: the system.
        parameters: values that names of the system depend on.

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
    """Return each system's name for a format, in the order of the dialects."""
    return tuple(equivalent(fmt, dialect, parameters) for dialect in DIALECTS)
