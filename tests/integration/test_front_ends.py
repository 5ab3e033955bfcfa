"""Front ends: the choice of one for a source, and a new one that only implements the protocol."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import ArrayLike, NDArray

import stridewise as sw
from stridewise.dtypes import dtype_of
from stridewise.frontends import registry
from stridewise.frontends.graph import GraphReader
from stridewise.frontends.onnx.table import _FAMILIES, EXPORTERS, HANDLERS
from stridewise.frontends.source import fixed_shapes
from stridewise.graph import Capability, Extent, Graph, InputSpec, Shapes, Signature
from stridewise.ops.capability import graph_capability
from stridewise.runtime.execution.dynamic import DynamicModel

F32 = np.float32


@dataclass(frozen=True)
class Scales:
    """A model of another form: x of any batch times a constant row, then ReLU."""

    row: tuple[float, ...]


class ScalesReader:
    """Reads :class:`Scales`."""

    is_graph = False
    calls = None

    def __init__(self, source: Scales) -> None:
        self.opened = time.time()
        self.name, self.arguments, self.outputs = "scales", ("x",), ("y",)
        self.paths: tuple[Path, ...] = ()
        self._row = np.array(source.row, F32)
        extents = (Extent.parse("N"), Extent.parse(len(source.row)))
        self.signature = Signature((InputSpec("x", dtype_of("float32"), extents),))

    def values(self, values: Mapping[str, ArrayLike]) -> dict[str, NDArray[Any]]:
        return {name: np.asarray(value, F32) for name, value in values.items()}

    def graph(
        self,
        shapes: Shapes | None = None,
        values: Mapping[str, ArrayLike] | None = None,
        *,
        memory_limit: int | None = None,
    ) -> Graph:
        del values, memory_limit
        fixed = fixed_shapes(self.signature, shapes or {})
        b = sw.GraphBuilder(self.name)
        x = b.input("x", fixed.get("x", (1, len(self._row))))
        return b.build([b.op("relu", [b.op("mul", [x, b.constant(self._row)])], output="y")])

    def capability(
        self,
        shapes: Shapes | None = None,
        values: Mapping[str, ArrayLike] | None = None,
        *,
        memory_limit: int | None = None,
    ) -> Capability:
        return graph_capability(self.graph(shapes, values, memory_limit=memory_limit))


class ScalesFrontEnd:
    """Takes :class:`Scales`."""

    accepts = "scales"
    runtime = "onnxruntime"

    def takes(self, source: object) -> bool:
        return isinstance(source, Scales)

    def open(self, source: Scales, *, fallback: bool) -> ScalesReader:
        del fallback
        return ScalesReader(source)

    def run(self, source: Scales, inputs: Mapping[str, Any], threads: int) -> dict[str, Any]:
        del threads
        return {"y": np.maximum(inputs["x"] * np.array(source.row, F32), 0)}


@pytest.fixture
def source(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(registry, "FRONT_ENDS", (ScalesFrontEnd(), *registry.FRONT_ENDS))
    return Scales((1.0, -2.0, 0.5))


def test_a_new_front_end_is_all_that_the_api_needs(source: Any) -> None:
    x = np.random.default_rng(1).standard_normal((4, 3)).astype(F32)
    wanted = np.maximum(x * np.array(source.row, F32), 0)
    assert sw.load(source).value("x").shape == (1, 3)
    assert sw.load(source, {"x": (4, 3)}).value("y").shape == (4, 3)
    assert sw.capability(source).is_native
    fixed = sw.compile(source, shapes={"x": (4, 3)}, tune="model")
    np.testing.assert_array_equal(fixed(x), wanted)
    many = sw.compile(source, shapes={"x": ("1..8", 3)}, tune="model")
    assert isinstance(many, DynamicModel)
    for count in (1, 3, 4):
        np.testing.assert_array_equal(many(x[:count]), wanted[:count])
    found = sw.verify(source, against="onnxruntime", shapes={"x": (4, 3)}, tune="model")
    assert found.ok


def test_no_front_end_takes_other_objects() -> None:
    for call in (sw.load, sw.plan, sw.compile, sw.capability):
        with pytest.raises(sw.InputError) as caught:
            call(42)
        accepted = "; or ".join(front_end.accepts for front_end in registry.FRONT_ENDS)
        assert str(caught.value) == f"model: expected {accepted}, found int"


def test_a_graph_has_one_shape_and_no_values() -> None:
    b = sw.GraphBuilder("g")
    graph = b.build([b.op("relu", [b.input("x", (2, 3))], output="y")])
    reader = registry.open_model(graph)
    assert isinstance(reader, GraphReader)
    assert (reader.name, reader.arguments, reader.outputs) == ("g", ("x",), ("y",))
    assert reader.signature.default() == {"x": (2, 3)}
    assert reader.graph() is graph
    assert reader.paths == ()
    for given in ({"shapes": {"x": (2, 3)}}, {"shapes": {"x": ("N", 3)}}, {"values": {"x": [1]}}):
        (what,) = given
        with pytest.raises(sw.InputError, match=f"{what}: expected none for a graph"):
            sw.load(graph, **given)


def test_models_in_files_say_which_files(tmp_path: Path) -> None:
    b = sw.GraphBuilder("g")
    w = b.constant(np.arange(64, dtype=F32).reshape(8, 8))
    graph = b.build([b.op("matmul", [b.input("x", (2, 8)), w], output="y")])
    path = tmp_path / "m.onnx"
    sw.save(graph, path, external_above=0)
    reader = registry.open_model(path)
    reader.graph()
    assert reader.paths[0] == path
    assert set(reader.paths) <= {path, tmp_path / "m.onnx.data"}
    assert registry.open_model(path.read_bytes()).paths == ()


def test_no_operator_has_two_handlers_or_exporters() -> None:
    assert sum(len(family.HANDLERS) for family in _FAMILIES) == len(HANDLERS[""])
    assert sum(len(family.EXPORTERS) for family in _FAMILIES) == len(EXPORTERS)


def test_packages_of_front_ends_are_imported_when_a_model_needs_them() -> None:
    code = (
        "import sys; from stridewise.frontends import registry; import stridewise as sw;"
        "b = sw.GraphBuilder('g');"
        "sw.load(b.build([b.op('relu', [b.input('x', (2, 3))])]));"
        "print(sorted({'onnx', 'onnxruntime', 'torch'} & set(sys.modules)))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
