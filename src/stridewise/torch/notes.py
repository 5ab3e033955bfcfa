"""Notes on the memory of tensors, which views share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from stridewise.frontends.torch.library import submodule
from stridewise.torch.findings import Finding, OperatorLayout

__all__ = ["Memory", "Note"]


@dataclass(frozen=True, slots=True)
class Note:
    """What is known of memory.

    Attributes:
        row: the operator that computed or allocated it; None for inputs and parameters.
        is_image: whether it holds data of channels-last images.
        loss: what it is once an operator on images reads it in another order than channels-last.
    """

    row: OperatorLayout | None = None
    is_image: bool = False
    loss: Finding | None = None


class Memory:
    """Notes by storage. A weak reference keeps the identity of a storage from being used again."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Any, Note]] = {}
        self._reference = submodule("torch.multiprocessing.reductions").StorageWeakRef

    def of(self, x: Any) -> Note | None:
        """Return the note of a tensor's memory."""
        found = self._known.get(x.untyped_storage()._cdata)
        return None if found is None else found[1]

    def note(self, x: Any, note: Note) -> None:
        """Note what a tensor's memory holds from now on."""
        storage = x.untyped_storage()
        self._known[storage._cdata] = (self._reference(storage), note)
