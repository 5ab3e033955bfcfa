"""Types as other runtimes spell them, like ``seq(tensor(float))``, to ONNX's own."""

from __future__ import annotations

from onnx import TensorProto, TypeProto

from stridewise.graph import ResultType

__all__ = ["spelled_type"]

_CODES: dict[str, int] = {
    "float": TensorProto.FLOAT,
    "double": TensorProto.DOUBLE,
    **{
        name.lower(): code
        for name, code in TensorProto.DataType.items()
        if name not in ("UNDEFINED", "FLOAT", "DOUBLE")
    },
}


def spelled_type(result: ResultType) -> TypeProto:
    """Return the type that a text spells; without a value where nobody knows it.

    >>> spelled_type(ResultType("tensor(float)", (2, 3))).tensor_type.shape.dim[1].dim_value
    3
    >>> spelled_type(ResultType("seq(tensor(string))", None)).sequence_type.elem_type.WhichOneof(
    ...     "value"
    ... )
    'tensor_type'
    """
    kind, _, rest = result.text.partition("(")
    inner = rest.removesuffix(")")
    found = TypeProto()
    if kind == "tensor" and inner in _CODES:
        found.tensor_type.elem_type = _CODES[inner]
        if result.shape is not None:
            found.tensor_type.shape.SetInParent()
            for extent in result.shape:
                dim = found.tensor_type.shape.dim.add()
                if extent is not None:
                    dim.dim_value = extent
    elif kind == "seq":
        found.sequence_type.elem_type.CopyFrom(spelled_type(ResultType(inner, None)))
    elif kind == "optional":
        found.optional_type.elem_type.CopyFrom(spelled_type(ResultType(inner, None)))
    return found
