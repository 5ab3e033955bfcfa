"""The tail of a graph: a foreign part that runs after the program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from stridewise.errors import InputError, PlanError
from stridewise.ops.geometry import user_format

if TYPE_CHECKING:
    from stridewise.graph import Graph, Tail
    from stridewise.planning import Plan

__all__ = ["TailRun"]


class TailRun:
    """The tail of a graph, ready to run."""

    def __init__(self, graph: Graph, tail: Tail, threads: int) -> None:
        """Prepare the foreign part.

        Args:
            graph: the graph that the tail belongs to.
            tail: its tail.
            threads: how many threads the other runtime may use.

        Raises:
            DependencyError: the other runtime is not installed.
            ModelError: it refuses the tail.
        """
        self._tail = tail
        self._graph = graph.name
        self._tensors = frozenset(graph.inputs)
        where = f"model {graph.name!r}, the nodes after the program"
        self._function = None if tail.part is None else tail.part.prepare(threads, where)

    @classmethod
    def of(cls, plan: Plan) -> TailRun | None:
        """Return the tail of a plan's graph, None if it has none.

        Raises:
            DependencyError: the other runtime is not installed.
            ModelError: it refuses the tail.
            PlanError: the plan stores a tensor that the tail reads in another format than the
                user's.
        """
        tail = plan.graph.tail
        if tail is None:
            return None
        for name in tail.inputs:
            formats = plan.input_formats if name in plan.input_formats else plan.output_formats
            value = plan.graph.values.get(name)
            if value is not None and name in formats and formats[name] != user_format(value):
                raise PlanError.at(
                    f"value {name!r}",
                    expected=f"format {user_format(value)}, in which the tail reads it",
                    found=str(formats[name]),
                    fix="leave it out of input_formats and output_formats",
                )
        return cls(plan.graph, tail, plan.machine.threads)

    def tensors(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the inputs of the program among those of a call.

        Raises:
            InputError: an input is missing, or a name is not one of the model's inputs.
        """
        if set(given) != set(self._tail.arguments):
            expected = f"inputs {', '.join(self._tail.arguments)}"
            raise self._wrong(expected, ", ".join(given) or "none")
        return {name: item for name, item in given.items() if name in self._tensors}

    def named(self, given: Sequence[Any]) -> dict[str, Any]:
        """Return the inputs of a call by name.

        Raises:
            InputError: their number is wrong.
        """
        names = self._tail.arguments
        if len(given) != len(names):
            expected = f"{len(names)} inputs ({', '.join(names)})"
            raise self._wrong(expected, str(len(given)))
        return dict(zip(names, given, strict=True))

    def results(self, given: Mapping[str, Any], computed: Mapping[str, Any]) -> dict[str, Any]:
        """Return the outputs of a call by name, in order.

        Args:
            given: inputs of the call.
            computed: outputs of the program.

        Raises:
            ExecutionError: the other runtime fails.
        """
        known = {**given, **computed}
        if self._function is not None:
            found = self._function([_readable(known[name]) for name in self._tail.inputs])
            known |= dict(zip(self._tail.outputs, found, strict=True))
        return {name: known[name] for name in self._tail.results}

    def _wrong(self, expected: str, found: str) -> InputError:
        return InputError.at(f"model {self._graph!r}", expected=expected, found=found)


def _readable(item: Any) -> Any:
    """Return an input of a call with tensors of other libraries as NumPy arrays."""
    if isinstance(item, np.ndarray) or not hasattr(item, "__dlpack__"):
        return cast("Any", item)
    return np.from_dlpack(item)
