"""Types as ONNX Runtime writes them, like ``seq(tensor(float))``."""

from __future__ import annotations

from collections.abc import Sequence

from onnx import TensorProto, TypeProto

__all__ = ["parse_type"]

_CODES: dict[str, int] = {
    "float": TensorProto.FLOAT,
    "double": TensorProto.DOUBLE,
    **{
        name.lower(): code
        for name, code in TensorProto.DataType.items()
        if name not in ("UNDEFINED", "FLOAT", "DOUBLE")
    },
}


def parse_type(text: str, shape: Sequence[int | None] | None = None) -> TypeProto:
    """Return the type that a text stands for, without a value if it is unknown.

    Args:
        text: like ``tensor(float)``, ``seq(tensor(int64))`` or ``optional(tensor(string))``.
        shape: of a tensor; None for an unknown extent, or as a whole for an unknown rank.

    >>> parse_type("tensor(float)", (2, 3)).tensor_type.shape.dim[1].dim_value
    3
    >>> parse_type("seq(tensor(string))").sequence_type.elem_type.WhichOneof("value")
    'tensor_type'
    """
    kind, _, rest = text.partition("(")
    inner = rest.removesuffix(")")
    found = TypeProto()
    if kind == "tensor" and inner in _CODES:
        found.tensor_type.elem_type = _CODES[inner]
        if shape is not None:
            found.tensor_type.shape.SetInParent()
            for extent in shape:
                dim = found.tensor_type.shape.dim.add()
                if extent is not None:
                    dim.dim_value = extent
    elif kind == "seq":
        found.sequence_type.elem_type.CopyFrom(parse_type(inner))
    elif kind == "optional":
        found.optional_type.elem_type.CopyFrom(parse_type(inner))
    return found
