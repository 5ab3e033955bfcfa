"""Memory for packed weights that is provided while a model is imported."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import stridewise as sw
from stridewise.api import compiling
from stridewise.runtime.binding.provision import Provision
from stridewise.runtime.execution.executor import CompiledModel

from .graphs import Net

SHAPE = (1, 17, 6, 6)
INPUT = np.random.default_rng(0).standard_normal(SHAPE).astype(np.float32)


@given(st.integers(1, 40 << 20), st.floats(0, 5))
def test_memory_is_zero_and_taken_once(nbytes: int, part: float) -> None:
    provision, wanted = Provision(nbytes), int(part * nbytes)
    found = provision.take(wanted)
    assert (found is not None) == (wanted <= 4 * nbytes)
    if found is not None:
        assert found.nbytes >= wanted
        assert not found.array()[: 2 * nbytes : 4096].any()
    assert provision.take(1) is None


def compiled(path: Path, **options: object) -> CompiledModel:
    model = sw.compile(path, threads=2, store_limit=0, **options)  # type: ignore[arg-type]
    assert isinstance(model, CompiledModel)
    return model


@pytest.fixture
def source(tmp_path: Path) -> Path:
    b = Net(*SHAPE)
    path = tmp_path / "small.onnx"
    sw.save(b.build([b.conv(b.op("relu", [b.conv(b.x, 8, 3)]), 5, 1)]), path)
    return path


def test_models_are_the_same_in_provided_memory(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = compiled(source, cache_dir=tmp_path)  # later ones find what was measured
    plain = compiled(source, cache_dir=tmp_path)
    monkeypatch.setattr(compiling, "_LARGE", 1)
    provided = compiled(source, cache_dir=tmp_path)
    (buffer,) = provided.weights.buffers
    assert buffer.nbytes == 4 * source.stat().st_size
    assert provided.memory == plain.memory
    assert np.array_equal(provided(INPUT), plain(INPUT))
    assert np.allclose(provided(INPUT), first(INPUT), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    "options", [{"memory_limit": 1 << 30}, {"tune": "measure"}, {"dtype": "bfloat16"}]
)
def test_other_models_take_their_own_memory(
    options: dict[str, object], source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiling, "_LARGE", 1)
    model = compiled(source, cache_dir=tmp_path, **options)
    assert model.weights.buffers[0].nbytes == model.weights.own_nbytes
    assert model(INPUT).shape == (1, 5, 6, 6)


def test_a_file_that_is_no_model_ends_in_its_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiling, "_LARGE", 1)
    path = tmp_path / "no.onnx"
    path.write_bytes(bytes(1 << 20))
    with pytest.raises(sw.ModelError):
        sw.compile(path, threads=2, cache_dir=tmp_path)
    with pytest.raises(sw.ModelError, match="no such file"):
        sw.compile(tmp_path / "none.onnx", threads=2, cache_dir=tmp_path)
