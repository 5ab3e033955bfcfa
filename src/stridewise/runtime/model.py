"""What every compiled model can do, whatever executes it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from stridewise.planner.plan import Plan

if TYPE_CHECKING:
    from stridewise.runtime.executor import Profile

__all__ = ["Model"]

Array = NDArray[Any]


class Model(ABC):
    """A model that was planned and can be called.

    ``CompiledModel`` runs kernels of a library; ``SimulatedModel`` executes plans of targets that
    are not there.
    """

    @property
    @abstractmethod
    def plan(self) -> Plan:
        """What was decided, and why."""

    @property
    def input_names(self) -> tuple[str, ...]:
        """Names of the inputs in the order of a call."""
        return self.plan.graph.arguments

    @property
    def output_names(self) -> tuple[str, ...]:
        """Names of the outputs in the order of the results."""
        return self.plan.graph.results

    def __repr__(self) -> str:
        values = self.plan.graph.values
        inputs, outputs = (
            ", ".join(f"{name}: {values[name].type}" if name in values else name for name in names)
            for names in (self.input_names, self.output_names)
        )
        return f"{type(self).__name__}({self.plan.graph.name!r}, {inputs} -> {outputs})"

    @abstractmethod
    def __call__(self, *inputs: Any) -> Array | tuple[Array, ...]:
        """Run the model with inputs in order; return one array, or a tuple in order."""

    @abstractmethod
    def run(self, inputs: Mapping[str, Any]) -> dict[str, Array]:
        """Run the model with inputs by name and return the outputs by name."""

    @abstractmethod
    def profile(self, inputs: Mapping[str, Any], runs: int = 20) -> Profile:
        """Time every step, and set the times beside the predicted ones.

        Raises:
            InputError: an input or the number of runs is wrong, or nothing here has a speed.
        """
