"""Constants whose elements are in a file, or a product that is not computed yet."""

from __future__ import annotations

import gc
import os
import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stridewise.errors import GraphError, ModelError
from stridewise.graph import Constant
from stridewise.graph.mapped import MappedFile, forget, is_mapped, place_of

SHAPE = (6, 5, 8)
ELEMENTS = np.arange(240, dtype=np.float32).reshape(SHAPE)
ODD = 3
"""Bytes before the elements, as protocol buffers do not align what they hold."""


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("mapped") / "weights.bin"
    found.write_bytes(b"x" * ODD + ELEMENTS.tobytes() + b"tail")
    return found


def mapped(path: Path) -> np.ndarray:
    content = MappedFile(path).content()
    return content[ODD : ODD + ELEMENTS.nbytes].view(np.float32).reshape(SHAPE)


SLICES = st.builds(
    slice,
    st.integers(-6, 6) | st.none(),
    st.integers(-6, 6) | st.none(),
    st.sampled_from([1, 1, 2, -1, -2]),
)
VIEWS = st.tuples(st.tuples(*[SLICES] * 3), st.permutations(range(3)))


@given(view=VIEWS)
def test_any_view_of_a_file_is_a_constant_of_its_elements(path, view):
    cut, order = view
    wanted = ELEMENTS[cut].transpose(order)
    constant = Constant(mapped(path)[cut].transpose(order))
    found = constant.array
    np.testing.assert_array_equal(found, wanted)
    assert found.shape == constant.shape
    assert not is_mapped(found)
    assert found.flags.aligned
    assert not found.flags.writeable
    assert constant == Constant(wanted)
    # What has no gaps stays in the file; the rest was copied out of it.
    dense = np.ascontiguousarray(wanted).nbytes and place_of(mapped(path)[cut]) is not None
    assert constant.is_deferred == bool(dense)
    assert constant.held_nbytes == (0 if dense else wanted.nbytes)


def test_bytes_that_are_shown_twice_are_no_place(path):
    array = np.lib.stride_tricks.as_strided(mapped(path), (4, 4), (4, 4))
    assert place_of(array) is None
    np.testing.assert_array_equal(Constant(array).array, array)


def test_arrays_in_memory_have_no_place():
    assert place_of(ELEMENTS) is None
    assert place_of(np.frombuffer(ELEMENTS.tobytes(), np.uint8)) is None
    forget(ELEMENTS)  # nothing to give back, and no error


def write_into(path: Path) -> None:
    with path.open("r+b") as file:
        file.write(b"else")
    os.utime(path, (1, 1))


def cut_off(path: Path) -> None:
    os.truncate(path, 100)


@pytest.mark.parametrize("damage", [write_into, cut_off])
def test_a_file_that_was_written_into_is_an_error(
    path: Path, tmp_path: Path, damage: Callable[[Path], None]
):
    own = tmp_path / "own.bin"
    own.write_bytes(path.read_bytes())
    constant = Constant(mapped(own))
    damage(own)
    with pytest.raises(ModelError, match=r"own\.bin.*found other content; load the model again"):
        _ = constant.array


def test_a_file_that_was_replaced_or_removed_keeps_its_content(path: Path, tmp_path: Path):
    own, other = tmp_path / "own.bin", tmp_path / "other.bin"
    own.write_bytes(path.read_bytes())
    other.write_bytes(b"something else")
    constant = Constant(mapped(own))
    other.replace(own)
    np.testing.assert_array_equal(constant.array, ELEMENTS)
    own.unlink()
    np.testing.assert_array_equal(constant.array, ELEMENTS)


def descriptors_of(path: Path) -> int:
    links = Path("/proc/self/fd").iterdir()
    return sum(os.path.realpath(link) == str(path) for link in links)


def test_a_file_is_closed_when_its_last_constant_goes_or_is_dropped(path: Path, tmp_path: Path):
    own = tmp_path.resolve() / "own.bin"
    own.write_bytes(path.read_bytes())
    first = Constant(mapped(own))
    second = first.shared()
    assert descriptors_of(own) > 0
    first.drop()
    np.testing.assert_array_equal(second.array, ELEMENTS)
    del second
    gc.collect()
    assert descriptors_of(own) == 0


def test_an_empty_file_and_none_cannot_be_mapped(tmp_path: Path):
    (tmp_path / "empty").touch()
    with pytest.raises(ValueError, match="empty"):
        MappedFile(tmp_path / "empty")
    with pytest.raises(FileNotFoundError):
        MappedFile(tmp_path / "none")


LARGE = np.random.default_rng(0).standard_normal((32, 16, 8, 8), np.float32)
FIRST, SECOND = LARGE[:, :1, :1, :1].copy(), LARGE[::-1, :1, :1, :1].copy()


def test_a_product_is_computed_when_it_is_asked_for_and_is_the_same():
    constant = Constant(LARGE).scaled(FIRST)
    assert constant.is_deferred
    assert constant.held_nbytes == LARGE.nbytes  # the original's, and nothing more
    np.testing.assert_array_equal(constant.array, LARGE * FIRST)
    # Rounded after each factor, as the passes compute it one after the other.
    np.testing.assert_array_equal(constant.scaled(SECOND).array, (LARGE * FIRST) * SECOND)
    assert constant == Constant(LARGE * FIRST)
    assert constant != Constant(LARGE)


def test_products_of_small_and_other_tensors_are_computed_at_once():
    small = Constant(LARGE[0, 0]).scaled(FIRST[0, 0])
    assert not small.is_deferred
    wider = Constant(LARGE).scaled(FIRST.astype(np.float64))
    assert not wider.is_deferred
    assert wider.dtype.name == "float64"


def test_keys_tell_apart_what_differs():
    constant = Constant(LARGE)
    assert constant.key == Constant(LARGE).key == constant.shared().key
    assert constant.scaled(FIRST).key == Constant(LARGE).scaled(FIRST.copy()).key
    keys = [
        constant.key,
        constant.scaled(FIRST).key,
        constant.scaled(SECOND).key,
        constant.scaled(FIRST).scaled(SECOND).key,
        Constant(LARGE.copy()).key,
        Constant(LARGE.transpose(1, 0, 2, 3)).key,
        Constant(LARGE.view(np.int32)).key,
    ]
    assert len(set(keys)) == len(keys)


def test_a_dropped_constant_keeps_type_and_digest():
    constant, kept = Constant(LARGE), Constant(LARGE)
    digest = constant.digest
    constant.drop()
    assert constant.is_dropped
    assert (constant.shape, constant.dtype, constant.nbytes) == (
        kept.shape,
        kept.dtype,
        LARGE.nbytes,
    )
    assert constant.held_nbytes == 0
    assert constant.digest == digest
    assert constant == kept
    with pytest.raises(GraphError, match=r"Constant\(f32\[32, 16, 8, 8\]\).*keep_originals=True"):
        _ = constant.array


def test_tiny_constants_are_never_dropped():
    constant = Constant(np.array([1, -1], np.int64))
    constant.drop()
    assert constant.array.tolist() == [1, -1]


@pytest.mark.parametrize("make", [lambda: Constant(LARGE), lambda: Constant(LARGE).scaled(FIRST)])
def test_a_constant_survives_a_pickle(make: Callable[[], Constant]):
    assert pickle.loads(pickle.dumps(make())) == make()


def test_a_constant_of_a_file_survives_a_pickle(path: Path):
    assert pickle.loads(pickle.dumps(Constant(mapped(path)))) == Constant(ELEMENTS)


@given(view=VIEWS, ends=st.tuples(st.integers(0, 8), st.integers(0, 8)))
def test_rows_are_those_of_all_elements(path, view, ends):
    cut, order = view
    wanted = ELEMENTS[cut].transpose(order)
    begin, end = sorted(min(at, len(wanted)) for at in ends)
    for constant in (Constant(mapped(path)[cut].transpose(order)), Constant(wanted)):
        found = constant.rows(begin, end)
        np.testing.assert_array_equal(found, wanted[begin:end])
        assert not is_mapped(found)
        assert not found.flags.writeable


@pytest.mark.parametrize("factor", [FIRST, FIRST[:1], FIRST[0], FIRST[0, 0]])
def test_rows_of_products(factor):
    constant = Constant(LARGE).scaled(factor).scaled(SECOND)
    assert constant.is_deferred
    assert constant.has_rows
    np.testing.assert_array_equal(constant.rows(3, 17), constant.array[3:17])
    np.testing.assert_array_equal(constant.array, LARGE * factor * SECOND)


def test_products_of_a_file_leave_it_alone(path):
    constant = Constant(np.lib.stride_tricks.as_strided(mapped(path)))
    product = constant.shared()
    product._factors = (np.float32(2.0).reshape(1),)
    np.testing.assert_array_equal(product.array, 2 * ELEMENTS)
    np.testing.assert_array_equal(product.rows(1, 4), 2 * ELEMENTS[1:4])
    np.testing.assert_array_equal(constant.array, ELEMENTS)
