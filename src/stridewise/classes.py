"""Dataclasses whose methods are made when they are first needed.

The standard library compiles all methods of a dataclass when the class is created. For the classes
that a start imports, this takes longer than loading a stored model, and most of these methods are
never called. Here each method is made when it is first called, and only ``__init__`` is compiled:
the others read the fields whose names they are given. The standard library finds the fields, so
that its functions know these classes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from dataclasses import MISSING, Field, FrozenInstanceError
from operator import attrgetter
from reprlib import recursive_repr
from threading import RLock
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, cast

__all__ = ["HASH", "dataclass"]

HASH = "_hash_"
"""The slot that keeps the hash of an object, which is no field. Kernels and storages are keys of
many tables, and hashing all that they consist of takes a tenth of the time to plan."""

_GENERATING = RLock()
_Options = dict[str, bool]
_SUPPORTED = {"eq", "frozen", "init", "kw_only", "repr", "slots"}


class _Factory:
    """The default of an argument whose value a function makes, as signatures show it."""

    def __repr__(self) -> str:
        return "<factory>"


_FACTORY = _Factory()


class _Later:
    """A class with slots, and what will be added to it.

    Attributes:
        of: the class.
        body: its content as it is written.
        options: those of ``dataclasses.dataclass``.
    """

    __slots__ = ("_missing", "body", "of", "options")

    of: type

    def __init__(self, body: dict[str, Any], options: _Options) -> None:
        self.body, self.options = body, options
        self._missing: dict[str, Callable[[_Later], Any]] = {}

    def attributes(self, content: dict[str, Any]) -> dict[str, Any]:
        """Return what stands for attributes until they are made.

        Args:
            content: what the class defines itself, which stays.
        """
        # Python itself adds None as the hash of a class that defines a comparison.
        made = {n: make for n, make in _methods(self.options).items() if content.get(n) is None}
        found: dict[str, Any] = {name: _method(name, self) for name in made}
        found |= {name: _Attribute(name, self) for name in _ATTRIBUTES}
        self._missing = {**made, **_ATTRIBUTES}
        return found

    def get(self, name: str) -> Any:
        """Return an attribute of the class, which is made at the first time."""
        with _GENERATING:
            if name in self._missing:
                setattr(self.of, name, self._missing[name](self))
                del self._missing[name]
        return getattr(self.of, name)

    def by_library(self, **options: bool) -> type:
        """Return what the standard library makes of the class, with other options than its own."""
        try:
            draft = type(self.of)(self.of.__name__, self.of.__bases__, dict(self.body))
        except RuntimeError as error:  # how Python reports Ctrl-C within __set_name__
            raise (error.__cause__ or error) from None
        draft.__qualname__ = self.of.__qualname__
        return dataclasses.dataclass(**{**self.options, **options})(draft)

    @property
    def fields(self) -> tuple[Field[Any], ...]:
        """The fields of the class and those that it inherits."""
        return dataclasses.fields(self.of)


class _Attribute:
    """An attribute of a class that is made when it is read."""

    __slots__ = ("_later", "_name")

    def __init__(self, name: str, later: _Later) -> None:
        self._name, self._later = name, later

    def __get__(self, instance: object, owner: type) -> Any:
        return self._later.get(self._name)


def _method(name: str, later: _Later) -> Callable[..., Any]:
    """Return a method that makes the method of that name and calls it."""

    def method(self: object, *args: Any, **kwargs: Any) -> Any:
        return later.get(name)(self, *args, **kwargs)

    return method


# --- attributes that are no methods ---------------------------------------------------------------


def _found_fields(later: _Later) -> object:
    # The library compiles methods of frozen classes, and only heirs of such must be frozen.
    inherits = any("__dataclass_fields__" in vars(base) for base in later.of.__mro__[1:])
    is_frozen = inherits and later.options.get("frozen", False)
    found = later.by_library(init=False, repr=False, eq=False, slots=False, frozen=is_frozen)
    return vars(found)["__dataclass_fields__"]


def _params(later: _Later) -> object:
    return vars(later.by_library())["__dataclass_params__"]


def _match_args(later: _Later) -> tuple[str, ...]:
    return tuple(item.name for item in later.fields if item.init and not item.kw_only)


def _signature(later: _Later) -> object:
    if later.options.get("init", True):
        later.get("__init__")
    raise AttributeError("__signature__")  # it follows from __init__


_ATTRIBUTES: dict[str, Callable[[_Later], Any]] = {
    "__dataclass_fields__": _found_fields,
    "__dataclass_params__": _params,
    "__match_args__": _match_args,
    "__signature__": _signature,
}


# --- methods --------------------------------------------------------------------------------------


def _init(later: _Later) -> Callable[..., None]:
    me = "self" if all(item.name != "self" for item in later.fields) else "__dataclass_self__"
    scope: dict[str, Any] = {"__name__": later.of.__module__, "__factory__": _FACTORY}
    lines: list[str] = []
    for at, item in enumerate(later.fields):
        if item.init or _default(item) is not MISSING:
            # The setter of a slot is faster than `object.__setattr__`, and than looking it up.
            scope[f"__set_{at}__"] = getattr(later.of, item.name).__set__
            scope[f"__make_{at}__"] = item.default_factory
            scope[f"__default_{at}__"] = _default(item)
            value = item.name if item.init else f"__default_{at}__"
            if item.default_factory is not MISSING:
                value = f"__make_{at}__() if {value} is __factory__ else {value}"
            lines.append(f"__set_{at}__({me}, {value})")
    if hasattr(later.of, "__post_init__"):
        lines.append(f"{me}.__post_init__()")
    places = [item for item in later.fields if item.init and not item.kw_only]
    names = [item for item in later.fields if item.init and item.kw_only]
    head = [me, *(item.name for item in places), *["*"] * bool(names)]
    head += [item.name for item in names]
    text = "\n ".join([f"def __init__({', '.join(head)}):", *(lines or ["pass"])])
    exec(text, scope)  # of identifiers, as in the standard library
    return _with_defaults(scope["__init__"], later.of, places, names)


def _default(item: Field[Any]) -> Any:
    return item.default if item.default_factory is MISSING else _FACTORY


def _with_defaults(
    init: Any, of: type, places: Iterable[Field[Any]], names: Iterable[Field[Any]]
) -> Callable[..., None]:
    """Return the compiled method with its defaults and annotations."""
    defaults: list[Any] = []
    for item in places:
        if _default(item) is not MISSING:
            defaults.append(_default(item))
        elif defaults:
            raise TypeError(f"non-default argument {item.name!r} follows default argument")
    init.__defaults__ = tuple(defaults)
    init.__kwdefaults__ = {i.name: _default(i) for i in names if _default(i) is not MISSING}
    init.__annotations__ = {item.name: item.type for item in (*places, *names)} | {"return": None}
    init.__qualname__ = f"{of.__qualname__}.__init__"
    return init


def _values(names: Iterable[str]) -> Callable[[Any], tuple[object, ...]]:
    """Return a function that returns the values of some fields of an object."""
    kept = tuple(names)
    if len(kept) > 1:
        return attrgetter(*kept)
    return lambda item: tuple(getattr(item, name) for name in kept)


def _eq(later: _Later) -> Callable[[Any, object], bool]:
    values = _values(item.name for item in later.fields if item.compare)

    def eq(self: object, other: object) -> bool:
        if other.__class__ is self.__class__:
            return values(self) == values(other)
        return NotImplemented

    return eq


def _hash(later: _Later) -> Callable[[Any], int]:
    counts = (item for item in later.fields if (item.compare if item.hash is None else item.hash))
    values, keep = _values(item.name for item in counts), getattr(later.of, HASH).__set__

    def hashed(self: Any) -> int:
        try:
            return self._hash_
        except AttributeError:
            found = hash(values(self))
            keep(self, found)
            return found

    return hashed


def _repr(later: _Later) -> Callable[[Any], str]:
    names = [item.name for item in later.fields if item.repr]

    def text(self: object) -> str:
        content = ", ".join(f"{name}={getattr(self, name)!r}" for name in names)
        return f"{self.__class__.__qualname__}({content})"

    return recursive_repr()(text)


def _frozen(
    later: _Later, verb: str, change: Callable[[object], Callable[..., None]]
) -> Callable[..., None]:
    """Return a method that refuses to change fields, and attributes of the class itself."""
    of, names = later.of, {item.name for item in later.fields}

    def changed(self: object, name: str, *value: object) -> None:
        if type(self) is of or name in names:
            raise FrozenInstanceError(f"cannot {verb} field {name!r}")
        change(cast("object", super(of, self)))(name, *value)

    return changed


def _setattr(later: _Later) -> Callable[..., None]:
    return _frozen(later, "assign to", attrgetter("__setattr__"))


def _delattr(later: _Later) -> Callable[..., None]:
    return _frozen(later, "delete", attrgetter("__delattr__"))


class _View:
    """What stands for a read-only view of a dictionary, which Python does not pickle."""

    def __init__(self, content: dict[Any, Any]) -> None:
        self.content = content

    @classmethod
    def of(cls, item: Any) -> _View | None:
        if type(item) is not MappingProxyType:
            return None
        return cls(dict(cast("MappingProxyType[Any, Any]", item)))

    def shown(self) -> MappingProxyType[Any, Any]:
        return MappingProxyType(self.content)


def _getstate(later: _Later) -> Callable[[Any], list[object]]:
    values = _values(item.name for item in later.fields)

    def getstate(self: object) -> list[object]:
        return [_View.of(item) or item for item in values(self)]

    return getstate


def _setstate(later: _Later) -> Callable[[Any, Iterable[object]], None]:
    names = [item.name for item in later.fields]

    def setstate(self: object, state: Iterable[object]) -> None:
        for name, value in zip(names, state, strict=True):
            whole = value.shown() if isinstance(value, _View) else value
            object.__setattr__(self, name, whole)

    return setstate


def _methods(options: _Options) -> dict[str, Callable[[_Later], Any]]:
    """Return what makes the methods of a class."""
    is_frozen, is_compared = options.get("frozen", False), options.get("eq", True)
    found: dict[str, Callable[[_Later], Any]] = {}
    if options.get("init", True):
        found["__init__"] = _init
    if options.get("repr", True):
        found["__repr__"] = _repr
    if is_compared:
        found["__eq__"] = _eq
    if is_compared and is_frozen:
        found["__hash__"] = _hash
    if is_frozen:
        found |= {"__setattr__": _setattr, "__delattr__": _delattr}
        found |= {"__getstate__": _getstate, "__setstate__": _setstate}
    return found


def _with_slots(draft: type, options: _Options) -> type:
    """Return a class with slots for its fields; ``draft`` is the class as it is written."""
    of_draft = ("__dict__", "__weakref__")
    body = {name: item for name, item in vars(draft).items() if name not in of_draft}
    names = body.get("__annotations__", {})
    inherited = {name for base in draft.__mro__[1:] for name in vars(base).get("__slots__", ())}
    content = {name: item for name, item in body.items() if name not in names}
    slots = tuple(name for name in names if name not in inherited)
    later = _Later(body, options)
    content |= later.attributes(content)
    is_hashed = body.get("__hash__") is None and "__hash__" in _methods(options)
    content["__slots__"] = (*slots, HASH) if is_hashed and HASH not in inherited else slots
    later.of = type(draft)(draft.__name__, draft.__bases__, content)
    later.of.__qualname__ = draft.__qualname__
    return later.of


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
