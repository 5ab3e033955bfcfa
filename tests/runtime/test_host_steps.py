"""Host steps of the native program: memory, errors, threads, lifetimes."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from stridewise.runtime.binding.library import load_core

core = load_core()

ARENA, CONSTANTS, INPUTS, OUTPUTS = range(4)
N = 64

Views = list[np.ndarray[Any, Any]]


class UnhappyError(Exception):
    """An exception that only this test raises."""


def program(
    function: Callable[[Views], object], args: Sequence[tuple[int, int, int, int, bool]]
) -> Any:
    """Return a program that calls one function, over an arena, a constant, an input, an output."""
    made = core.Program(N, [np.arange(N, dtype=np.uint8)], [N], [N], 1)
    made.add_host(function, args)
    made.freeze()
    return made


def whole(space: int, written: bool = False) -> tuple[int, int, int, int, bool]:
    return space, 0, 0, N, written


def data(seed: int = 0) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).integers(0, 255, N, np.uint8)


def test_a_function_sees_its_arguments_in_order_and_writes_its_results():
    def add(views: Views) -> None:
        given, constant, result = views
        assert [view.dtype for view in views] == [np.uint8] * 3
        assert [view.flags.writeable for view in views] == [False, False, True]
        result[:] = given + constant

    half = N // 2
    made = program(
        add,
        [
            (INPUTS, 0, 0, half, False),
            (CONSTANTS, 0, half, half, False),
            (OUTPUTS, 0, 8, half, True),
        ],
    )
    x, y = data(), np.zeros(N, np.uint8)
    made.run([x], [y])
    expected = np.zeros(N, np.uint8)
    expected[8 : 8 + half] = x[:half] + np.arange(half, N, dtype=np.uint8)
    np.testing.assert_array_equal(y, expected)


def test_steps_hand_results_on_in_the_arena():
    made = core.Program(N, [], [N], [N], 1)
    made.add_host(lambda v: np.copyto(v[1], v[0]), [whole(INPUTS), whole(ARENA, written=True)])
    made.add_copy((OUTPUTS, 0, 0), (ARENA, 0, 0), N // 2)
    made.add_host(
        lambda v: np.negative(v[0], out=v[1]),
        [(ARENA, 0, N // 2, N // 2, False), (OUTPUTS, 0, N // 2, N // 2, True)],
    )
    made.freeze()
    x, y = data(), np.zeros(N, np.uint8)
    made.run([x], [y])
    np.testing.assert_array_equal(y, np.concatenate([x[: N // 2], -x[N // 2 :]]))


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ([(ARENA, 0, 0, N + 1, False)], "65 bytes at offset 0 do not fit"),
        ([(ARENA, 0, N + 1, 0, False)], "do not fit into the 64 bytes of arena"),
        ([(INPUTS, 1, 0, 1, False)], r"there is no inputs\[1\]"),
        ([(7, 0, 0, 1, False)], "space: expected 0"),
        ([whole(INPUTS, written=True)], r"inputs\[0\] is read only"),
        ([whole(CONSTANTS, written=True)], r"constants\[0\] is read only"),
        ([whole(ARENA), (ARENA, 0, 8, 8, True)], "a result in arena overlaps another argument"),
        ([(ARENA, 0, 0, 9, True), (ARENA, 0, 8, 8, True)], "overlaps another argument"),
        ([(ARENA, 0, -1, 1, False)], "offset_bytes: expected at least 0"),
        ([(ARENA, 0, 0, 1)], "expected 5 values, got 4"),
    ],
)
def test_arguments_that_lie_nowhere_are_refused(args, message):
    with pytest.raises(ValueError, match=message):
        program(lambda _: None, args)


def test_empty_arguments_and_none_at_all_are_fine():
    seen: list[list[int]] = []
    args = [(ARENA, 0, 32, 0, True), whole(ARENA, written=True), (ARENA, 0, N, 0, False)]
    made = program(lambda views: seen.append([view.size for view in views]), args)
    made.run([data()], [data()])
    program(lambda views: seen.append([view.size for view in views]), []).run([data()], [data()])
    assert seen == [[0, N, 0], []]


def test_frozen_programs_take_no_host_steps():
    made = program(lambda _: None, [])
    with pytest.raises(RuntimeError, match="frozen"):
        made.add_host(lambda _: None, [])


@pytest.mark.parametrize("how", ["run", "profile", "trace"])
def test_exceptions_leave_as_they_are_and_contexts_stay_usable(how):
    angry = True

    def copy(views: Views) -> None:
        if angry:
            raise UnhappyError("today")
        views[1][:] = views[0]

    made = program(copy, [whole(INPUTS), whole(OUTPUTS, written=True)])
    x, y = data(), np.zeros(N, np.uint8)
    more = {"run": (), "profile": (2,), "trace": (lambda *_: None,)}[how]
    for _ in range(3):
        with pytest.raises(UnhappyError, match="today"):
            getattr(made, how)([x], [y], *more)
    angry = False
    getattr(made, how)([x], [y], *more)
    np.testing.assert_array_equal(x, y)
    assert made.context_count == 1


def test_views_that_are_kept_keep_their_memory():
    kept: Views = []
    args = [whole(ARENA, written=True), whole(CONSTANTS), whole(INPUTS), whole(OUTPUTS, True)]

    def keep(views: Views) -> None:
        views[0][:] = 7
        views[3][:] = 9
        kept.extend(views)

    made = program(keep, args)
    x = data()
    expected = [np.full(N, 7), np.arange(N), x.copy(), np.full(N, 9)]
    made.run([x], [np.empty(N, np.uint8)])
    del made, x
    gc.collect()
    filler = [np.zeros(N, np.uint8) for _ in range(1000)]  # whatever is free is written over
    for view, wanted in zip(kept, expected, strict=True):
        np.testing.assert_array_equal(view, wanted)
    assert len(filler) == 1000


def test_a_program_releases_its_function_and_what_that_holds():
    class Held:
        def __call__(self, views: Views) -> None:
            views[0][:] = 1

    function = Held()
    ref = weakref.ref(function)
    made = program(function, [whole(OUTPUTS, written=True)])
    made.run([data()], [data()])
    del function
    assert ref() is not None
    del made
    gc.collect()
    assert ref() is None


def test_arguments_are_released_after_each_run():
    made = program(
        lambda views: np.copyto(views[1], views[0]), [whole(INPUTS), whole(OUTPUTS, True)]
    )
    x, y = data(), np.zeros(N, np.uint8)
    refs = weakref.ref(x), weakref.ref(y)
    made.run([x], [y])
    del x, y
    gc.collect()
    assert [ref() for ref in refs] == [None, None]


def test_many_threads_run_one_program_at_a_time_each_in_its_own_arena():
    meet = threading.Barrier(4, timeout=300)

    def copy(views: Views) -> None:
        views[1][:] = views[0]
        meet.wait()  # all four are in here now
        views[2][:] = views[1]

    made = program(copy, [whole(INPUTS), whole(ARENA, True), whole(OUTPUTS, True)])

    def call(seed: int) -> bool:
        x, y = data(seed), np.zeros(N, np.uint8)
        made.run([x], [y])
        return bool((x == y).all())

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(call, range(40)))
    assert made.context_count == 4


def test_a_function_may_run_its_own_program():
    depth = 0
    programs: list[Any] = []

    def deeper(views: Views) -> None:
        nonlocal depth
        depth += 1
        views[1][:] = views[0]
        if depth < 5:
            inner = np.zeros(N, np.uint8)
            programs[0].run([views[0].copy()], [inner])
            np.testing.assert_array_equal(views[1], inner)

    programs.append(program(deeper, [whole(INPUTS), whole(OUTPUTS, True)]))
    x, y = data(), np.zeros(N, np.uint8)
    programs[0].run([x], [y])
    np.testing.assert_array_equal(x, y)
    assert (depth, programs[0].context_count) == (5, 5)
    programs.clear()  # the collector does not see that the function leads back to it
