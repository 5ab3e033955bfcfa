"""Inputs of a model: those that a call provides, and their shapes when every extent is known."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from operator import index
from typing import SupportsIndex

import numpy as np
from numpy.typing import ArrayLike
from onnx import ModelProto, ValueInfoProto

from stridewise.classes import dataclass
from stridewise.dtypes import DType
from stridewise.errors import InputError, ModelError
from stridewise.frontends.onnx.reading.tensors import dtype_of_code
from stridewise.graph import Extent, InputSpec
from stridewise.ops.registry import Array

__all__ = ["ModelInput", "given_values", "model_inputs", "resolve_shapes", "stored_names"]

Shapes = Mapping[str, Sequence[int]]


@dataclass(frozen=True, slots=True)
class ModelInput:
    """An input as the model declares it.

    Attributes:
        name: its name.
        dtype: element type.
        dims: extents, and symbols of unknown extents (``""`` without a symbol); None for an unknown
            rank.
    """

    name: str
    dtype: DType
    dims: tuple[int | str, ...] | None

    @property
    def where(self) -> str:
        """How messages name the input."""
        return f"input {self.name!r}"

    @property
    def spec(self) -> InputSpec:
        """The shapes that the model takes."""
        extents = tuple(map(_extent, self.dims)) if self.dims is not None else None
        return InputSpec(self.name, self.dtype, extents)


def _extent(dim: int | str) -> Extent:
    if isinstance(dim, int):
        return Extent((), dim, dim)
    return Extent((dim,) if dim else ())


def stored_names(model: ModelProto) -> frozenset[str]:
    """Return the names of values that the file stores, sparse ones included."""
    graph = model.graph
    stored = (*graph.initializer, *(item.values for item in graph.sparse_initializer))
    return frozenset(item.name for item in stored)


def model_inputs(model: ModelProto, without: Container[str] = ()) -> tuple[ModelInput, ...]:
    """Return the inputs that a call provides: those without an initializer of the same name.

    Args:
        model: the model.
        without: names of inputs to omit.

    Raises:
        ModelError: an input is not a tensor, or has a dtype that is not supported.
    """
    stored = stored_names(model)
    return tuple(
        _input(item)
        for item in model.graph.input
        if item.name not in stored and item.name not in without
    )


def _input(info: ValueInfoProto) -> ModelInput:
    where = f"input {info.name!r}"
    if not info.type.HasField("tensor_type"):
        kind = info.type.WhichOneof("value") or "no type"
        raise ModelError.at(where, expected="a tensor", found=str(kind))
    tensor = info.type.tensor_type
    dtype = dtype_of_code(tensor.elem_type, where)
    if not tensor.HasField("shape"):
        return ModelInput(info.name, dtype, None)
    dims = tuple(
        # Some exporters write -1 for an unknown extent.
        int(dim.dim_value) if dim.HasField("dim_value") and dim.dim_value >= 0 else dim.dim_param
        for dim in tensor.shape.dim
    )
    return ModelInput(info.name, dtype, dims)


def resolve_shapes(inputs: Sequence[ModelInput], shapes: Shapes) -> dict[str, tuple[int, ...]]:
    """Return the shape of every input: the given one, or that of the model.

    An unknown first extent, the batch, is 1. A symbol that a given shape of one input fixes has the
    same value for the others.

    Raises:
        InputError: a given shape names no input, has another rank, or contradicts another.
        ModelError: an extent is not known.
    """
    symbols = _check_given(inputs, shapes)
    result: dict[str, tuple[int, ...]] = {}
    for item in inputs:
        if item.name in shapes:
            result[item.name] = tuple(int(extent) for extent in shapes[item.name])
            continue
        dims = [symbols.get(dim, dim) if isinstance(dim, str) else dim for dim in item.dims or ()]
        if dims and isinstance(dims[0], str):
            dims[0] = 1
        known = tuple(dim for dim in dims if isinstance(dim, int))
        if item.dims is None or len(known) != len(dims):
            raise _unknown(item)
        result[item.name] = known
    return result


def given_values(inputs: Sequence[ModelInput], values: Mapping[str, ArrayLike]) -> dict[str, Array]:
    """Return given values of inputs in the dtypes of the inputs.

    Raises:
        InputError: a name is not one of an input, or a value does not fit its dtype or shape.
    """
    by_name = {item.name: item for item in inputs}
    found: dict[str, Array] = {}
    for name, value in values.items():
        item = by_name.get(name)
        if item is None:
            names = ", ".join(map(repr, by_name)) or "none"
            raise InputError.at("values", expected=f"names of inputs ({names})", found=repr(name))
        found[name] = _value(item, value)
    return found


def _value(item: ModelInput, value: ArrayLike) -> Array:
    given = np.asarray(value)
    data = given.astype(item.dtype.numpy) if given.dtype.kind in "biuf" else given
    exact = data.dtype.kind == "f" or np.array_equal(data, given)
    if data.dtype != item.dtype.numpy or not exact:
        raise InputError.at(item.where, expected=f"a value of {item.dtype}", found=repr(value))
    dims = item.dims if item.dims is not None else data.shape
    pairs = zip(dims, data.shape, strict=False)
    if len(dims) != data.ndim or any(isinstance(d, int) and d != size for d, size in pairs):
        expected = f"a value of shape {_dims_text(item)}"
        raise InputError.at(item.where, expected=expected, found=f"shape {data.shape}")
    return data


def _is_extent(given: object) -> bool:
    return isinstance(given, SupportsIndex) and index(given) >= 0


def _check_given(inputs: Sequence[ModelInput], shapes: Shapes) -> dict[str, int]:
    """Check given shapes and return the values of symbols that follow from them."""
    by_name = {item.name: item for item in inputs}
    symbols: dict[str, int] = {}
    for name, shape in shapes.items():
        item = by_name.get(name)
        if item is None:
            names = ", ".join(map(repr, by_name)) or "none"
            raise InputError.at("shapes", expected=f"names of inputs ({names})", found=repr(name))
        if not all(_is_extent(extent) for extent in shape):
            raise InputError.at(
                item.where, expected="extents of 0 or more", found=str(tuple(shape))
            )
        if item.dims is None:
            continue
        if len(shape) != len(item.dims):
            raise InputError.at(
                item.where,
                expected=f"a shape of rank {len(item.dims)}, like {_dims_text(item)}",
                found=str(tuple(shape)),
            )
        for dim, extent in zip(item.dims, shape, strict=True):
            if isinstance(dim, str) and dim and symbols.setdefault(dim, extent) != extent:
                raise InputError.at(
                    item.where, expected=f"{dim} = {symbols[dim]} as elsewhere", found=str(extent)
                )
    return symbols


def _dims_text(item: ModelInput) -> str:
    if item.dims is None:
        return "of unknown rank"
    return "(" + ", ".join(str(dim) if dim else "?" for dim in item.dims) + ")"


def _unknown(item: ModelInput) -> ModelError:
    dims = item.dims if item.dims is not None else ("", "", "", "")
    guesses = (1, 3, 224, 224) if len(dims) == 4 else (1,) * len(dims)
    example = [
        dim if isinstance(dim, int) else guess for dim, guess in zip(dims, guesses, strict=True)
    ]
    text = ",".join(map(str, example))
    return ModelError.at(
        item.where,
        expected="every extent to be known",
        found=f"shape {_dims_text(item)}",
        fix=f"give it: shapes={{{item.name!r}: {tuple(example)}}}, "
        f"or on the command line --shape {item.name}={text}",
    )
