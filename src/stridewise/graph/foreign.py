"""Parts of a model that another runtime computes, as opaque objects of their front end."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Protocol

from numpy.typing import NDArray

__all__ = ["ForeignFunction", "ForeignPart"]


class ForeignFunction(Protocol):
    """A foreign part that is ready to run. Any number of threads may call it at the same time."""

    def __call__(self, operands: Sequence[Any]) -> Sequence[Any]:
        """Return the outputs as new objects.

        Args:
            operands: the inputs in order: arrays, or in a tail also objects of other kinds, such as
                lists of arrays.

        Raises:
            ExecutionError: the other runtime fails.
        """
        ...

    def write(
        self, operands: Sequence[NDArray[Any] | None], results: Sequence[NDArray[Any]]
    ) -> None:
        """Compute outputs that are tensors of known type, in place.

        Args:
            operands: the inputs in order.
            results: arrays of the types of the outputs, in order.

        Raises:
            ExecutionError: the other runtime fails, or gives other types.
        """
        ...


class ForeignPart(ABC):
    """A part of a model that another runtime computes.

    A front end makes it. It is the attribute ``part`` of a node ``fallback``, or the part of a
    :class:`~stridewise.graph.Tail`. Inputs and outputs are those of the node or tail, in order. The
    graph, the operators and the runtime use only the members of this class. Two parts are equal if
    their digests are.
    """

    @property
    @abstractmethod
    def runtime(self) -> str:
        """Name of the runtime, as plans show it."""

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """Bytes of the part, its weights included."""

    @property
    @abstractmethod
    def digest(self) -> str:
        """Hexadecimal digest of the content. It stands for the part in the text of a graph."""

    @abstractmethod
    def prepare(self, threads: int, where: str) -> ForeignFunction:
        """Return the part, ready to run.

        Args:
            threads: how many threads the other runtime may use.
            where: the node or tail, for messages.

        Raises:
            DependencyError: the other runtime is not installed.
            ModelError: it refuses the part.
        """

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ForeignPart):
            return NotImplemented
        return self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        return f"foreign {self.digest}"
