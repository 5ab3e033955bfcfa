"""Models for many shapes in the store of compiled models: the default program is kept."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import stridewise as sw
from stridewise.runtime.store import stored_models

from .open_shapes import classifier, draw, reshaped, right

SHAPE = ("N", 3, 8, 8)


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a model file for any batch, which counts as settled at once."""
    monkeypatch.setattr("stridewise.api.stored._SETTLED_S", -60.0)
    path = tmp_path / "open.onnx"
    onnx.save(classifier(SHAPE), path)
    return path


def compiled(source: Path, **options: Any) -> sw.DynamicModel:
    found = sw.compile(source, cache_dir=source.parent, threads=1, **options)
    stored_models.settle()
    assert isinstance(found, sw.DynamicModel)
    return found


def test_all_shapes_give_what_the_first_process_gave(source: Path) -> None:
    first, second = compiled(source), compiled(source)
    assert not first.source.from_disk
    assert second.source.from_disk
    assert second.name == first.name
    assert second.signature == first.signature
    assert (second.input_names, second.output_names) == (first.input_names, first.output_names)
    for batch in (1, 3, 1, 2, 0):
        x = draw(batch, 3, 8, 8, seed=batch)
        assert np.array_equal(first(x), second(x))
        assert first.plan.cost_ns == second.plan.cost_ns
    right(second, classifier(SHAPE), {"x": draw(5, 3, 8, 8)})


def test_the_file_is_read_for_other_shapes_only(source: Path) -> None:
    compiled(source)
    model = compiled(source)
    state = source.stat()
    os.utime(source, ns=(state.st_atime_ns, state.st_mtime_ns + 1))
    assert model(draw(1, 3, 8, 8)).shape == (1, 7)
    with pytest.raises(sw.PlanError, match="found a file that has changed since"):
        model(draw(2, 3, 8, 8))
    assert not compiled(source).source.from_disk


def test_options_of_the_model_hold(source: Path) -> None:
    compiled(source)
    model = compiled(source, max_programs=1)
    assert model.source.from_disk
    for batch in (1, 2, 1):
        assert model(draw(batch, 3, 8, 8)).shape == (batch, 7)
        assert len(model.programs.ready) == 1
    with pytest.raises(sw.InputError, match="shape"):
        model(draw(1, 4, 8, 8))
    larger = {"x": ([2, 4], 3, 8, 8)}
    padded, again = compiled(source, shapes=larger), compiled(source, shapes=larger)
    assert again.source.from_disk
    x = draw(1, 3, 8, 8)
    assert np.array_equal(padded(x), again(x))


def test_a_model_whose_plan_needs_values_is_not_stored(source: Path) -> None:
    onnx.save(reshaped(), source)
    assert not any(compiled(source).source.from_disk for _ in range(2))
