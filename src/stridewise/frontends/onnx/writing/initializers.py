"""Constants and types of a model that is written: the counterpart of ``tensors.py``."""

from __future__ import annotations

import numpy as np
from onnx import (
    AttributeProto,
    NodeProto,
    SparseTensorProto,
    StringStringEntryProto,
    TensorProto,
    TypeProto,
    ValueInfoProto,
)

from stridewise.dtypes import DType, dtype_of
from stridewise.graph import TensorType
from stridewise.ops.registry import Array

__all__ = ["as_bytes", "code_of", "declare", "external", "hollow", "inline"]

_CODES = {
    "float64": TensorProto.DOUBLE,
    "float32": TensorProto.FLOAT,
    "float16": TensorProto.FLOAT16,
    "bfloat16": TensorProto.BFLOAT16,
    "int64": TensorProto.INT64,
    "int32": TensorProto.INT32,
    "int16": TensorProto.INT16,
    "int8": TensorProto.INT8,
    "uint64": TensorProto.UINT64,
    "uint32": TensorProto.UINT32,
    "uint16": TensorProto.UINT16,
    "uint8": TensorProto.UINT8,
    "bool": TensorProto.BOOL,
}


def code_of(dtype: DType) -> TensorProto.DataType:
    """Return ONNX's number of an element type; each dtype has one."""
    return _CODES[dtype.name]


def declare(name: str, type_: TensorType) -> ValueInfoProto:
    """Return name and type of a value."""
    tensor = TypeProto.Tensor(elem_type=code_of(type_.dtype))
    for extent in type_.shape:
        tensor.shape.dim.add(dim_value=extent)
    if not type_.shape:
        tensor.shape.SetInParent()  # rank 0, which is not the same as an unknown rank
    return ValueInfoProto(name=name, type=TypeProto(tensor_type=tensor))


def as_bytes(data: Array) -> Array:
    """Return the elements as ONNX stores them: row-major, little-endian, as an array of bytes."""
    little_endian = data.dtype.newbyteorder("<")
    stored = np.ascontiguousarray(data).astype(little_endian, copy=False)
    return stored.reshape(-1).view(np.uint8)


def _header(name: str, data: Array) -> TensorProto:
    return TensorProto(name=name, data_type=code_of(dtype_of(data.dtype)), dims=data.shape)


def inline(name: str, data: Array) -> TensorProto:
    """Return a tensor with its elements inside of the model."""
    tensor = _header(name, data)
    tensor.raw_data = as_bytes(data).tobytes()
    return tensor


def external(name: str, data: Array, location: str, offset: int) -> TensorProto:
    """Return a tensor whose elements are in another file of the same folder."""
    tensor = _header(name, data)
    tensor.data_location = TensorProto.EXTERNAL
    entries = {"location": location, "offset": str(offset), "length": str(data.nbytes)}
    tensor.external_data.extend(
        StringStringEntryProto(key=key, value=value) for key, value in entries.items()
    )
    return tensor


def hollow(name: str, data: Array) -> NodeProto:
    """Return a small node that generates zeros in place of a constant.

    A sparse initializer would be shorter, but ONNX's shape inference does not treat it as a dense
    tensor.
    """
    nothing = data.reshape(-1)[:0]
    sparse = SparseTensorProto(
        values=inline(name, nothing),
        indices=inline("", np.zeros(0, np.int64)),
        dims=data.shape,
    )
    kind = AttributeProto.SPARSE_TENSOR
    value = AttributeProto(name="sparse_value", type=kind, sparse_tensor=sparse)
    doc = "zeros in place of weights that were left out"
    return NodeProto(op_type="Constant", output=[name], attribute=[value], doc_string=doc)
