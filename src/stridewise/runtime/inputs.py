"""Inputs of a call: right names, right shapes, right dtypes, or an error that says what to do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stridewise.errors import InputError, describe
from stridewise.formats import Format
from stridewise.graph import Graph, Value
from stridewise.ops.geometry import storage_shape, user_format

__all__ = ["as_array", "in_order", "made_up"]

Array = NDArray[Any]


def in_order(
    graph: Graph, inputs: Mapping[str, Any], formats: Mapping[str, Format] | None = None
) -> list[Array]:
    """Return the inputs of a graph in its own order.

    Args:
        graph: what will be run.
        inputs: arrays by name; NumPy, or anything that offers DLPack.
        formats: the format that each input is wanted in; the user's own order by default.

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
    wanted = formats or {}
    return [as_array(graph.values[name], inputs[name], wanted.get(name)) for name in graph.inputs]


def as_array(value: Value, given: Any, fmt: Format | None = None) -> Array:
    """Return an input as a C-contiguous array, without a copy where it is one already.

    Args:
        value: the input.
        given: NumPy, or anything that offers DLPack.
        fmt: the format that it is wanted in; the user's own order by default. An array of its
            storage shape is taken as it is. One of the user's shape is transposed, where the format
            is a permutation; that moves nothing if its strides are those of the format.

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
    if fmt is None or fmt == user_format(value):
        if array.shape == value.shape:
            # np.ascontiguousarray would give a scalar an axis.
            return np.asarray(array, order="C")
        raise InputError(
            describe(
                f"input {value.name!r}",
                expected=f"shape {value.shape}",
                found=str(array.shape),
                fix=f"compile with shapes={{{value.name!r}: {array.shape}}}",
            )
        )
    return _stored(value, array, fmt)


def made_up(value: Value, shape: Sequence[int], rng: np.random.Generator) -> Array:
    """Return an input for runs whose results do not matter.

    Floats are standard normal. Integers are zeros, as they may be indices, and so are booleans.

    Args:
        value: the input.
        shape: of the array, in the format that it is wanted in.
        rng: where random numbers come from.
    """
    if value.dtype.name.endswith(("float32", "float64", "float16")):
        return rng.standard_normal(shape, np.float32).astype(value.dtype.numpy)
    return np.zeros(shape, value.dtype.numpy)


def _stored(value: Value, array: Array, fmt: Format) -> Array:
    """Return an array in a format that is not the user's own order."""
    shape = storage_shape(value, fmt)
    if array.shape == shape:
        return np.ascontiguousarray(array)
    if array.shape == value.shape and len(shape) == len(value.shape):
        order = user_format(value).order
        return np.ascontiguousarray(array.transpose([order.index(axis) for axis in fmt.order]))
    raise InputError(
        describe(
            f"input {value.name!r}",
            expected=f"shape {shape}, which is {value.shape} stored as {fmt}",
            found=str(array.shape),
            fix="store it with stridewise.reorder, or compile without input_formats",
        )
    )
