"""Changes of a line that keep channels-last; each is tried in a run before it is proposed."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from stridewise.frontends.torch.library import torch
from stridewise.torch.findings import OperatorLayout
from stridewise.torch.layouts import Place

__all__ = ["Change", "changes"]

_FORMATS = ("channels_last", "channels_last_3d")

_Operator = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Change:
    """A change of one line.

    Attributes:
        place: the line.
        patch: the line and what to write instead.
        instead: runs an operator of that line as the changed line would: its overload, its
            arguments and its options.
    """

    place: Place
    patch: tuple[str, str]
    instead: Callable[[_Operator, Any, Any], Any]


def changes(where: OperatorLayout) -> Iterator[Change]:
    """Return changes that may keep channels-last at an operator, the simplest first.

    Args:
        where: the operator that loses it.
    """
    place, name = where.place, where.operator.split(".")[1]
    if name == "view":
        yield from _replaced(place, ".view(", ".reshape(", _left_out)
    elif name in ("clone", "_to_copy", "copy_"):
        yield from _replaced(place, ".contiguous().view(", ".reshape(", _left_out)
        for known in _FORMATS:
            named = f".contiguous(memory_format=torch.{known})"
            yield from _replaced(place, ".contiguous()", named, _stored(known))
        yield from _replaced(place, ".contiguous()", "", _left_out)
        kept = _stored("preserve_format")
        yield from _replaced(place, "torch.contiguous_format", "torch.preserve_format", kept)
    elif name != "as_strided":  # a copy would keep what is wrong
        yield from _appended(place, name)


def _replaced(
    place: Place, old: str, new: str, instead: Callable[[_Operator, Any, Any], Any]
) -> Iterator[Change]:
    text = place.text
    if text.count(old) == 1:
        yield Change(place, (text, text.replace(old, new)), instead)


def _appended(place: Place, name: str) -> Iterator[Change]:
    """Return the changes that convert the result of the one call of a function in a line."""
    text = place.text
    try:
        nodes = list(ast.walk(ast.parse(text)))
    except SyntaxError:  # a part of a statement
        return
    calls = [node for node in nodes if isinstance(node, ast.Call)]
    named = [c for c in calls if isinstance(c.func, ast.Attribute) and c.func.attr == name]
    for call in named if len(named) == 1 else ():
        end = len(text.encode()[: call.end_col_offset].decode())
        for known in _FORMATS:
            suffix = f".contiguous(memory_format=torch.{known})"
            yield Change(place, (text, text[:end] + suffix + text[end:]), _converted(name, known))


def _left_out(operator: _Operator, args: Any, options: Any) -> Any:
    """Leave copies out, and let views copy where they have to."""
    if operator is torch.ops.aten.clone.default:
        return torch.ops.aten.alias.default(args[0])
    try:
        return operator(*args, **options)
    except RuntimeError:
        if operator is not torch.ops.aten.view.default:
            raise
        return operator(_copy(args[0], "contiguous_format"), *args[1:])


def _copy(x: Any, memory_format: str) -> Any:
    """Return a copy, by an operator that is watched, too."""
    found = getattr(torch, memory_format)
    return torch.ops.aten.clone.default(x, memory_format=found)


def _stored(memory_format: str) -> Callable[[_Operator, Any, Any], Any]:
    """Return what copies into a memory format."""

    def run(operator: _Operator, args: Any, options: Any) -> Any:
        if "memory_format" in options:
            options = {**options, "memory_format": getattr(torch, memory_format)}
        return operator(*args, **options)

    return run


def _converted(name: str, memory_format: str) -> Callable[[_Operator, Any, Any], Any]:
    """Return what converts the results of an operator."""

    def run(operator: Any, args: Any, options: Any) -> Any:
        found = operator(*args, **options)
        is_named = str(operator).split(".")[1] == name
        return _copy(found, memory_format) if is_named else found

    return run
