"""The attributes of operators: their names, and what kind of value each has."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, cast

from stridewise.dtypes import DTYPES
from stridewise.errors import GraphError
from stridewise.graph import Attr, ForeignPart, Node

__all__ = ["WINDOW", "Attributes", "Kind", "attribute", "check_attributes", "each"]

Kind = Literal["flag", "integer", "number", "text", "integers", "numbers", "texts", "dtype", "part"]

Attributes = Mapping[str, Kind]
"""The attributes of an operator, by name."""


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return _is_integer(value) or isinstance(value, float)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_dtype(value: Any) -> bool:
    return any(value in (dtype.name, dtype.short) for dtype in DTYPES.values())


def _tuple_of(is_item: Callable[[Any], bool]) -> Callable[[Any], bool]:
    def is_tuple(value: Any) -> bool:
        return isinstance(value, tuple) and all(map(is_item, cast("tuple[Any, ...]", value)))

    return is_tuple


_KINDS: Mapping[Kind, tuple[str, Callable[[Any], bool]]] = {
    "flag": ("0 or 1", lambda value: _is_integer(value) and value in (0, 1)),
    "integer": ("an integer", _is_integer),
    "number": ("a number", _is_number),
    "text": ("a string", _is_text),
    "integers": ("a tuple of integers", _tuple_of(_is_integer)),
    "numbers": ("a tuple of numbers", _tuple_of(_is_number)),
    "texts": ("a tuple of strings", _tuple_of(_is_text)),
    "dtype": (f"one of {', '.join(DTYPES)}", _is_dtype),
    "part": ("a foreign part", lambda value: isinstance(value, ForeignPart)),
}


def each(kind: Kind, *names: str) -> dict[str, Kind]:
    """Return attributes of one kind.

    >>> each("flag", "trans_a", "trans_b")
    {'trans_a': 'flag', 'trans_b': 'flag'}
    """
    return dict.fromkeys(names, kind)


WINDOW: Attributes = each("integers", "strides", "dilations", "pads")
"""The attributes of convolutions and poolings that have one number for each spatial axis."""


def check_attributes(node: Node, known: Attributes) -> None:
    """Check that a node has only attributes of its operator, each once and of the right kind.

    Raises:
        GraphError: it has another one; the message names the node and the attribute.
    """
    seen = set[str]()
    for key, value in node.attrs:
        if key not in known or key in seen:
            where = f"node {node.name!r} ({node.op})"
            names = ", ".join(known) or "none"
            found = f"{key!r} twice" if key in seen else repr(key)
            raise GraphError.at(where, expected=f"attributes among: {names}", found=found)
        seen.add(key)
        expected, is_right = _KINDS[known[key]]
        if not is_right(value):
            where = f"node {node.name!r} ({node.op}), attribute {key!r}"
            raise GraphError.at(where, expected=expected, found=repr(value))


def attribute(value: Attr) -> Attr:
    """Return an attribute as nodes store it: truth values as 0 and 1.

    >>> attribute(True)
    1
    """
    return int(value) if isinstance(value, bool) else value
