"""Inputs of a call: right names, right shapes, right dtypes, or an error that says what to do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stridewise.errors import InputError, describe
from stridewise.graph import Graph, Value

__all__ = ["as_array", "in_order"]

Array = NDArray[Any]


def in_order(graph: Graph, inputs: Mapping[str, Any]) -> list[Array]:
    """Return the inputs of a graph in its own order.

    Args:
        graph: what will be run.
        inputs: arrays by name; NumPy, or anything that offers DLPack.

    Raises:
        InputError: a name, a shape or a dtype is wrong, or an input is missing.
    """
    unknown = [name for name in inputs if name not in graph.inputs]
    missing = [name for name in graph.inputs if name not in inputs]
    if unknown or missing:
        raise InputError(
            describe(
                f"model {graph.name!r}",
                expected=f"inputs {', '.join(graph.inputs)}",
                found=", ".join(inputs) or "none",
            )
        )
    return [as_array(graph.values[name], inputs[name]) for name in graph.inputs]


def as_array(value: Value, given: Any) -> Array:
    """Return an input as a C-contiguous array, without a copy where it is one already.

    Raises:
        InputError: it is no array, or its dtype or shape is wrong.
    """
    array = given
    if not isinstance(given, np.ndarray):
        if not hasattr(given, "__dlpack__"):
            raise InputError(
                describe(
                    f"input {value.name!r}",
                    expected="an array (NumPy, or anything with DLPack)",
                    found=type(given).__name__,
                    fix=f"use numpy.asarray(..., dtype={value.dtype.name!r})",
                )
            )
        array = np.from_dlpack(given)
    if array.dtype != value.dtype.numpy:
        raise InputError(
            describe(
                f"input {value.name!r}",
                expected=f"dtype {value.dtype}",
                found=str(array.dtype),
                fix=f"use .astype({value.dtype.name!r})",
            )
        )
    if array.shape != value.shape:
        raise InputError(
            describe(
                f"input {value.name!r}",
                expected=f"shape {value.shape}",
                found=str(array.shape),
                fix=f"compile with shapes={{{value.name!r}: {array.shape}}}",
            )
        )
    return np.ascontiguousarray(array)
