"""How a forward stores what it keeps for its backward.

No operator of PyTorch reads most of these tensors, so that the plan of the forward decides how
they are stored. One in a plain format has PyTorch's shape and the strides of the format. One in
blocks has the storage shape, of a higher rank, so that it cannot be taken for the tensor itself.
"""

from __future__ import annotations

from typing import Any

from stridewise.frontends.torch.graphs import Border
from stridewise.frontends.torch.library import torch
from stridewise.ops.geometry import row_major
from stridewise.runtime.reorder.reorder import reorder
from stridewise.tensor.desc import TensorDesc

__all__ = ["Kept", "border_of"]


def border_of(desc: TensorDesc) -> Border:
    """Return how PyTorch has a tensor that is stored in a format: blocks by the storage shape."""
    fmt, own = desc.storage.format, desc.origin.format.order
    if not fmt.is_plain:
        shape = desc.storage.shape
        return Border(shape, row_major(shape), tuple(range(len(shape))))
    order = tuple(own.index(axis) for axis in fmt.order)
    steps = row_major(desc.storage.shape)
    strides = tuple(steps[order.index(axis)] for axis in range(len(order)))
    return Border(desc.origin.shape, strides, order)


class Kept:
    """What one forward has kept for its backward.

    Attributes:
        descs: how results are stored that PyTorch does not read, by the name that their node has in
            the forward and in the backward.
    """

    def __init__(self) -> None:
        """Start before the forward is compiled."""
        self.descs: dict[str, TensorDesc] = {}

    def logical(self, name: str, tensor: Any, strides: tuple[int, ...]) -> Any:
        """Return a kept tensor as PyTorch promises it.

        Args:
            name: of its node.
            tensor: as the forward, or a hook of PyTorch, has stored it.
            strides: what PyTorch promises.
        """
        desc = self.descs.get(name)
        if desc is None or tensor.stride() == strides:
            return tensor
        shape, own = desc.origin.shape, desc.origin.format
        if tuple(tensor.shape) != shape:
            tensor = reorder(tensor, desc, TensorDesc(shape, desc.dtype, own, own))
        return torch.empty_strided(shape, strides, dtype=tensor.dtype).copy_(tensor)

    def stored(self, name: str, tensor: Any) -> Any:
        """Return a kept tensor in its format, up to the strides, whatever a hook made of it."""
        desc = self.descs[name]
        shape, own = desc.origin.shape, desc.origin.format
        if desc.storage.format.is_plain or tuple(tensor.shape) == desc.storage.shape:
            return tensor
        return reorder(tensor.contiguous(), TensorDesc(shape, desc.dtype, own, own), desc)
