"""Several strided copies as one operator: what moves such as transposes and concats do together.

The attribute ``shape`` is that of the result. ``boxes`` has for each copy, one after the other: the
index of the input, the first element that is read from its row-major elements, and for each axis of
the result the first index, the extent and the distance in the input from one index to the next.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from stridewise.classes import dataclass
from stridewise.graph import Node, TensorType
from stridewise.ops.registry import Array, Operands, Types, array, needs, register, tensor

__all__ = ["Box", "boxes_of"]

_HEAD = 2
_PER_AXIS = 3


@dataclass(frozen=True, slots=True)
class Box:
    """One copy.

    Attributes:
        source: the index of the input.
        offset: the first element that is read.
        starts: the first index in the result, for each axis.
        extents: of the box.
        strides: elements of the input from one index to the next.
    """

    source: int
    offset: int
    starts: tuple[int, ...]
    extents: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def numbers(self) -> tuple[int, ...]:
        """The box as the attribute has it."""
        axes = zip(self.starts, self.extents, self.strides, strict=True)
        return (self.source, self.offset, *(number for axis in axes for number in axis))

    @property
    def last(self) -> int:
        """The last element that is read."""
        steps = zip(self.extents, self.strides, strict=True)
        return self.offset + sum((extent - 1) * stride for extent, stride in steps)

    def overlaps(self, other: Box) -> bool:
        """Return whether both write some element."""
        return all(
            begin < start + length and start < begin + extent
            for begin, extent, start, length in zip(
                self.starts, self.extents, other.starts, other.extents, strict=True
            )
        )


def boxes_of(node: Node) -> tuple[Box, ...]:
    """Return the copies of a node.

    Raises:
        GraphError: the attribute has numbers of no whole box.
    """
    numbers, rank = node.ints_attr("boxes"), len(node.ints_attr("shape"))
    width = _HEAD + _PER_AXIS * rank
    needs(node, len(numbers) % width == 0, f"boxes of {width} numbers", len(numbers))
    found: list[Box] = []
    for begin in range(0, len(numbers), width):
        source, offset, *axes = numbers[begin : begin + width]
        parts = (tuple(axes[index::_PER_AXIS]) for index in range(_PER_AXIS))
        found.append(Box(source, offset, *parts))
    return tuple(found)


def _check(node: Node, box: Box, shape: tuple[int, ...], sources: Sequence[TensorType]) -> None:
    needs(node, 0 <= box.source < len(sources), f"one of {len(sources)} inputs", box.source)
    size = prod(sources[box.source].shape)
    ends = (start + extent for start, extent in zip(box.starts, box.extents, strict=True))
    inside = all(end <= whole for end, whole in zip(ends, shape, strict=True))
    positive = min((*box.extents, 1)) > 0 and min((*box.starts, *box.strides, box.offset)) >= 0
    needs(node, inside and positive, f"a box inside of {shape}", box)
    needs(node, positive and box.last < size, f"a box of {size} elements", box)


def _infer(node: Node, types: Types) -> tuple[TensorType, ...]:
    sources = [tensor(node, types, index) for index in range(len(types))]
    shape, boxes = node.ints_attr("shape"), boxes_of(node)
    needs(node, len({item.dtype for item in sources}) == 1, "inputs of one dtype", types)
    for box in boxes:
        _check(node, box, shape, sources)
    apart = not any(
        box.overlaps(other) for index, box in enumerate(boxes) for other in boxes[:index]
    )
    whole = sum(prod(box.extents) for box in boxes) == prod(shape)
    needs(node, apart and whole, f"boxes that make up {shape}", len(boxes))
    return (TensorType(sources[0].dtype, shape),)


def _evaluate(node: Node, operands: Operands) -> tuple[Array, ...]:
    sources = [np.ascontiguousarray(array(operands, i)).reshape(-1) for i in range(len(operands))]
    result = np.empty(node.ints_attr("shape"), sources[0].dtype)
    for box in boxes_of(node):
        source = sources[box.source]
        steps = zip(box.strides, box.extents, strict=True)
        strides = tuple(stride * source.itemsize if n > 1 else 0 for stride, n in steps)
        found = np.lib.stride_tricks.as_strided(source[box.offset :], box.extents, strides)
        places = zip(box.starts, box.extents, strict=True)
        result[tuple(slice(start, start + extent) for start, extent in places)] = found
    return (result,)


register(
    "rearrange",
    (1, None),
    _infer,
    _evaluate,
    "interrupt",
    attributes={"shape": "integers", "boxes": "integers"},
)
