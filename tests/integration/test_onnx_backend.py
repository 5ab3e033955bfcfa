"""Stridewise behind ONNX's backend interface; ONNX's own tests of it are in tests/conformance."""

from __future__ import annotations

import subprocess
import sys
from typing import Any, ClassVar

import numpy as np
import pytest
from onnx import helper
from onnx.backend import base

from stridewise.errors import InputError, ModelError
from stridewise.onnx_backend import Backend, BackendRep

from .onnx_nodes import make, node

F32 = np.float32
X = np.arange(6, dtype=F32).reshape(2, 3) - 2
MODEL = make(node("Relu"), shape=(2, 3))


@pytest.mark.parametrize("inputs", [X, [X], (X,), {"x": X}], ids=["array", "list", "tuple", "dict"])
def test_a_model_takes_inputs_in_every_form(inputs: object):
    ready = Backend.prepare(MODEL, tune="model", threads=1)
    assert isinstance(ready, BackendRep)
    assert isinstance(ready, base.BackendRep)
    outputs = ready.run(inputs)
    np.testing.assert_array_equal(outputs[0], np.maximum(X, 0))
    assert outputs["y"] is outputs[0]
    assert len(outputs) == 1


def test_a_model_is_run_at_once():
    (found,) = Backend.run_model(MODEL, [X], tune="model")
    np.testing.assert_array_equal(found, np.maximum(X, 0))


def test_arguments_of_compile_are_passed_on():
    ready = Backend.prepare(MODEL, "CPU:0", tune="model", threads=1, shapes={"x": (5, 3)})
    assert ready.model.plan.machine.threads == 1
    assert ready.run([np.ones((5, 3), F32)])[0].shape == (5, 3)


def test_options_of_a_subclass_hold_unless_a_call_has_others():
    class Slow(Backend):
        options: ClassVar[dict[str, Any]] = {"tune": "model", "threads": 1}

    assert Slow.prepare(MODEL).model.plan.machine.threads == 1
    assert Slow.prepare(MODEL, threads=2).model.plan.machine.threads == 2


def test_a_node_by_itself():
    add = helper.make_node("Add", ["a", "b"], ["sum"])
    a, b = np.ones((2, 1), F32), np.arange(3, dtype=F32)
    (found,) = Backend.run_node(add, [a, b], tune="model")
    np.testing.assert_array_equal(found, a + b)
    known = [(np.dtype(F32), (2, 3))]
    (again,) = Backend.run_node(add, [a, b], outputs_info=known, opset_version=13, tune="model")
    np.testing.assert_array_equal(again, found)


def test_a_node_without_some_inputs_and_outputs():
    clip = helper.make_node("Clip", ["x", "", "high"], ["y"])
    high = np.array(1, F32)
    (found,) = Backend.run_node(clip, [X, high[()]], tune="model", opset_version=13)
    np.testing.assert_array_equal(found, np.minimum(X, 1))


def test_devices():
    assert Backend.supports_device("CPU")
    assert Backend.supports_device("CPU:0")
    assert not any(map(Backend.supports_device, ("CUDA", "CPU:1", "cpu", "")))
    with pytest.raises(InputError, match="device: expected 'CPU', found 'CUDA'"):
        Backend.prepare(MODEL, "CUDA")


def test_compatible_is_what_compiles():
    assert Backend.is_compatible(MODEL, tune="model")
    assert not Backend.is_compatible(make(node("Nonsense")), tune="model")
    with pytest.raises(ModelError, match="Nonsense"):
        Backend.prepare(make(node("Nonsense")), tune="model")


def test_inputs_that_do_not_fit():
    ready = Backend.prepare(MODEL, tune="model")
    with pytest.raises(InputError, match=r"inputs: expected 1 \(x\), found 2"):
        ready.run([X, X])
    with pytest.raises(InputError, match=r"BackendRep\.run: expected inputs alone, found option"):
        ready.run([X], option=1)
    relu = helper.make_node("Relu", ["x"], ["y"], name="act")
    with pytest.raises(InputError, match=r"node 'act': expected 1 inputs \(x\), found 2"):
        Backend.run_node(relu, [X, X])


def test_the_package_loads_without_onnx():
    code = "import sys, stridewise; print('onnx' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
