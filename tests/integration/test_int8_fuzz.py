"""Random quantized models against ONNX's reference evaluator and ONNX Runtime.

Of each layer, the integers that it gives follow from those that it reads: they are what the
reference evaluator computes before the rounding, rounded. Where that is within an error of float32
of a half, both neighbors are right. That holds layer by layer if all tensors are outputs. Models
with one output run other kernels, which join layers; they are compared as a whole.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnxruntime.capi.onnxruntime_pybind11_state import NotImplemented as NoKernel

import stridewise as sw

from .models import run_onnxruntime
from .quantized_models import RandomModel

Array = np.ndarray[Any, np.dtype[Any]]

ERROR = 2e-3
"""Steps by which sums in float32 may be off."""
MEAN, MOST = 1.0, 6
"""Steps by which results may be off after several layers, on average and at most: a rounding to
the other side is larger in the next layers."""

DTYPES = pytest.mark.parametrize("dtype", ["model", "float32"])
MODELS = {
    "seed": st.integers(0, 2**32 - 1),
    "opset": st.integers(10, 21),
    "layers": st.integers(1, 7),
}


def random_model(seed: int, opset: int, layers: int) -> RandomModel:
    made = RandomModel(np.random.default_rng(seed), opset)
    made.grow(layers)
    return made


def check_layers(made: RandomModel, found: dict[str, Array]) -> None:
    """Compare each layer with its definition, on the integers that it was given."""
    for layer in made.layers:
        real = layer.real([found[item.name] for item in layer.inputs])
        low, high = layer.output.between(real, ERROR)
        stored = found[layer.output.name].astype(np.int64)
        wrong = (stored < low) | (stored > high)
        some = (stored[wrong][:3], low[wrong][:3], high[wrong][:3])
        assert not wrong.any(), (layer.kind, layer.output.name, np.argwhere(wrong)[0], some)


@DTYPES
@settings(max_examples=40, deadline=None)
@given(**MODELS)
def test_every_layer_rounds_as_onnx_defines_it(
    dtype: Any, seed: int, opset: int, layers: int
) -> None:
    made = random_model(seed, opset, layers)
    model = sw.compile(made.model(is_open=True), tune="model", threads=1, dtype=dtype)
    found = {name: np.asarray(array) for name, array in model.run(made.inputs).items()}
    check_layers(made, found)


@DTYPES
@settings(max_examples=40, deadline=None)
@given(**MODELS)
def test_joined_layers_give_the_results_of_the_definitions(
    dtype: Any, seed: int, opset: int, layers: int
) -> None:
    made = random_model(seed, opset, layers)
    proto, last = made.model(is_open=False), made.tensors[-1].name
    values = {item.name: item.example for item in made.tensors}
    for layer in made.layers:
        real = layer.real([values[item.name] for item in layer.inputs])
        values[layer.output.name] = layer.output.rounded(real)
    expected = [values[last]]
    try:
        expected.append(run_onnxruntime(proto, made.inputs, joins=False)[last])
    except NoKernel:
        assert "QLinear" in str(proto)  # it has not all types of these
    found = sw.compile(proto, tune="model", threads=1, dtype=dtype).run(made.inputs)[last]
    for right in expected:
        off = np.abs(np.asarray(found).astype(np.int64) - right)
        assert off.max() <= MOST
        assert off.mean() <= MEAN
