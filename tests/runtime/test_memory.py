"""The arena: blocks that live at the same time never overlap."""

from __future__ import annotations

import random
from itertools import combinations

from hypothesis import example, given
from hypothesis import strategies as st

from stridewise.runtime.binding.packing import ALIGNMENT
from stridewise.runtime.lowering.arena import Life, arrange, lower_bound

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


def largest_first(lives):
    """The total of the plain greedy arrangement, which lower bounds and other orders improve."""
    placed: list[tuple[int, int, Life]] = []
    for life in sorted(lives, key=lambda life: (-life.nbytes, life.first)):
        size = -(-life.nbytes // ALIGNMENT) * ALIGNMENT
        offset = 0
        for start, taken, other in sorted(placed, key=lambda item: item[:2]):
            if other.first > life.last or life.first > other.last:
                continue
            if start - offset >= size:
                break
            offset = max(offset, start + taken)
        placed.append((offset, size, life))
    return max((start + size for start, size, _ in placed), default=0)


FRAGMENTED = [Life(128, 0, 2), Life(192, 2, 4), Life(128, 1, 1), Life(64, 4, 6), Life(256, 5, 6)]


@given(LIVES)
@example(FRAGMENTED)
def test_no_arrangement_is_larger_than_largest_first(lives):
    assert arrange(lives)[1] <= largest_first(lives)


def test_other_orders_reach_the_lower_bound_where_largest_first_does_not():
    found = [
        (largest_first(lives), arrange(lives)[1], lower_bound(lives))
        for lives in (residual_network(seed) for seed in range(20))
    ]
    assert any(greedy > 1.05 * bound for greedy, _, bound in found)
    assert all(total <= 1.05 * bound for _, total, bound in found)


def residual_network(seed):
    """Lives as those of a network with skips and scratchpads, of sizes that shrink unevenly."""
    rng = random.Random(seed)
    lives: list[Life] = []
    for block in range(16):
        size = int(2e6 * 0.75**block)
        begin = 4 * block
        lives.append(Life(size, begin, begin + 4))
        for step in range(3):
            inner = int(size * rng.choice((0.25, 0.5, 1, 1.4)))
            lives.append(Life(inner, begin + step, begin + step + 1))
            lives.append(Life(int(size * rng.choice((0, 0.1, 0.6))), begin + step, begin + step))
    return lives


def test_memory_of_the_dead_is_used_again():
    chain = [Life(1000, step, step + 1) for step in range(10)]
    assert arrange(chain)[1] == lower_bound(chain) == 2 * 1024


def test_nothing_needs_nothing():
    assert arrange([]) == ((), 0)
    assert lower_bound([]) == 0
