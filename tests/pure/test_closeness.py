"""How far a tensor may be from the right one: small errors pass, larger ones do not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stridewise.dtypes import dtype_of
from stridewise.runtime.verification.closeness import (
    APPROXIMATE,
    STEPS,
    Difference,
    compare,
    relative_error,
    relative_step,
    shaken,
)

Array = np.ndarray[Any, Any]
F32 = np.dtype(np.float32)
STEP = relative_step(F32)
RIGHT = np.random.default_rng(0).standard_normal((2, 8, 9, 7)).astype(F32)


def judged(found: Array, right: Array, moved: Array | None = None, **more: Any) -> Difference:
    return compare(found, right, lambda: right if moved is None else moved, step=STEP, **more)


def test_steps_are_those_of_float32_and_coarser_types() -> None:
    assert STEP == STEPS * 2.0**-23
    assert relative_step(F32, approximate=True) == APPROXIMATE * STEP
    assert relative_step(np.dtype(np.float64)) == STEP
    assert relative_step(np.dtype(np.float16)) == 2.0**-9
    assert relative_step(dtype_of("bfloat16").numpy) == 2.0**-6
    assert relative_step(np.dtype(np.int64)) == relative_step(np.dtype(bool)) == 0


@given(shape=st.lists(st.integers(0, 9), max_size=4), seed=st.integers(0, 99))
def test_moved_tensors_differ_by_a_step_everywhere(shape: list[int], seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = np.asarray(rng.standard_normal(shape), F32)
    moved = shaken(x, rng)
    assert (moved.shape, moved.dtype) == (x.shape, x.dtype)
    np.testing.assert_allclose(np.abs(moved - x), STEP * np.abs(x), rtol=0.05)
    assert not judged(moved, x, moved).is_wrong
    assert relative_error(moved, x) <= 1.05 * STEP


def test_integers_and_booleans_are_not_moved() -> None:
    rng = np.random.default_rng(0)
    for x in (np.arange(5), np.array([True, False])):
        assert shaken(x, rng) is x


@given(
    shape=st.lists(st.integers(1, 9), max_size=4),
    place=st.integers(0, 10**6),
    factor=st.sampled_from([1.05, -1.0, 2.0]),
    scale=st.sampled_from([1e-20, 1.0, 1e20]),
)
def test_one_element_that_is_off_is_found_at_any_scale(
    shape: list[int], place: int, factor: float, scale: float
) -> None:
    right = np.asarray(np.random.default_rng(0).uniform(1, 2, shape) * scale, F32)
    found = right.copy()
    found.reshape(-1)[place % right.size] *= np.float32(factor)
    assert judged(found, right).is_wrong
    assert not judged(right.copy(), right).is_wrong


@pytest.mark.parametrize("axis", range(4))
def test_a_slice_that_is_off_is_named(axis: int) -> None:
    found = RIGHT.copy()
    found[(slice(None),) * axis + (1,)] *= np.float32(1.0001)
    difference = judged(found, RIGHT)
    assert difference.is_wrong
    assert difference.where == f"axis {axis}, index 1"
    assert difference.error == pytest.approx(1e-4, rel=0.01)


def test_a_small_slice_beside_large_ones_has_a_scale_of_its_own() -> None:
    right = RIGHT * np.array([1, 100], F32).reshape(2, 1, 1, 1)
    found = right.copy()
    found[0] *= np.float32(1.01)
    assert judged(found, right).where == "axis 0, index 0"


def test_what_moves_with_its_operands_may_differ_as_much() -> None:
    found = RIGHT * np.float32(1.001)
    assert judged(found, RIGHT).is_wrong
    assert not judged(found, RIGHT, RIGHT * np.float32(0.999)).is_wrong
    assert judged(found, RIGHT, RIGHT * np.float32(1.0001)).is_wrong


def test_nothing_is_moved_where_the_difference_is_small_anyway() -> None:
    def refuse() -> Array:
        raise AssertionError

    assert not compare(RIGHT, RIGHT, refuse, step=STEP).is_wrong
    assert not compare(RIGHT * np.float32(1 + STEP / 4), RIGHT, refuse, step=STEP).is_wrong


def test_copies_are_the_same_to_the_bit() -> None:
    found = RIGHT.copy()
    assert not compare(found, RIGHT, lambda: RIGHT, step=0.0).is_wrong
    found[0, 0, 0, 0] = np.nextafter(found[0, 0, 0, 0], 9)
    assert compare(found, RIGHT, lambda: RIGHT, step=0.0).is_wrong


def test_nan_and_infinity_have_their_places() -> None:
    special = RIGHT.copy()
    special[0, 0, 0, :3] = np.nan, np.inf, -np.inf
    assert not judged(special.copy(), special).is_wrong
    for value in (np.nan, np.inf, -np.inf):
        found = RIGHT.copy()
        found[1, 2, 3, 4] = value
        difference = judged(found, RIGHT)
        assert difference == Difference(np.inf, 0.0, np.inf, "element (1, 2, 3, 4)")
        assert relative_error(found, RIGHT) == np.inf
        assert judged(RIGHT, found).is_wrong
    found[1, 2, 3, 4] = np.nan
    assert not judged(found, RIGHT, spreads=True).is_wrong
    found[1, 2, 3, 5] = 2
    assert judged(found, RIGHT, spreads=True).is_wrong


def test_integers_may_differ_where_a_tie_is_near() -> None:
    right, found = np.arange(12).reshape(3, 4), np.arange(12).reshape(3, 4)
    found[1, 1] += 1
    assert compare(found, right, lambda: right, step=STEP) == Difference(1 / 12, 0.0, 1.0)
    assert compare(found, right, lambda: right, step=STEP).is_wrong
    assert not compare(found, right, lambda: found, step=STEP).is_wrong
    assert compare(found, right, lambda: found, step=0.0).is_wrong
    assert relative_error(found, right) == 1 / 12


def test_empty_tensors_and_zeros() -> None:
    empty = np.zeros((0, 3), F32)
    assert not judged(empty, empty).is_wrong
    assert relative_error(empty, empty) == 0
    zeros = np.zeros((4, 5), F32)
    assert not judged(zeros, zeros).is_wrong
    assert not judged(zeros, zeros + np.float32(1e-40)).is_wrong
    assert judged(zeros + np.float32(1e-3), zeros).is_wrong
    assert relative_error(zeros + np.float32(1), zeros) == pytest.approx(np.sqrt(20))


def test_numbers_whose_squares_are_infinite() -> None:
    right = np.full((4, 40), 1e300)
    found = right.copy()
    assert not judged(found * (1 + 1e-9), right).is_wrong
    found[2] *= 1.01
    assert judged(found, right).where == "axis 0, index 2"
    assert relative_error(found, right) == pytest.approx(0.005)
    for other in (-right, -right * 1.7e8):
        assert judged(other * 1.0, right * 1.7e8 if other[0, 0] < -1e307 else right).is_wrong
