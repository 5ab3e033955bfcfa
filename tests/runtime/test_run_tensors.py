"""Programs on objects with ``data_ptr``, as PyTorch's tensors are; no PyTorch is needed."""

from __future__ import annotations

import numpy as np
import pytest

import stridewise as sw


class Tensor:
    def __init__(self, array):
        self.array = array

    def data_ptr(self):
        return self.array.ctypes.data


def model():
    b = sw.GraphBuilder("sum")
    x, y = b.input("x", (2, 3)), b.input("y", (2, 3))
    return sw.compile(b.build([b.op("add", [x, y])]), tune="model")


def arrays(count):
    return [Tensor(np.full((2, 3), index + 1, np.float32)) for index in range(count)]


def test_results_are_written_where_the_outputs_are():
    inputs, (out,) = arrays(2), arrays(1)
    model().run_tensors(inputs, [out])
    assert (out.array == 3).all()


def test_wrong_numbers_of_tensors():
    with pytest.raises(ValueError, match="expected 2 tensors, got 1"):
        model().run_tensors(arrays(1), arrays(1))


def test_objects_of_another_kind():
    with pytest.raises(AttributeError, match="data_ptr"):
        model().run_tensors([1, 2], arrays(1))


def test_outputs_that_are_inputs():
    x, y = arrays(2)
    with pytest.raises(ValueError, match="shares memory"):
        model().run_tensors([x, y], [x])
