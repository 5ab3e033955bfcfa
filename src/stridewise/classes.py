"""Dataclasses whose methods are generated when they are first needed.

The standard library compiles all methods of a dataclass when the class is created. For the classes
that a start imports, this takes longer than loading a stored model, and most of these methods are
never called. Here the standard library generates methods when one of them is first called: those
that make objects, and those that compare and print them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from threading import RLock
from typing import TYPE_CHECKING, Any

__all__ = ["dataclass"]

_GENERATING = RLock()
_Options = dict[str, bool]
_SUPPORTED = {"eq", "frozen", "init", "kw_only", "repr", "slots"}


class _Attribute:
    """An attribute of a class that is generated when it is read."""

    __slots__ = ("_generate", "_name")

    def __init__(self, name: str, generate: Callable[[], type]) -> None:
        self._name, self._generate = name, generate

    def __get__(self, instance: object, owner: type) -> Any:
        return getattr(self._generate(), self._name)


def _method(name: str, generate: Callable[[], type]) -> Callable[..., Any]:
    """Return a method that generates the method of that name and calls it."""

    def method(self: object, *args: Any, **kwargs: Any) -> Any:
        return getattr(generate(), name)(self, *args, **kwargs)

    return method


_Group = tuple[Sequence[str], Sequence[str], _Options]
"""Methods and other attributes that are generated together, and by which options."""


def _groups(options: _Options) -> tuple[_Group, _Group]:
    """Return what the standard library adds to a class."""
    is_frozen, is_compared = options.get("frozen", False), options.get("eq", True)
    makes = ["__init__"] * options.get("init", True)
    makes += ["__setattr__", "__delattr__", "__getstate__", "__setstate__"] * is_frozen
    asks = ["__repr__"] * options.get("repr", True) + ["__eq__"] * is_compared
    asks += ["__hash__"] * (is_compared and is_frozen)
    found = ("__dataclass_fields__", "__match_args__", "__signature__")
    return (
        (makes, found, {**options, "repr": False, "eq": False}),
        (asks, ("__dataclass_params__",), options),
    )


def _with_slots(draft: type, options: _Options) -> type:
    """Return a class with slots for its fields; ``draft`` is the class as it is written."""
    of_draft = ("__dict__", "__weakref__")
    body = {name: item for name, item in vars(draft).items() if name not in of_draft}
    names = body.get("__annotations__", {})
    inherited = {name for base in draft.__mro__[1:] for name in vars(base).get("__slots__", ())}
    content = {name: item for name, item in body.items() if name not in names}
    content["__slots__"] = tuple(name for name in names if name not in inherited)
    for group in _groups(options):
        content |= _later(group, content, lambda: found, body)
    found = type(draft)(draft.__name__, draft.__bases__, content)
    found.__qualname__ = draft.__qualname__
    return found


def _later(
    group: _Group, content: dict[str, Any], of: Callable[[], type], body: dict[str, Any]
) -> dict[str, Any]:
    """Return the attributes of a group until they are generated.

    Args:
        group: what the standard library generates.
        content: what the class defines itself, which stays.
        of: returns the class.
        body: what the class was written with.
    """
    methods, attributes, options = group

    def generate() -> type:
        found = of()
        with _GENERATING:
            if later:
                draft = type(found)(found.__name__, found.__bases__, dict(body))
                draft.__qualname__ = found.__qualname__
                made = vars(dataclasses.dataclass(**options)(draft))
                for name in later:
                    if name in made:
                        setattr(found, name, made[name])
                    else:  # __signature__ follows from __init__
                        delattr(found, name)
                later.clear()
        return found

    later: dict[str, Any] = {
        # Python itself adds None as the hash of a class that defines a comparison.
        **{name: _method(name, generate) for name in methods if content.get(name) is None},
        **{name: _Attribute(name, generate) for name in attributes},
    }
    return later


if TYPE_CHECKING:
    from dataclasses import dataclass
else:

    def dataclass(draft=None, /, **options):
        """Return a class as a dataclass; ``dataclasses.dataclass`` has the description.

        Classes without slots are complete at once.

        Args:
            draft: the class.
            **options: ``init``, ``repr``, ``eq``, ``frozen``, ``slots`` and ``kw_only``.

        Raises:
            TypeError: there is another option.

        >>> @dataclass(frozen=True, slots=True)
        ... class Point:
        ...     x: int
        ...     y: int = 0
        >>> Point(1)
        Point(x=1, y=0)
        """
        if draft is None:
            return lambda draft: dataclass(draft, **options)
        if unknown := options.keys() - _SUPPORTED:
            raise TypeError(f"dataclass() does not support {', '.join(sorted(unknown))}")
        if not options.get("slots"):
            return dataclasses.dataclass(**options)(draft)
        return _with_slots(draft, options)
