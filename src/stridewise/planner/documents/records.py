"""Frozen dataclasses as JSON and back, every field checked on the way in.

The types of the fields are the schema. A field whose metadata has a ``"key"`` goes by that name in
JSON. One with a default is left out where it has that value. Documents are printed for version
control: one line a field, one line a short list.
"""

from __future__ import annotations

import dataclasses
import json
import types
from collections.abc import Mapping
from functools import cache
from math import isfinite
from typing import Any, Literal, cast, get_args, get_origin, get_type_hints

from stridewise.errors import PlanError, describe

__all__ = ["decode", "dump", "encode", "finite"]

_SHORT = 6
"""Records of no more fields are printed in one line."""

_PLAIN = {str: "a string", int: "an integer", float: "a number", bool: "true or false"}


@cache
def _hints(cls: type) -> Mapping[str, Any]:
    return get_type_hints(cls)


def _key(item: dataclasses.Field[Any]) -> str:
    return str(item.metadata.get("key", item.name))


def encode(value: Any) -> Any:
    """Return a record as what JSON knows: mappings, lists, strings, numbers."""
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


def _wrong(where: str, expected: str, found: Any) -> PlanError:
    shown = json.dumps(found)
    shown = shown if len(shown) <= 60 else f"{shown[:60]}..."
    return PlanError(
        describe(where, expected=expected, found=shown, fix="plan again, the file is damaged")
    )


def _decode_record(cls: type, value: Any, where: str) -> Any:
    if not isinstance(value, dict):
        raise _wrong(where, "an object", value)
    entries = cast(dict[str, Any], value)
    hints = _hints(cls)
    found: dict[str, Any] = {}
    for item in dataclasses.fields(cls):
        key = _key(item)
        if key not in entries and item.default is not dataclasses.MISSING:
            continue
        if key not in entries:
            raise _wrong(where, f"the field {key!r}", sorted(entries))
        found[item.name] = decode(hints[item.name], entries[key], f"{where}.{key}")
    return cls(**found)


def decode(expected: Any, value: Any, where: str) -> Any:
    """Return a value of a type from what JSON knows.

    Args:
        expected: a frozen dataclass, ``str``, ``int``, ``float``, ``X | None``, ``Literal``,
            ``tuple[X, ...]`` or ``Mapping[str, X]``.
        value: what was read.
        where: for messages: the file and the path inside of it.

    Raises:
        PlanError: the value is of another type; the message says where.
    """
    origin, args = get_origin(expected), get_args(expected)
    if origin is tuple:
        if not isinstance(value, list):
            raise _wrong(where, "a list", value)
        entries = cast(list[Any], value)
        return tuple(
            decode(args[0], entry, f"{where}[{index}]") for index, entry in enumerate(entries)
        )
    if origin is not None and issubclass(_class(origin), Mapping):
        if not isinstance(value, dict):
            raise _wrong(where, "an object", value)
        table = cast(dict[str, Any], value)
        return {key: decode(args[1], entry, f"{where}[{key!r}]") for key, entry in table.items()}
    if origin is Literal:
        if value not in args:
            raise _wrong(where, f"one of {', '.join(map(str, args))}", value)
        return value
    if origin is types.UnionType:
        return None if value is None else decode(args[0], value, where)
    if dataclasses.is_dataclass(expected):
        return _decode_record(_class(expected), value, where)
    return _decode_plain(expected, value, where)


def _class(value: Any) -> type:
    return value if isinstance(value, type) else object


def _decode_plain(expected: type, value: Any, where: str) -> Any:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if expected is float and is_number and isfinite(value):
        return float(value)
    if expected is float or type(value) is not expected:
        raise _wrong(where, _PLAIN[expected], value)
    return value


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
