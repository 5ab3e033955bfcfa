"""Targets read from TOML files; ``docs/targets.md`` describes them.

A file is checked as a whole when it is read: every key is known, every operator and format exists.
So planning cannot fail because of it.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from stridewise.dtypes import DTYPES
from stridewise.errors import FormatError, TargetError
from stridewise.formats import Format, dialects, parse
from stridewise.formats.dialects import find
from stridewise.ops import OPS
from stridewise.records import Check, Reader, suggestion
from stridewise.targets.tables.files import FOLDER, SHIPPED
from stridewise.targets.tables.fit import WEIGHTED
from stridewise.targets.tables.rules import ND, Count, Kind, Padding, Rates, Rule, Share
from stridewise.targets.tables.table import TableTarget

__all__ = ["SHIPPED", "load_target", "shipped"]

_RANKS = range(1, 7)
_DATA = (("N", "C"), ("N", "C", "W"), ("N", "C", "H", "W"), ("N", "C", "D", "H", "W"))


# --- the schema -----------------------------------------------------------------------------------

_Text = Annotated[str, Check("a text", bool)]
_Names = Annotated[tuple[str, ...], Check("a list of one name or more", bool)]


@dataclass(frozen=True, slots=True)
class _Rule:
    """A way to compute an operator. ``data`` stands for ``takes`` and ``gives`` alike."""

    data: str | None = None
    takes: str | None = None
    gives: str | None = None
    weights: str = ND
    efficiency: Share = 1.0
    most_channels: Count = 0


@dataclass(frozen=True, slots=True)
class _Family:
    """Operators that have the same rules."""

    ops: _Names
    rules: Annotated[tuple[_Rule, ...], Check("a list of one table or more", bool)]


@dataclass(frozen=True, slots=True)
class _Reorder:
    """What the target calls a reorder, and the part of the bandwidth that it reaches."""

    name: _Text = "reorder"
    efficiency: Share = 1.0


@dataclass(frozen=True, slots=True)
class _Default:
    """Nodes of operators without rules."""

    efficiency: Share = 1.0


@dataclass(frozen=True, slots=True)
class _File:
    """A whole file; the fields are the keys."""

    name: _Text
    dialect: str
    dtypes: _Names
    rates: Rates
    family: Annotated[tuple[_Family, ...], Check("a list of one table or more", bool)]
    padding: Padding = "zero"
    reorder: _Reorder = _Reorder()
    block: Mapping[str, Count] = field(default_factory=dict[str, int])
    data: Mapping[str, _Names] = field(default_factory=dict[str, tuple[str, ...]])
    weights: Mapping[str, _Names] = field(default_factory=dict[str, tuple[str, ...]])
    default: _Default = _Default()


Wrong = Callable[[str, str, str, str], TargetError]
"""Returns the error for a key, from what was expected, what was found, and what to do."""


def _choice(wrong: Wrong, path: str, expected: str, found: str, known: Iterable[str]) -> str:
    """Return a name that is one of some names."""
    names = tuple(known)
    if found not in names:
        raise wrong(path, f"{expected} {', '.join(names)}", repr(found), suggestion(found, names))
    return found


# --- what a schema cannot say ---------------------------------------------------------------------


def _kinds(wrong: Wrong, path: str, table: Mapping[str, tuple[str, ...]]) -> dict[str, Kind]:
    if ND in table:
        found = f"{ND}, which every target has"
        raise wrong(f"{path}.{ND}", "a name other than those of all targets", found, "")
    return {name: Kind(name, names) for name, names in table.items()}


def _meanings(target: TableTarget, name: str) -> tuple[list[Format], FormatError | None]:
    """Return what a name means for some rank and dtype, or why it means nothing."""
    found: list[Format] = []
    refused: FormatError | None = None
    for dtype in sorted(target.dtypes):
        for rank in _RANKS:
            try:
                found.append(parse(name, target.dialect, target.parameters(dtype, rank)))
            except FormatError as error:
                refused = refused or error
    return found, refused


def _check_formats(wrong: Wrong, target: TableTarget) -> None:
    for part, kinds in (("data", target.data), ("weights", target.weights)):
        for kind in kinds.values():
            path = f"{part}.{kind.name}"
            for name in kind.names:
                found, refused = _meanings(target, name)
                if not found:
                    expected = f"names of formats of {target.dialect}"
                    raise wrong(path, expected, f"{name!r}: {refused}", "")
                fits = any(fmt.axes in _DATA and not fmt.steps for fmt in found)
                if part == "data" and not fits:
                    expected = "formats over N, C and spatial axes, none of them fused"
                    raise wrong(path, expected, f"{name!r}: {found[0].text}", "")


def _rule(wrong: Wrong, path: str, entry: _Rule, target: _File) -> Rule:
    if entry.data is not None and (entry.takes, entry.gives) != (None, None):
        raise wrong(f"{path}.data", "either data, or takes and gives", "both", "")

    def kind(key: str, found: str | None, known: Iterable[str]) -> str:
        if found is None:
            raise wrong(f"{path}.{key}", "a text", "nothing", "")
        return _choice(wrong, f"{path}.{key}", "one of", found, (ND, *known))

    shared = None if entry.data is None else kind("data", entry.data, target.data)
    return Rule(
        shared or kind("takes", entry.takes, target.data),
        shared or kind("gives", entry.gives, target.data),
        kind("weights", entry.weights, target.weights),
        entry.efficiency,
        entry.most_channels,
    )


def _rules(wrong: Wrong, file: _File) -> dict[str, tuple[Rule, ...]]:
    found: dict[str, tuple[Rule, ...]] = {}
    for index, family in enumerate(file.family):
        path = f"family[{index}]"
        rules = tuple(
            _rule(wrong, f"{path}.rules[{number}]", entry, file)
            for number, entry in enumerate(family.rules)
        )
        for op in family.ops:
            _choice(wrong, f"{path}.ops", "operators of Stridewise:", op, OPS)
            if op in found:
                raise wrong(f"{path}.ops", "every operator in one family", f"{op!r} once more", "")
            if op not in WEIGHTED and any(rule.weights != ND for rule in rules):
                expected = f"rules without weights, which only {', '.join(sorted(WEIGHTED))} have"
                raise wrong(f"{path}.rules", expected, f"weights for {op!r}", "")
            found[op] = rules
    return found


def _target(wrong: Wrong, source: str, file: _File) -> TableTarget:
    for name in file.dtypes:
        _choice(wrong, "dtypes", "a list of dtypes out of", name, DTYPES)
    for name in file.block:
        _choice(wrong, f"block.{name}", "one of the keys", name, file.dtypes)
    names = (*dialects(), *(alias for name in dialects() for alias in find(name).aliases))
    found = TableTarget(
        name=file.name,
        source=source,
        dialect=find(_choice(wrong, "dialect", "one of", file.dialect, names)).name,
        dtypes=frozenset(file.dtypes),
        padding=file.padding,
        rates=file.rates,
        reorder=file.reorder.name,
        reorder_efficiency=file.reorder.efficiency,
        blocks=file.block,
        data=_kinds(wrong, "data", file.data),
        weights=_kinds(wrong, "weights", file.weights),
        rules=_rules(wrong, file),
        default=Rule(efficiency=file.default.efficiency),
    )
    _check_formats(wrong, found)
    return found


def _read(text: str, source: str) -> TableTarget:
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise TargetError.at(
            f"target {source}", expected="a TOML file", found=str(error)
        ) from error

    def wrong(path: str, expected: str, found: str, fix: str) -> TargetError:
        place = f"target {source}" + (f", key {path!r}" if path else "")
        return TargetError.at(place, expected=expected, found=found, fix=fix)

    return _target(wrong, source, Reader(wrong, "a table", strict=True).read(_File, table))


def load_target(path: str | os.PathLike[str]) -> TableTarget:
    """Read a target from a TOML file.

    Raises:
        TargetError: the file cannot be read, a key is missing, unknown or wrong, or a format or
            operator does not exist; the message names the file and the key.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = "no such file" if isinstance(error, FileNotFoundError) else str(error)
        raise TargetError.at(
            f"target {os.fspath(path)}", expected="a TOML file in UTF-8", found=reason
        ) from error
    return _read(text, os.fspath(path))


def shipped(name: str) -> TableTarget:
    """Return a target that comes with the package.

    Raises:
        KeyError: there is none of that name.
    """
    file = SHIPPED[name]
    return _read((FOLDER / file).read_text(encoding="utf-8"), file)
