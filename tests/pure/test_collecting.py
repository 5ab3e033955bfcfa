"""The garbage collector is paused within blocks, and then as it was."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Generator
from contextlib import ExitStack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stridewise.collecting import paused


@pytest.fixture(autouse=True)
def collector() -> Generator[None]:
    gc.unfreeze()  # what tests/conftest.py froze
    yield
    gc.enable()
    gc.freeze()


@given(st.booleans(), st.lists(st.integers(0, 5), max_size=6))
def test_blocks_may_overlap_in_any_order(was_enabled: bool, ends: list[int]) -> None:
    """Blocks of several threads end in another order than they begin in."""
    (gc.enable if was_enabled else gc.disable)()
    blocks = [ExitStack() for _ in ends]
    for block in blocks:
        block.enter_context(paused())
        assert not gc.isenabled()
    for end in ends:
        if blocks:
            assert not gc.isenabled()
            blocks.pop(end % len(blocks)).close()
    assert gc.isenabled() == was_enabled


def test_an_error_ends_a_block() -> None:
    with pytest.raises(KeyError), paused():
        raise KeyError
    assert gc.isenabled()


def test_garbage_of_a_block_is_collected_later() -> None:
    class Item:
        own: Item

    with paused():
        item = Item()
        item.own = item
        found = weakref.ref(item)
        del item
    gc.collect()
    assert found() is None


def test_frozen_objects_stay_frozen() -> None:
    gc.freeze()
    before = gc.get_freeze_count()
    with paused():
        pass
    assert gc.get_freeze_count() >= before - 1000  # some are freed meanwhile
    assert before > 1000


def test_frozen_objects_are_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """To count them takes as long as a compilation if there are millions."""
    gc.freeze()
    counts: list[int] = []
    count = gc.get_freeze_count
    monkeypatch.setattr(gc, "get_freeze_count", lambda: counts.append(count()) or counts[-1])
    for _ in range(5):
        with paused():
            pass
    assert len(counts) <= 1
