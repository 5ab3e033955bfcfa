"""A node as some of its kernels see it."""

from __future__ import annotations

from collections.abc import Mapping

from stridewise.formats import Format
from stridewise.graph import Node, Value
from stridewise.targets.kernels import KernelContext

__all__ = ["ContextView"]


class ContextView:
    """A context around another one; see :class:`stridewise.targets.kernels.KernelContext`.

    Answers are those of the inner context. Subclasses change some of them.
    """

    def __init__(self, inner: KernelContext) -> None:
        """Wrap the context of a node, or of one beside it."""
        self.inner = inner

    @property
    def node(self) -> Node:
        """The node."""
        return self.inner.node

    def value(self, name: str) -> Value:
        """Return a value of the graph."""
        return self.inner.value(name)

    def is_constant(self, name: str) -> bool:
        """Return whether a value is known before the run."""
        return self.inner.is_constant(name)

    def formats(self, name: str) -> Mapping[str, Format]:
        """Return the storage formats that the target offers for a value, by kind."""
        return self.inner.formats(name)

    def may_place(self, index: int) -> bool:
        """Return whether input ``index`` may be produced inside an output of this node."""
        return self.inner.may_place(index)

    def ahead(self) -> KernelContext | None:
        """Return the context of the node ahead."""
        return self.inner.ahead()

    def behind(self) -> KernelContext | None:
        """Return the context of the node behind."""
        return self.inner.behind()
