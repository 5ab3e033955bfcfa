"""Frozen dataclasses as plain data and back, with every field checked on the way in.

Plain data is what JSON and TOML files hold. The types of the fields are the schema. A field whose
metadata has a ``"key"`` has that name in a document. A field with a default may be absent, and is
left out where it has that value.

JSON documents are printed for version control: one line for each field and each short list.
"""

from __future__ import annotations

import dataclasses
import json
import types
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import MISSING
from difflib import get_close_matches
from functools import cache
from math import isfinite
from typing import Annotated, Any, Literal, cast, get_args, get_origin, get_type_hints

from stridewise.classes import dataclass

__all__ = ["Check", "Reader", "dump", "encode", "finite", "shown", "suggestion"]

_SHORT = 6
"""Records of no more fields are printed in one line."""

_PLAIN = {str: "a string", int: "an integer", float: "a number", bool: "true or false"}


@cache
def _hints(cls: type) -> Mapping[str, Any]:
    return get_type_hints(cls, include_extras=True)


def _key(item: dataclasses.Field[Any]) -> str:
    return str(item.metadata.get("key", item.name))


def encode(value: Any) -> Any:
    """Return a record as plain data: mappings, lists, strings, numbers."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        items = dataclasses.fields(value)
        given = {item: getattr(value, item.name) for item in items}
        return {_key(item): encode(own) for item, own in given.items() if own != item.default}
    if isinstance(value, tuple):
        entries = cast(tuple[Any, ...], value)
        return [encode(entry) for entry in entries]
    if isinstance(value, Mapping):
        table = cast(Mapping[str, Any], value)
        return {key: encode(entry) for key, entry in table.items()}
    return value


def finite(number: float) -> float | None:
    """Return a number, or None for one that JSON has no name for."""
    return number if isfinite(number) else None


def shown(found: Any) -> str:
    """Return a value of a document as error messages print it."""
    text = json.dumps(found, default=str)
    return text if len(text) <= 60 else f"{text[:60]}..."


def suggestion(name: str, known: Iterable[str]) -> str:
    """Return a question that names the nearest of some names; "" if none is near."""
    close = get_close_matches(name, list(known), 1)
    return f"did you mean {close[0]}?" if close else ""


@dataclass(frozen=True, slots=True)
class Check:
    """A condition on the values of a type, given as ``Annotated[type, Check(...)]``.

    Attributes:
        expected: what an error message expects.
        holds: returns whether a value satisfies the condition.
    """

    expected: str
    holds: Callable[[Any], bool]


@dataclass(frozen=True, slots=True)
class Reader:
    """How one kind of document is read.

    >>> Reader(lambda *wrong: ValueError(wrong)).read(tuple[int, ...], [1, "b"])
    Traceback (most recent call last):
    ValueError: ('[1]', 'an integer', '"b"', '')

    Attributes:
        error: returns an exception for a path in the document, from what was expected there, what
            was found, and what to do ("" for nothing).
        table: what messages call a mapping.
        strict: whether unknown keys are errors; else they are ignored.
    """

    error: Callable[[str, str, str, str], Exception]
    table: str = "an object"
    strict: bool = False

    def read(self, expected: Any, value: Any, path: str = "", name: str = "") -> Any:
        """Return a value of a type from plain data.

        Args:
            expected: a frozen dataclass, ``str``, ``int``, ``float``, ``bool``, ``X | None``,
                ``Literal``, ``tuple[X, ...]``, ``Mapping[str, X]``, or one of these ``Annotated``
                with a :class:`Check`.
            value: plain data.
            path: where the value is in the document.
            name: what messages call the type; by default its usual name.

        Raises:
            Exception: the value has another type; what :attr:`error` returns.
        """
        origin, args = get_origin(expected), get_args(expected)
        if origin is Annotated:
            check: Check = args[1]
            found = self.read(args[0], value, path, check.expected)
            if not check.holds(found):
                raise self.error(path, check.expected, shown(value), "")
            return found
        if origin is tuple:
            entries = self._typed(list, name or "a list", value, path)
            return tuple(self.read(args[0], e, f"{path}[{i}]") for i, e in enumerate(entries))
        if origin is not None and isinstance(origin, type) and issubclass(origin, Mapping):
            table = self._typed(dict, name or self.table, value, path)
            return {key: self.read(args[1], e, _below(path, key)) for key, e in table.items()}
        if origin is Literal:
            if value not in args:
                fix = suggestion(str(value), map(str, args))
                raise self.error(path, f"one of {', '.join(map(str, args))}", shown(value), fix)
            return value
        if origin is types.UnionType:
            return None if value is None else self.read(args[0], value, path)
        if dataclasses.is_dataclass(expected):
            return self._record(cast(type, expected), value, path)
        return self._plain(expected, name or _PLAIN[expected], value, path)

    def _typed(self, kind: type, name: str, value: Any, path: str) -> Any:
        if not isinstance(value, kind):
            raise self.error(path, name, shown(value), "")
        return value

    def _record(self, cls: type, value: Any, path: str) -> Any:
        entries: dict[str, Any] = self._typed(dict, self.table, value, path)
        items = {_key(item): item for item in dataclasses.fields(cls)}
        for key in entries if self.strict else ():
            if key not in items:
                expected, fix = f"one of the keys {', '.join(items)}", suggestion(key, items)
                raise self.error(_below(path, key), expected, "an unknown one", fix)
        found: dict[str, Any] = {}
        for key, item in items.items():
            if key in entries:
                hint = _hints(cls)[item.name]
                found[item.name] = self.read(hint, entries[key], _below(path, key))
            elif item.default is MISSING and item.default_factory is MISSING:
                raise self.error(path, f"the key {key!r}", shown(sorted(entries)), "")
        return cls(**found)

    def _plain(self, expected: type, name: str, value: Any, path: str) -> Any:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if expected is float and is_number:
            with suppress(OverflowError):  # of a whole number beyond those of float64
                if isfinite(number := float(value)):
                    return number
        if expected is float or type(value) is not expected:
            raise self.error(path, name, shown(value), "")
        return value


def _below(path: str, key: str) -> str:
    """Return the path of an entry of a mapping."""
    if not key.isidentifier():
        return f"{path}[{key!r}]"
    return f"{path}.{key}" if path else key


# --- printing -----------------------------------------------------------------------------------


def _flat(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def _fields(entries: Mapping[str, Any], indent: str) -> str:
    lines = [f"{indent}  {_flat(key)}: {_flat(value)}" for key, value in entries.items()]
    return "{\n" + ",\n".join(lines) + f"\n{indent}}}"


def _is_long(item: Any) -> bool:
    return isinstance(item, dict) and len(cast(dict[str, Any], item)) > _SHORT


def _block(value: Any) -> str:
    """Return a field of a document: lists and tables in one line an entry, records in several."""
    if isinstance(value, dict) and value:
        entries = cast(dict[str, Any], value)
        return _fields(entries, "  ")
    if isinstance(value, list) and value:
        items = cast(list[Any], value)
        lines = [
            _fields(cast(dict[str, Any], item), "    ") if _is_long(item) else _flat(item)
            for item in items
        ]
        return "[\n" + ",\n".join(f"    {line}" for line in lines) + "\n  ]"
    return _flat(value)


def dump(document: Mapping[str, Any]) -> str:
    """Return an encoded document as text, the same for the same document.

    >>> print(dump({"version": 2, "nodes": [{"name": "a"}, {"name": "b"}]}), end="")
    {
      "version": 2,
      "nodes": [
        {"name": "a"},
        {"name": "b"}
      ]
    }
    """
    lines = [f"  {_flat(key)}: {_block(value)}" for key, value in document.items()]
    return "{\n" + ",\n".join(lines) + "\n}\n"
