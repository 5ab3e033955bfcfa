"""Targets read from TOML files; ``docs/targets.md`` describes them.

A file is checked as a whole when it is read, so that planning meets no surprise: every key is
known, every operator and format exists.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from importlib.resources import files
from pathlib import Path
from typing import Any, cast

from stridewise.dtypes import DTYPES
from stridewise.errors import FormatError, TargetError, describe
from stridewise.formats import Format, dialects, parse
from stridewise.formats.dialects import find
from stridewise.ops import OPS
from stridewise.targets.tables.fit import WEIGHTED
from stridewise.targets.tables.rules import ND, Kind, Padding, Rates, Rule
from stridewise.targets.tables.table import TableTarget

__all__ = ["SHIPPED", "load_target", "shipped"]

SHIPPED = {"ascend": "ascend.toml", "openvino-gpu": "openvino_gpu.toml"}
"""Targets that come with the package as files beside this one."""

_PADDING: tuple[Padding, ...] = ("zero", "unspecified")
_RANKS = range(1, 7)
_DATA = (("N", "C"), ("N", "C", "W"), ("N", "C", "H", "W"), ("N", "C", "D", "H", "W"))


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "nothing"


def _items(found: object, kind: type) -> list[Any]:
    """Return the items of a list, or none where it is no list of that kind."""
    items = cast("list[Any]", found) if isinstance(found, list) else []
    return items if all(isinstance(item, kind) for item in items) else []


class _Reader:
    """One table of a file. Keys are taken one by one; what is left over is an error."""

    def __init__(self, source: str, where: str, table: Mapping[str, Any]) -> None:
        self.source, self.where = source, where
        self.left = dict(table)

    def error(self, key: str, expected: str, found: object, fix: str = "") -> TargetError:
        place = ".".join(part for part in (self.where, key) if part)
        message = describe(
            f"target {self.source}, key {place!r}", expected=expected, found=str(found), fix=fix
        )
        return TargetError(message)

    def take(self, key: str, expected: str, default: Any = None) -> Any:
        if key not in self.left and default is None:
            raise self.error(key, expected, "nothing")
        return self.left.pop(key, default)

    def text(self, key: str, default: str | None = None) -> str:
        found = self.take(key, "a text", default)
        if not isinstance(found, str) or not found:
            raise self.error(key, "a text", repr(found))
        return found

    def choice(self, key: str, known: Iterable[str], default: str | None = None) -> str:
        names = tuple(known)
        found = self.text(key, default)
        if found not in names:
            close = get_close_matches(found, names, 1)
            fix = f"did you mean {close[0]}?" if close else ""
            raise self.error(key, f"one of {_listed(names)}", repr(found), fix)
        return found

    def number(self, key: str, default: float | None = None, most: float = float("inf")) -> float:
        bound = "" if most == float("inf") else f", at most {most:g}"
        expected = f"a number above 0{bound}"
        found = self.take(key, expected, default)
        fits = isinstance(found, int | float) and not isinstance(found, bool)
        if not fits or not 0 < found <= most or found == float("inf"):
            raise self.error(key, expected, repr(found))
        return float(found)

    def whole(self, key: str, default: int | None = None) -> int:
        found = self.take(key, "a whole number, 0 or more", default)
        if not isinstance(found, int) or isinstance(found, bool) or found < 0:
            raise self.error(key, "a whole number, 0 or more", repr(found))
        return found

    def texts(self, key: str, expected: str) -> tuple[str, ...]:
        found = self.take(key, expected)
        items = _items(found, str)
        if not items:
            raise self.error(key, expected, repr(found))
        return tuple(items)

    def table(self, key: str, default: Mapping[str, Any] | None = None) -> _Reader:
        found: object = self.take(key, "a table", default)
        if not isinstance(found, dict):
            raise self.error(key, "a table", repr(found))
        where = ".".join(part for part in (self.where, key) if part)
        return _Reader(self.source, where, cast("dict[str, Any]", found))

    def tables(self, key: str) -> list[_Reader]:
        found = self.take(key, "a list of tables")
        items = _items(found, dict)
        if not items:
            raise self.error(key, "a list of tables", repr(found))
        where = ".".join(part for part in (self.where, key) if part)
        return [_Reader(self.source, f"{where}[{i}]", item) for i, item in enumerate(items)]

    def done(self, known: Iterable[str]) -> None:
        for key in self.left:
            names = tuple(known)
            close = get_close_matches(key, names, 1)
            fix = f"did you mean {close[0]}?" if close else ""
            raise self.error(key, f"one of the keys {_listed(names)}", "an unknown one", fix)


# --- parts of a file --------------------------------------------------------------------------


def _rates(reader: _Reader) -> Rates:
    found = Rates(
        reader.number("bytes_per_s"), reader.number("flops_per_s"), reader.number("step_ns", 1000.0)
    )
    reader.done(("bytes_per_s", "flops_per_s", "step_ns"))
    return found


def _dtypes(reader: _Reader) -> tuple[str, ...]:
    expected = f"a list of dtypes out of {_listed(DTYPES)}"
    found = reader.texts("dtypes", expected)
    for name in found:
        if name not in DTYPES:
            raise reader.error("dtypes", expected, repr(name))
    return found


def _blocks(reader: _Reader, dtypes: tuple[str, ...]) -> dict[str, int]:
    found = {name: reader.whole(name) for name in dtypes if name in reader.left}
    reader.done(dtypes)
    return found


def _kinds(reader: _Reader) -> dict[str, Kind]:
    expected = "a list of names of formats, one for each rank"
    found = {name: Kind(name, reader.texts(name, expected)) for name in tuple(reader.left)}
    if ND in found:
        raise reader.error(ND, "a name of your own", f"{ND}, which every target has")
    return found


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


def _check_formats(reader: _Reader, target: TableTarget) -> None:
    for part, kinds in (("data", target.data), ("weights", target.weights)):
        for kind in kinds.values():
            for name in kind.names:
                found, refused = _meanings(target, name)
                if not found:
                    expected = f"names of formats of {target.dialect}"
                    raise reader.error(f"{part}.{kind.name}", expected, f"{name!r}: {refused}")
                fits = any(fmt.axes in _DATA and not fmt.steps for fmt in found)
                if part == "data" and not fits:
                    expected = "formats over N, C and spatial axes, none of them fused"
                    raise reader.error(f"data.{kind.name}", expected, f"{name!r}: {found[0].text}")


_RULE = ("data", "takes", "gives", "weights", "efficiency", "most_channels")


def _rule(reader: _Reader, data: Iterable[str], weights: Iterable[str]) -> Rule:
    kinds = (ND, *data)
    both = reader.choice("data", kinds, ND) if "data" in reader.left else None
    if both is not None and {"takes", "gives"} & set(reader.left):
        raise reader.error("data", "either data, or takes and gives", "both")
    found = Rule(
        both or reader.choice("takes", kinds),
        both or reader.choice("gives", kinds),
        reader.choice("weights", (ND, *weights), ND),
        reader.number("efficiency", 1.0, most=1.0),
        reader.whole("most_channels", 0),
    )
    reader.done(_RULE)
    return found


def _rules(
    families: list[_Reader], data: Mapping[str, Kind], weights: Mapping[str, Kind]
) -> dict[str, tuple[Rule, ...]]:
    found: dict[str, tuple[Rule, ...]] = {}
    for family in families:
        ops = family.texts("ops", "a list of operators")
        rules = tuple(_rule(reader, data, weights) for reader in family.tables("rules"))
        family.done(("ops", "rules"))
        for op in ops:
            if op not in OPS:
                close = get_close_matches(op, OPS, 1)
                fix = f"did you mean {close[0]}?" if close else f"known are {_listed(OPS)}"
                raise family.error("ops", "operators of Stridewise", repr(op), fix)
            if op in found:
                raise family.error("ops", "every operator in one family", f"{op!r} once more")
            if op not in WEIGHTED and any(rule.weights != ND for rule in rules):
                expected = f"rules without weights, which only {_listed(sorted(WEIGHTED))} have"
                raise family.error("rules", expected, f"weights for {op!r}")
            found[op] = rules
    return found


_KEYS = ("name", "dialect", "dtypes", "padding", "rates", "reorder", "block", "data", "weights",
         "family", "default")  # fmt: skip


def _target(reader: _Reader) -> TableTarget:
    dtypes = _dtypes(reader)
    data, weights = _kinds(reader.table("data", {})), _kinds(reader.table("weights", {}))
    reorder = reader.table("reorder", {})
    default = reader.table("default", {})
    padding = reader.choice("padding", _PADDING, "zero")
    aliases = [alias for name in dialects() for alias in find(name).aliases]
    found = TableTarget(
        name=reader.text("name"),
        source=reader.source,
        dialect=find(reader.choice("dialect", (*dialects(), *aliases))).name,
        dtypes=frozenset(dtypes),
        padding="zero" if padding == "zero" else "unspecified",
        rates=_rates(reader.table("rates")),
        reorder=reorder.text("name", "reorder"),
        reorder_efficiency=reorder.number("efficiency", 1.0, most=1.0),
        blocks=_blocks(reader.table("block", {}), dtypes),
        data=data,
        weights=weights,
        rules=_rules(reader.tables("family"), data, weights),
        default=Rule(efficiency=default.number("efficiency", 1.0, most=1.0)),
    )
    reorder.done(("name", "efficiency"))
    default.done(("efficiency",))
    _check_formats(reader, found)
    reader.done(_KEYS)
    return found


def _read(text: str, source: str) -> TableTarget:
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise TargetError(
            describe(f"target {source}", expected="a TOML file", found=str(error))
        ) from error
    return _target(_Reader(source, "", table))


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
        raise TargetError(
            describe(f"target {os.fspath(path)}", expected="a TOML file in UTF-8", found=reason)
        ) from error
    return _read(text, os.fspath(path))


def shipped(name: str) -> TableTarget:
    """Return a target that comes with the package.

    Raises:
        KeyError: there is none of that name.
    """
    file = SHIPPED[name]
    return _read((files("stridewise.targets.tables") / file).read_text(encoding="utf-8"), file)
