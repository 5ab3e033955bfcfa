"""The arena: blocks that live at the same time never overlap."""

from __future__ import annotations

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from stridewise.runtime.memory import ALIGNMENT, Life, arrange, lower_bound

LIVES = st.lists(
    st.builds(
        lambda nbytes, first, length: Life(nbytes, first, first + length),
        st.integers(0, 300),
        st.integers(0, 8),
        st.integers(0, 5),
    ),
    max_size=12,
)


@given(LIVES)
def test_blocks_that_share_a_step_share_no_byte(lives):
    offsets, total = arrange(lives)
    assert len(offsets) == len(lives)
    for (a, x), (b, y) in combinations(zip(lives, offsets, strict=True), 2):
        if a.first <= b.last and b.first <= a.last:
            assert x + a.nbytes <= y or y + b.nbytes <= x or not a.nbytes or not b.nbytes
    assert all(x + a.nbytes <= total for a, x in zip(lives, offsets, strict=True))


@given(LIVES)
def test_offsets_are_aligned_and_the_total_is_within_its_bounds(lives):
    offsets, total = arrange(lives)
    assert all(offset % ALIGNMENT == 0 for offset in offsets)
    assert total % ALIGNMENT == 0
    rounded = [-(-life.nbytes // ALIGNMENT) * ALIGNMENT for life in lives]
    assert lower_bound(lives) <= total <= sum(rounded)


@given(LIVES)
def test_the_lower_bound_is_the_most_that_any_step_needs(lives):
    needed = [
        sum(
            -(-life.nbytes // ALIGNMENT) * ALIGNMENT
            for life in lives
            if life.first <= step <= life.last
        )
        for step in range(14)
    ]
    assert lower_bound(lives) == max(needed)


def test_memory_of_the_dead_is_used_again():
    chain = [Life(1000, step, step + 1) for step in range(10)]
    assert arrange(chain)[1] == lower_bound(chain) == 2 * 1024


def test_nothing_needs_nothing():
    assert arrange([]) == ((), 0)
    assert lower_bound([]) == 0
