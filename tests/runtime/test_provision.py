"""Memory for packed weights that is provided while a model is imported."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from threading import enumerate as enumerate_threads

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper, save

import stridewise as sw
from stridewise.api import compiling
from stridewise.runtime.binding.provision import Provision
from stridewise.runtime.execution.dynamic import DynamicModel
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


@given(st.integers(1, 30 << 20), st.lists(st.floats(0, 6), max_size=4), st.booleans())
def test_memory_stays_zero_whatever_is_expected(
    nbytes: int, parts: list[float], is_paused: bool
) -> None:
    provision = Provision(nbytes)
    for part in parts:
        provision.expect(int(part * nbytes))
        with provision.paused() if is_paused else nullcontext():
            assert not is_paused or "stridewise memory" not in {t.name for t in enumerate_threads()}
    found = provision.take(nbytes)
    assert found is not None
    assert not found.array()[::4096].any()
    provision.expect(nbytes)
    assert provision.take(1) is None


def test_models_for_many_shapes_are_packed_in_provided_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiling, "_LARGE", 1)
    weight = np.random.default_rng(1).standard_normal((4, 3, 3, 3)).astype(np.float32)
    graph = helper.make_graph(
        [helper.make_node("Conv", ["x", "w"], ["y"], pads=[1, 1, 1, 1])],
        "open",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 3, 8, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 4, 8, 8])],
        [numpy_helper.from_array(weight, "w")],
    )
    path = tmp_path / "open.onnx"
    opset = helper.make_opsetid("", 13)
    save(helper.make_model(graph, opset_imports=[opset], ir_version=8), path)
    taken: list[int] = []
    monkeypatch.setattr(Provision, "take", noting(Provision.take, taken))
    model = sw.compile(path, threads=2, store_limit=0, cache_dir=tmp_path)
    assert isinstance(model, DynamicModel)
    assert max(taken) > 0
    assert taken[-1] == 0  # what is left is given back
    (program,) = model.programs.ready
    (buffer,) = model.program_for(program.shapes).weights.buffers
    assert model.memory.packed_weights == program.own_weights < buffer.nbytes
    assert np.asarray(model(np.ones((2, 3, 8, 8), np.float32))).shape == (2, 4, 8, 8)


def noting(take: Callable[..., object], taken: list[int]) -> Callable[..., object]:
    def noted(self: Provision, nbytes: int) -> object:
        taken.append(nbytes)
        return take(self, nbytes)

    return noted


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
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Weights of 1x1 convolutions of whole blocks take no more than those of the file.
    b, source = Net(*SHAPE), tmp_path / "points.onnx"
    sw.save(b.build([b.conv(b.op("relu", [b.conv(b.x, 32)]), 32)]), source)
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
