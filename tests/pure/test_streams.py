"""Requests in threads: their order, how many are taken, and how they end. No model takes part."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator
from concurrent.futures import CancelledError

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.stream_threads import gone, ours

import stridewise as sw
from stridewise.runtime.execution.streams import Streams, stream_threads


@given(
    delays=st.lists(st.integers(0, 3), max_size=12),
    count=st.integers(1, 4),
    ahead=st.none() | st.integers(1, 8),
)
def test_map_keeps_the_order_and_takes_no_more_than_it_may(
    delays: list[int], count: int, ahead: int | None
) -> None:
    streams = Streams(count)
    taken = read = running = most = 0
    lock = threading.Lock()

    def items() -> Iterator[tuple[int, int]]:
        nonlocal taken
        for item in enumerate(delays):
            taken += 1
            assert taken - read <= (ahead or 2 * count)
            yield item

    def answer(item: tuple[int, int]) -> int:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        time.sleep(item[1] / 5000)
        with lock:
            running -= 1
        return item[0]

    for expected, found in enumerate(streams.map(answer, items(), ahead)):
        assert found == expected
        read += 1
    assert read == taken == len(delays)
    assert most <= count
    streams.close()


def test_requests_really_run_at_the_same_time() -> None:
    streams = Streams(3)
    together = threading.Barrier(3)
    assert sorted(streams.map(lambda _: together.wait(300), range(3))) == [0, 1, 2]
    streams.close()


def test_an_error_comes_in_its_place_and_the_rest_is_given_up() -> None:
    streams = Streams(1)
    seen: list[int] = []

    def answer(item: int) -> int:
        seen.append(item)
        if item == 3:
            raise sw.InputError("three")
        return item

    found: list[int] = []
    with pytest.raises(sw.InputError, match="three"):
        found.extend(streams.map(answer, itertools.count(), 2))
    streams.close()
    assert found == [0, 1, 2]
    assert len(seen) <= 5


def test_an_iterator_without_readers_gives_up_the_rest() -> None:
    streams = Streams(1)
    seen: list[int] = []
    answers = streams.map(seen.append, range(1000), 50)
    next(answers)
    answers.close()  # pyright: ignore[reportAttributeAccessIssue]
    streams.close()
    assert len(seen) < 50


def test_an_iterable_that_fails_ends_the_answers() -> None:
    streams = Streams(2)

    def items() -> Iterator[int]:
        yield 1
        yield 2
        raise KeyError("gone")

    found: list[int] = []
    with pytest.raises(KeyError, match="gone"):
        found.extend(streams.map(abs, items(), 1))
    assert found == [1, 2]
    streams.close()


def test_closing_waits_or_gives_up() -> None:
    for cancel in (False, True):
        streams = Streams(1)
        begun, may_end = threading.Event(), threading.Event()

        def hold(begun: threading.Event = begun, may_end: threading.Event = may_end) -> str:
            begun.set()
            assert may_end.wait(300)
            return "first"

        first, second = streams.submit(hold), streams.submit(lambda: "second")
        assert begun.wait(300)
        if cancel:
            second.add_done_callback(lambda _, end=may_end: end.set())
        else:
            threading.Timer(0.05, may_end.set).start()
        streams.close(cancel=cancel)
        assert first.result() == "first"
        if cancel:
            with pytest.raises(CancelledError):
                second.result()
        else:
            assert second.result() == "second"
        streams.close()
        with pytest.raises(sw.ExecutionError, match="expected an open model, found a model that"):
            streams.submit(lambda: None)
    assert gone()


def test_threads_end_with_the_streams() -> None:
    streams = Streams(2)
    future = streams.submit(lambda: time.sleep(0.05) or 7)
    assert ours() == 1
    del streams
    assert future.result(300) == 7
    assert gone()


def test_threads_of_each_stream() -> None:
    assert stream_threads(None, 1) is None
    assert stream_threads(8, 1) == 8
    assert stream_threads(8, 2) == 4
    assert stream_threads(7, 3) == 2
    assert stream_threads(4, 4) == 1
    with pytest.raises(sw.InputError) as error:
        stream_threads(2, 3)
    assert str(error.value) == (
        "streams: expected at most 2, one for each thread, found 3; give threads=3 or more"
    )
    for wrong in (0, -1, False):
        with pytest.raises(sw.InputError, match="streams: expected a number from 1 on, found"):
            stream_threads(2, wrong)
    with pytest.raises(sw.InputError, match="ahead: expected a whole number, 1 or more, found 0"):
        Streams(2).map(abs, [], 0)
