"""Inputs of a call: names, shapes and dtypes are checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from stridewise.dtypes import DType
from stridewise.errors import InputError
from stridewise.formats import Format
from stridewise.graph import Graph, Value
from stridewise.ops.geometry import storage_shape, user_format
from stridewise.runtime.execution.layout import falls_along, is_same_walk

__all__ = [
    "as_array", "by_name", "in_order", "made_up", "of_dtype", "require_finite", "sample_by_name",
]  # fmt: skip

Array = NDArray[Any]


def by_name(model: str, names: Sequence[str], inputs: Mapping[str, Any]) -> list[Any]:
    """Return the inputs of a call in the order of their names.

    Raises:
        InputError: they are not a mapping, or have other names.
    """
    expected, fix = f"inputs {', '.join(names)}", ""
    if not isinstance(cast("object", inputs), Mapping):
        expected, found = "a mapping from names to arrays", type(inputs).__name__
        fix = f"pass {{{', '.join(f'{name!r}: ...' for name in names)}}}"
    elif set(inputs) != set(names):
        found = ", ".join(map(str, inputs)) or "none"
    else:
        return [inputs[name] for name in names]
    raise InputError.at(f"model {model!r}", expected=expected, found=found, fix=fix)


def sample_by_name(where: str, names: Sequence[str], sample: Any) -> Mapping[str, Any]:
    """Return a calibration sample by the names of the inputs.

    Args:
        where: names the sample in errors.
        names: of the inputs.
        sample: a mapping from names to arrays, a tuple or list of arrays, or a single array.

    Raises:
        InputError: it has other names, or another number of arrays.
    """
    if not isinstance(sample, Mapping):
        several = isinstance(sample, tuple | list)
        arrays = cast("Sequence[Any]", sample) if several else (sample,)
        if len(arrays) != len(names):
            expected = f"{len(names)} arrays ({', '.join(names)})"
            raise InputError.at(where, expected=expected, found=str(len(arrays)))
        return dict(zip(names, arrays, strict=True))
    named = cast("Mapping[str, Any]", sample)
    if set(named) != set(names):
        found = ", ".join(map(str, named)) or "none"
        raise InputError.at(where, expected=f"inputs {', '.join(names)}", found=found)
    return named


def require_finite(where: str, name: str, array: Array) -> None:
    """Check the array of a calibration sample for one input.

    Raises:
        InputError: it has NaN or infinity.
    """
    if array.dtype.kind not in "biu" and not np.isfinite(array).all():
        at = f"{where}, input {name!r}"
        raise InputError.at(at, expected="finite numbers", found="NaN or infinity")


def in_order(
    graph: Graph, inputs: Mapping[str, Any], formats: Mapping[str, Format] | None = None
) -> list[Array]:
    """Return the inputs of a graph in its own order.

    Args:
        graph: the graph that will run.
        inputs: arrays by name; NumPy, or anything that offers DLPack.
        formats: the format of each input; by default the user's axis order.

    Raises:
        InputError: the inputs are not a mapping, a name, a shape or a dtype is wrong, or an input
            is missing.
    """
    wanted = formats or {}
    given = zip(graph.inputs, by_name(graph.name, graph.inputs, inputs), strict=True)
    return [as_array(graph.values[name], array, wanted.get(name)) for name, array in given]


def as_array(value: Value, given: Any, fmt: Format | None = None) -> Array:
    """Return an input as a C-contiguous array, without a copy where it is one already.

    Args:
        value: the input.
        given: NumPy, or anything that offers DLPack.
        fmt: the format that the model reads; by default the user's axis order. An array of the
            storage shape is used as it is. One of the user's shape is transposed if the format is a
            permutation; that moves nothing if its strides are those of the format. If both shapes
            are equal, strides decide: strides that decrease in the order of the format mean the
            user's shape; strides that decrease in the order of the shape mean the storage, if the
            array is NumPy's. Other libraries have contiguous tensors of either kind.

    Raises:
        InputError: it is not an array, its dtype or shape is wrong, or its strides are ambiguous.
    """
    array = of_dtype(given, value.dtype, f"input {value.name!r}")
    if fmt is None or fmt == user_format(value):
        if array.shape == value.shape:
            # np.ascontiguousarray would give a scalar an axis.
            return np.asarray(array, order="C")
        raise InputError.at(
            f"input {value.name!r}",
            expected=f"shape {value.shape}",
            found=str(array.shape),
            fix=_fix(value, array.shape),
        )
    return _stored(value, array, fmt, given)


def _fix(value: Value, found: tuple[int, ...]) -> str:
    """Return what helps where an input has another shape."""
    expected = value.shape
    if len(found) == len(expected):
        return f"compile with shapes={{{value.name!r}: {found}}}"
    if expected == (1, *found):
        return "add the axis of the batch: x[None]"
    if found == (1, *expected):
        return "take the first axis off: x[0]"
    return f"give an array with {len(expected)} {'axis' if len(expected) == 1 else 'axes'}"


def of_dtype(given: Any, dtype: DType, where: str) -> Array:
    """Return what NumPy or DLPack offers as an array of a dtype, without a copy.

    Args:
        given: NumPy, or anything that offers DLPack.
        dtype: the required dtype.
        where: the name in messages.

    Raises:
        InputError: it is not an array, its memory cannot be read, or it has another dtype.
    """
    array = given
    if isinstance(given, np.ma.MaskedArray) and np.ma.is_masked(cast("Any", given)):
        raise InputError.at(
            where, expected="an array", found="one with masked elements", fix="use .filled(value)"
        )
    if isinstance(given, np.generic):  # NumPy gives these where an operation has a single result
        array = np.asarray(cast("Any", given))
    elif not isinstance(given, np.ndarray):
        try:
            array = np.from_dlpack(given)
        except (AttributeError, TypeError, RuntimeError, BufferError, ValueError) as error:
            kind, reason = type(given).__name__, " ".join(str(error).split())
            raise InputError.at(
                where,
                expected="an array (NumPy, or anything with DLPack)",
                found=f"{kind}: {reason}" if hasattr(given, "__dlpack__") else kind,
                fix=f"use numpy.asarray(..., dtype={dtype.name!r})",
            ) from error
    if array.dtype != dtype.numpy:
        raise InputError.at(
            where,
            expected=f"dtype {dtype}",
            found=str(array.dtype),
            fix=f"use .astype({dtype.name!r})",
        )
    return array


def made_up(value: Value, shape: Sequence[int], rng: np.random.Generator) -> Array:
    """Return an input for timing runs.

    Floats are standard normal. Integers are zeros, as they may be indices, and so are booleans.

    Args:
        value: the input.
        shape: shape of the array in the format that the model reads.
        rng: the source of random numbers.
    """
    if value.dtype.name.endswith(("float32", "float64", "float16")):
        return rng.standard_normal(shape, np.float32).astype(value.dtype.numpy)
    return np.zeros(shape, value.dtype.numpy)


def _stored(value: Value, array: Array, fmt: Format, given: object) -> Array:
    """Return an array in a format other than the user's axis order."""
    shape = storage_shape(value, fmt)
    if array.shape == value.shape and fmt.is_plain:
        names = user_format(value).order
        order = tuple(names.index(axis) for axis in fmt.order)
        if array.shape != shape or _is_users(value, array, fmt, order, given):
            array = array.transpose(order)
    if array.shape == shape:
        return np.ascontiguousarray(array)
    raise InputError.at(
        f"input {value.name!r}",
        expected=f"shape {shape}, which is {value.shape} stored as {fmt}",
        found=str(array.shape),
        fix="store it with stridewise.reorder, or compile without input_formats",
    )


def _is_users(
    value: Value, array: Array, fmt: Format, order: tuple[int, ...], given: object
) -> bool:
    """Return whether an array is in the user's order, if its shape is also the storage shape.

    Args:
        value: the input.
        array: of that shape.
        fmt: the format, a permutation.
        order: the permutation from the user's order to that of the format.
        given: the argument of the caller.

    Raises:
        InputError: the strides are ambiguous.
    """
    strides = array.strides
    if is_same_walk(order, array.shape, strides):
        return False
    own = falls_along(range(array.ndim), array.shape, strides)
    turned = falls_along(order, array.shape, strides)
    if own != turned and (turned or isinstance(given, np.ndarray)):
        return turned
    raise InputError.at(
        f"input {value.name!r}",
        expected=f"strides that tell {user_format(value)} from {fmt}, both of shape {value.shape}",
        found=f"strides of {strides} bytes in {type(given).__name__}",
        fix=f"give {user_format(value)} with the strides of {fmt} (in PyTorch: channels_last), "
        f"or what is stored as {fmt} as a C-contiguous NumPy array",
    )
