"""What the compiler needs of a model in any form, and what a front end has to provide."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, cast

from numpy.typing import ArrayLike, NDArray

from stridewise.graph import Capability, Graph, Shapes, Signature
from stridewise.graph.extents import is_fixed

__all__ = ["CallConvention", "FrontEnd", "ModelReader", "fixed_shapes"]

Array = NDArray[Any]


class CallConvention(Protocol):
    """How a model is called whose arguments and results are no arrays."""

    def stored(self, shapes: Shapes) -> Shapes:
        """Return shapes of arrays for shapes as the caller writes them."""
        ...

    def arrays(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Array]:
        """Return the arrays of a call, in the order of the inputs.

        Raises:
            InputError: an argument does not fit.
        """
        ...

    def named(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arrays of arguments by name.

        Raises:
            InputError: an argument does not fit.
        """
        ...

    def results(self, outputs: Sequence[Array]) -> Any:
        """Return the results of a call for the outputs of the model."""
        ...

    def output(self, position: int, array: Array) -> Any:
        """Return one output as the caller has it."""
        ...


class ModelReader(Protocol):
    """A model that a front end has opened. It gives a graph for any shapes that the model takes."""

    @property
    def name(self) -> str:
        """Name of the graphs."""
        ...

    @property
    def is_graph(self) -> bool:
        """Whether the model is a graph, whose shapes and values are fixed."""
        ...

    @property
    def calls(self) -> CallConvention | None:
        """How the model is called; None if with arrays."""
        ...

    @property
    def signature(self) -> Signature:
        """The inputs that are tensors, with the extents that the model leaves open."""
        ...

    @property
    def arguments(self) -> tuple[str, ...]:
        """Names of all inputs, in order; also of those that are not tensors."""
        ...

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the outputs, in order."""
        ...

    @property
    def paths(self) -> tuple[Path, ...]:
        """The files that were read so far, the model's own first.

        It is empty for a model in memory. Such a model cannot be read again after its weights were
        dropped.
        """
        ...

    @property
    def opened(self) -> float:
        """When reading began, in seconds since the epoch."""
        ...

    def values(self, values: Mapping[str, ArrayLike]) -> dict[str, Array]:
        """Return values of inputs in the dtypes of the inputs.

        Raises:
            InputError: a name is not one of an input, or a value does not fit it.
        """
        ...

    def graph(
        self,
        shapes: Shapes | None = None,
        values: Mapping[str, ArrayLike] | None = None,
        *,
        memory_limit: int | None = None,
    ) -> Graph:
        """Return the graph for some shapes.

        Args:
            shapes: shapes of inputs; an open extent gets its least number.
            values: values of inputs that become constants.
            memory_limit: bytes that the model may need; None for no limit.

        Raises:
            ModelError: the model is damaged, or has unsupported parts.
            UnknownValueError: the graph depends on the value of an input that is not given.
            DependencyError: the model has a foreign part whose runtime is not installed.
            MemoryLimitError: the model needs more memory than the limit.
            InputError: ``shapes`` or ``values`` do not fit the inputs.
        """
        ...

    def capability(
        self,
        shapes: Shapes | None = None,
        values: Mapping[str, ArrayLike] | None = None,
        *,
        memory_limit: int | None = None,
    ) -> Capability:
        """Return which nodes are native, and the reasons for the others.

        Args:
            shapes: as for :meth:`graph`.
            values: as for :meth:`graph`.
            memory_limit: bytes that a value may have; None for no limit.

        Raises:
            ModelError: the model is damaged.
            UnknownValueError: the graph depends on the value of an input that is not given.
            MemoryLimitError: a value needs more memory than the limit.
            InputError: ``shapes`` or ``values`` do not fit the inputs.
        """
        ...


class FrontEnd(Protocol):
    """Opens models of one form. Its module imports no large package before a model needs it."""

    @property
    def runtime(self) -> str:
        """The other runtime that :meth:`run` uses."""
        ...

    @property
    def accepts(self) -> str:
        """What it takes, for messages: ``"a graph"``."""
        ...

    def takes(self, source: object) -> bool:
        """Return whether a source is a model of this form, without reading it."""
        ...

    def open(self, source: Any, *, fallback: bool, training: bool = False) -> ModelReader:
        """Open a model.

        Args:
            source: what :meth:`takes` has accepted.
            fallback: whether another runtime may compute nodes that Stridewise has no operator for.
            training: whether graphs of it are to be trained.

        Raises:
            ModelError: the model cannot be read or is damaged.
            UnsupportedError: it has a foreign part, and ``fallback`` is False.
            InputError: models of this form are not read for training.
        """
        ...

    def run(self, source: Any, inputs: Mapping[str, Any], threads: int) -> dict[str, Array]:
        """Return the outputs of a model by name, computed by another runtime alone.

        Args:
            source: what :meth:`takes` has accepted.
            inputs: arrays by name.
            threads: how many threads the runtime may use.

        Raises:
            DependencyError: the runtime is not installed.
            ModelError: it refuses the model.
            ExecutionError: it fails.
        """
        ...


def fixed_shapes(signature: Signature, shapes: Shapes) -> dict[str, tuple[int, ...]]:
    """Return shapes with default extents in place of open ones.

    Args:
        signature: the inputs of the model.
        shapes: shapes of some inputs, as the user gave them.

    Raises:
        InputError: a shape is malformed, or does not fit its input.
    """
    fixed = {name: cast("tuple[int, ...]", s) for name, s in shapes.items() if is_fixed(s)}
    if len(fixed) == len(shapes):
        return fixed
    return signature.narrowed(shapes).default()
