"""The interface of all compiled models, independent of what executes them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, Self, cast, overload

from numpy.typing import NDArray

from stridewise.classes import dataclass
from stridewise.errors import InputError
from stridewise.graph import Graph
from stridewise.runtime.execution.streams import Streams

if TYPE_CHECKING:
    from stridewise.planning import Plan
    from stridewise.profile import Profile

__all__ = ["Model", "Source"]

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Source:
    """Where a compiled model comes from, and how its file was read.

    Attributes:
        from_disk: whether an earlier process compiled it.
        path: its file; None for a model that was in memory.
        values: values of inputs that became constants.
        fallback: whether ONNX Runtime may compute what Stridewise has no operator for.
        memory_limit: bytes that the model may need; None for the default.
        compiled_at: time before the file was read, in seconds since the epoch.
    """

    from_disk: bool = False
    path: Path | None = None
    values: Mapping[str, Any] = field(default_factory=dict[str, Any])
    fallback: bool = True
    memory_limit: int | None = None
    compiled_at: float = 0.0


class Model(ABC):
    """A model that was planned and can be called.

    ``CompiledModel`` runs kernels of a library; ``SimulatedModel`` simulates plans for targets
    whose kernels do not run on this machine.

    All of them take requests from any number of threads. Compiled ones run as many at once as they
    have streams. What is submitted runs in threads of the model; they end when it is closed, at the
    end of a ``with`` block, or when the model is dropped and its requests are done.
    """

    _streams: Streams
    source = Source()
    """Where the model comes from."""

    @property
    @abstractmethod
    def plan(self) -> Plan:
        """The plan: all decisions and their reasons."""

    @property
    def interface(self) -> Graph:
        """Inputs and outputs as the caller sees them, with their types."""
        return self.plan.graph

    @property
    def input_names(self) -> tuple[str, ...]:
        """Names of the inputs in the order of a call."""
        return self.interface.arguments

    @property
    def output_names(self) -> tuple[str, ...]:
        """Names of the outputs in the order of the results."""
        return self.interface.results

    @property
    def streams(self) -> int:
        """Number of requests that run at once; others wait for their turn."""
        return self._streams.count

    def use_streams(self, streams: Streams) -> None:
        """Share streams with other models: together they run at most that many requests."""
        self._streams = streams

    @overload
    def submit(self, inputs: Mapping[str, Any]) -> Future[dict[str, Array]]: ...

    @overload
    def submit(self, inputs: Any) -> Future[Any]: ...

    def submit(self, inputs: Any) -> Future[Any]:
        """Run the model in a thread of its own, and return at once.

        Any number of requests may wait; :meth:`map` takes only as many as are wanted. In coroutines
        use ``await asyncio.wrap_future(model.submit(x))``.

        Args:
            inputs: the one input, a tuple of all in order, or a mapping with all by name. Arrays
                are read when the request runs and must not change before it is done.

        Returns:
            What will have the outputs: as a call of the model returns them, or by name where the
            inputs are. Errors of the run are raised by its ``result()``.

        Raises:
            ExecutionError: the model is closed, or the interpreter is ending.
        """
        return self._streams.submit(lambda: self._answer(inputs))

    @overload
    def map(
        self, requests: Iterable[Mapping[str, Any]], *, ahead: int | None = None
    ) -> Iterator[dict[str, Array]]: ...

    @overload
    def map(self, requests: Iterable[Any], *, ahead: int | None = None) -> Iterator[Any]: ...

    def map(self, requests: Iterable[Any], *, ahead: int | None = None) -> Iterator[Any]:
        """Run the model for many inputs, several at once, and yield the outputs in their order.

        Requests are taken from the iterable as outputs are taken from the result, so that both may
        be without end. If one fails, its error is raised in its place and the rest is given up, as
        it is when the iterator is closed or interrupted.

        Args:
            requests: what :meth:`submit` takes, one after the other.
            ahead: how many requests may have been taken whose outputs have not; by default twice
                the number of streams.

        Raises:
            InputError: ``ahead`` is below 1.
            ExecutionError: the model is closed.
        """
        return self._streams.map(self._answer, requests, ahead)

    def close(self, *, cancel: bool = False) -> None:
        """End the threads of the model, once what was submitted is done.

        Nothing can be submitted then; the model itself can still be called.

        Args:
            cancel: give up the requests that do not run yet.
        """
        self._streams.close(cancel=cancel)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.close(cancel=kind is not None)

    def _answer(self, inputs: Any) -> Any:
        if isinstance(inputs, Mapping):
            return self.run(cast("Mapping[str, Any]", inputs))
        return self(*cast("tuple[Any, ...]", inputs)) if isinstance(inputs, tuple) else self(inputs)

    def __repr__(self) -> str:
        graph = self.interface
        values = graph.values
        inputs, outputs = (
            ", ".join(f"{name}: {values[name].type}" if name in values else name for name in names)
            for names in (self.input_names, self.output_names)
        )
        return f"{type(self).__name__}({graph.name!r}, {inputs} -> {outputs})"

    def __reduce__(self) -> NoReturn:
        """Refuse to copy or pickle native programs, memory and threads.

        Raises:
            InputError: always.
        """
        raise InputError.at(
            type(self).__name__,
            expected="use in the process that compiled it",
            found="a copy or a pickle of it",
            fix="share it among threads, and compile its model again in other processes; "
            "a plan can be pickled, and given to compile as plan=",
        )

    @abstractmethod
    def __call__(self, *inputs: Any) -> Array | tuple[Array, ...]:
        """Run the model with inputs in order; return one array, or a tuple in order."""

    @abstractmethod
    def run(self, inputs: Mapping[str, Any]) -> dict[str, Array]:
        """Run the model with inputs by name and return the outputs by name."""

    @abstractmethod
    def profile(self, inputs: Mapping[str, Any], runs: int = 20) -> Profile:
        """Time every step and compare with predicted times.

        Raises:
            InputError: an input or the number of runs is wrong, or nothing here has a speed.
        """
