"""Leaving large tensors in the file when a model is parsed.

A parsed protocol buffer is a second copy of the file, and tensors that are read from it a third. So
the bytes of large initializers are removed before parsing. The parsed model refers to them as
external data in the model file itself, which the reader of tensors supports anyway.

Of the encoding (protobuf.dev/programming-guides/encoding), this module decodes the fields of the
model, of its graph, and of initializers. The parser gets all unusual content unchanged.
"""

from __future__ import annotations

from collections.abc import Iterator

from onnx import GraphProto, ModelProto, StringStringEntryProto, TensorProto

from stridewise.classes import dataclass
from stridewise.frontends.onnx.reading.tensors import is_known

__all__ = ["LEAST", "without_weights"]

LEAST = 1 << 14
"""Least number of bytes of a tensor that stays in the file."""

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_GRAPH = ModelProto.GRAPH_FIELD_NUMBER
_INITIALIZER = GraphProto.INITIALIZER_FIELD_NUMBER
_DATA_TYPE = TensorProto.DATA_TYPE_FIELD_NUMBER
_RAW_DATA = TensorProto.RAW_DATA_FIELD_NUMBER
_PLACED = (
    TensorProto.SEGMENT_FIELD_NUMBER,
    TensorProto.EXTERNAL_DATA_FIELD_NUMBER,
    TensorProto.DATA_LOCATION_FIELD_NUMBER,
)
"""Fields for the location of elements; a tensor with one of them stays unchanged."""


class _UnusualError(Exception):
    """The encoding is not supported here."""


@dataclass(frozen=True, slots=True)
class _Field:
    """One field of a message: number, and positions of the field and of its content."""

    number: int
    kind: int
    start: int
    content: int
    end: int
    value: int


def _varint(data: memoryview, at: int, end: int) -> tuple[int, int]:
    """Return a number and the position after it."""
    number, shift = 0, 0
    while at < end and shift < 64:
        byte = data[at]
        number |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return number, at
    raise _UnusualError


def _fields(data: memoryview, at: int, end: int) -> Iterator[_Field]:
    """Yield the fields of the message between two positions."""
    while at < end:
        start = at
        tag, at = _varint(data, at, end)
        number, kind, value, content = tag >> 3, tag & 7, 0, at
        if kind == _VARINT:
            value, at = _varint(data, at, end)
        elif kind == _BYTES:
            length, content = _varint(data, at, end)
            at = content + length
        elif kind in (_FIXED32, _FIXED64):
            at += 4 if kind == _FIXED32 else 8
        else:
            raise _UnusualError  # groups, which ONNX does not use
        if at > end or not number:
            raise _UnusualError
        yield _Field(number, kind, start, content, at, value)


def _encoded(number: int) -> bytes:
    found = bytearray()
    while number >= 0x80:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*found, number))


def _message(number: int, parts: list[bytes | memoryview]) -> list[bytes | memoryview]:
    """Return a field that holds a message of these parts."""
    length = sum(len(part) for part in parts)
    return [_encoded(number << 3 | _BYTES), _encoded(length), *parts]


def _tensor(data: memoryview, tensor: _Field, location: str) -> list[bytes | memoryview] | None:
    """Return the field of a tensor without its elements; None if it stays unchanged."""
    fields = list(_fields(data, tensor.content, tensor.end))
    raw = [field for field in fields if field.number == _RAW_DATA]
    types = [field.value for field in fields if field.number == _DATA_TYPE]
    if len(raw) != 1 or raw[0].kind != _BYTES or not types or not is_known(types[-1]):
        return None
    if any(field.number in _PLACED for field in fields):
        return None
    (only,) = raw
    if only.end - only.content < LEAST:
        return None
    entries = {
        "location": location,
        "offset": str(only.content),
        "length": str(only.end - only.content),
    }
    place = TensorProto(
        data_location=TensorProto.EXTERNAL,
        external_data=[StringStringEntryProto(key=k, value=v) for k, v in entries.items()],
    )
    before, behind = data[tensor.content : only.start], data[only.end : tensor.end]
    return _message(_INITIALIZER, [before, behind, place.SerializeToString()])


def _graph(data: memoryview, graph: _Field, location: str) -> list[bytes | memoryview]:
    parts: list[bytes | memoryview] = []
    done = graph.content
    for field in _fields(data, graph.content, graph.end):
        if field.number != _INITIALIZER or field.kind != _BYTES or field.end - field.start < LEAST:
            continue
        hollow = _tensor(data, field, location)
        if hollow is not None:
            parts += [data[done : field.start], *hollow]
            done = field.end
    return [*parts, data[done : graph.end]]


def without_weights(content: memoryview, location: str) -> bytes | None:
    """Return the bytes of a model whose large initializers are external data.

    Args:
        content: a file, or the bytes of one.
        location: the location in the external data that replaces the bytes.

    Returns:
        The bytes to parse; None if ``content`` itself has to be parsed. It may not be a model.
    """
    try:
        fields = list(_fields(content, 0, len(content)))
        graphs = [field for field in fields if field.number == _GRAPH]
        if len(graphs) != 1 or graphs[0].kind != _BYTES:
            return None
        (graph,) = graphs
        parts = _message(_GRAPH, _graph(content, graph, location))
    except (_UnusualError, UnicodeEncodeError):
        return None
    return b"".join([content[: graph.start], *parts, content[graph.end :]])
