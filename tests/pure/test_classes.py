"""Dataclasses whose methods come later are those of the standard library."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
import threading
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stridewise import classes

Decorator = Callable[..., Callable[[type], type]]

OPTIONS = st.fixed_dictionaries(
    {"frozen": st.booleans(), "slots": st.booleans()},
    optional={name: st.booleans() for name in ("init", "repr", "eq", "kw_only")},
)
DEFAULTS = ("", "= 1", "= field(default=2, compare=False)", "= field(default_factory=list)")
FIELDS = st.lists(st.sampled_from(DEFAULTS), min_size=1, max_size=4)
OWN = st.sets(st.sampled_from(["__eq__", "__hash__", "__repr__", "__post_init__"]))
BODIES = {
    "__eq__": "def __eq__(self, other): return type(other) is type(self)",
    "__hash__": "def __hash__(self): return 7",
    "__repr__": "def __repr__(self): return 'own'",
    "__post_init__": "def __post_init__(self): assert self is not None",
}


def made(
    decorator: Decorator, options: dict[str, bool], fields: list[str], own: set[str]
) -> tuple[type, type]:
    """Return a dataclass, and one that inherits from it."""
    ordered = sorted(fields, key=lambda item: item != "")  # those without defaults come first
    lines = [f"    f{at}: int {default}" for at, default in enumerate(ordered)]
    lines += [f"    {BODIES[name]}" for name in sorted(own)]
    text = "\n".join(
        ["from __future__ import annotations", "@decorator(**options)", "class A:", *lines]
    )
    text += "\n@decorator(**options)\nclass B(A):\n    last: int = 5\n"
    scope: dict[str, Any] = {"decorator": decorator, "options": options, "__name__": __name__}
    exec(text, scope | {"field": dataclasses.field}, scope)
    return scope["A"], scope["B"]


def outcome(call: Callable[[], Any]) -> object:
    """Return the result of a call as a text, or the kind of its error."""
    try:
        return repr(call()).replace("0x", "")
    except Exception as error:
        return type(error)


def behaviour(of: type, options: dict[str, bool]) -> list[object]:
    """Return what a class does, in an order in which every question may be the first."""
    names = [item.name for item in dataclasses.fields(of)]
    given = dict.fromkeys(names, 3) if options.get("init", True) else {}

    def one(**values: int) -> Any:
        found: Any = of(**given | values)
        if not given:
            for name in names:
                object.__setattr__(found, name, 3)
        return found

    def written() -> object:
        found = one()
        setattr(found, names[0], 4)
        return getattr(found, names[0])

    with_text = {"repr": True} | options
    questions: list[Callable[[], Any]] = [
        lambda: one() == one(),
        lambda: one() == copy.copy(one()),
        lambda: one(f0=8) != one(f0=9),
        lambda: len({hash(item) for item in [one(), one()]}),  # both live: hashes may be places
        lambda: dataclasses.replace(one(), f0=9) == one(f0=9),
        lambda: inspect.signature(of),
        lambda: of.__match_args__,
        lambda: [(item.name, item.compare, item.default) for item in dataclasses.fields(of)],
        lambda: of.__dataclass_params__,
        lambda: hasattr(one(), "__dict__"),
        lambda: [name for name in vars(of).get("__slots__", ()) if name != classes.HASH],
        lambda: of(1, 2, 3, 4, 5, 6, 7),
        written,
    ]
    if with_text["repr"]:
        questions.append(one)
    return [outcome(question) for question in questions]


@given(OPTIONS, FIELDS, OWN)
def test_a_class_behaves_as_that_of_the_standard_library(
    options: dict[str, bool], fields: list[str], own: set[str]
) -> None:
    pairs = zip(
        made(dataclasses.dataclass, options, fields, own),
        made(classes.dataclass, options, fields, own),
        strict=True,
    )
    for theirs, ours in pairs:
        assert behaviour(ours, options) == behaviour(theirs, options)


@classes.dataclass(frozen=True, slots=True)
class Point:
    """A class that can be pickled."""

    x: int
    y: tuple[int, ...] = ()


@given(st.integers(), st.lists(st.integers()).map(tuple))
def test_objects_are_copied_and_pickled(x: int, y: tuple[int, ...]) -> None:
    point = Point(x, y)
    for found in (copy.copy(point), copy.deepcopy(point), pickle.loads(pickle.dumps(point))):
        assert found == point


@given(st.integers(), st.integers())
def test_kept_hashes_are_those_of_their_objects_only(x: int, z: int) -> None:
    point = Point(x)
    kept = hash(point)
    assert kept == hash(point) == hash(Point(x))
    for found in (copy.copy(point), copy.deepcopy(point), pickle.loads(pickle.dumps(point))):
        assert not hasattr(found, classes.HASH)  # texts have other hashes in other processes
        assert hash(found) == kept
    assert hash(dataclasses.replace(point, x=z)) == hash(Point(z))


def test_objects_made_without_init_are_frozen_too() -> None:
    @classes.dataclass(frozen=True, slots=True)
    class One:
        x: int

    found: Any = object.__new__(One)
    with pytest.raises(dataclasses.FrozenInstanceError):
        found.x = 1


def test_threads_may_use_a_class_for_the_first_time_at_once() -> None:
    for _ in range(20):

        @classes.dataclass(frozen=True, slots=True)
        class One:
            x: int

        start, found = threading.Barrier(4), list[Any]()

        def make(of: Any = One, start: threading.Barrier = start, found: list[Any] = found) -> None:
            start.wait()
            found.append(of(1))

        threads = [threading.Thread(target=make) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert found == [One(1)] * 4


def test_nothing_is_generated_before_its_use() -> None:
    @classes.dataclass(frozen=True, slots=True)
    class One:
        x: int

    before = vars(One)["__hash__"]
    One(1)
    assert vars(One)["__hash__"] is before  # still the one that generates the other
    hash(One(1))
    assert vars(One)["__hash__"] is not before


def test_other_options_are_refused() -> None:
    with pytest.raises(TypeError, match="does not support order"):
        classes.dataclass(order=True, slots=True)(Point)
