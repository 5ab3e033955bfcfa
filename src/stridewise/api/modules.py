"""Compiled models that are called like the PyTorch modules that they were made of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NoReturn

from numpy.typing import NDArray

from stridewise.errors import InputError
from stridewise.graph import Graph
from stridewise.runtime.execution.model import Model
from stridewise.runtime.execution.streams import Streams

if TYPE_CHECKING:
    from stridewise.frontends.source import CallConvention
    from stridewise.planning import Plan
    from stridewise.profile import Profile

__all__ = ["ModuleModel"]

Array = NDArray[Any]


class ModuleModel(Model):
    """A compiled module: PyTorch tensors in, PyTorch tensors out, in the structure of the module.

    Inputs that are stored like the example inputs are read without a copy; others are copied.
    Results are stored as those of the exported program, and belong to the caller. Inputs that need
    gradients are detached. All other attributes and methods, such as ``memory``, ``trace`` and
    ``report_html``, are those of ``model``.

    Attributes:
        model: the compiled model, which takes and gives arrays.
    """

    def __init__(self, model: Model, calls: CallConvention) -> None:
        """Wrap a model.

        Args:
            model: what runs.
            calls: how it is called.
        """
        self.model, self.source, self._calls = model, model.source, calls
        self._streams = model._streams

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the module.

        Args:
            *args: positional arguments of the module.
            **kwargs: its keyword arguments.

        Raises:
            InputError: an argument does not fit what was exported.
            ExecutionError: a node fails for these values.
        """
        found = self.model(*self._calls.arrays(args, kwargs))
        return self._calls.results(found if isinstance(found, tuple) else (found,))

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Run the module with inputs by name and return the outputs by name, as tensors.

        Raises:
            InputError: a name, a shape or a dtype is wrong, or an input is missing.
        """
        found = self.model.run(self.named(inputs))
        names = enumerate(found.items())
        return {name: self._calls.output(at, array) for at, (name, array) in names}

    def named(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Return tensors by name as the arrays that ``model`` takes.

        Raises:
            InputError: a tensor does not fit what was exported.
        """
        return self._calls.named(inputs)

    def profile(self, inputs: Mapping[str, Any], runs: int = 20) -> Profile:
        """Time every step; see :meth:`CompiledModel.profile`.

        Args:
            inputs: tensors by name.
            runs: how often the model runs.
        """
        return self.model.profile(self.named(inputs), runs)

    @property
    def plan(self) -> Plan:
        """The plan: all decisions and their reasons."""
        return self.model.plan

    @property
    def interface(self) -> Graph:
        """Inputs and outputs of the program, in the order in which PyTorch stores them."""
        return self.model.interface

    @property
    def input_names(self) -> tuple[str, ...]:
        """Names of the arguments that are tensors."""
        return self.model.input_names

    @property
    def output_names(self) -> tuple[str, ...]:
        """Names of the outputs of the program."""
        return self.model.output_names

    def use_streams(self, streams: Streams) -> None:
        """Share streams with other models: together they run at most that many requests."""
        self.model.use_streams(streams)
        super().use_streams(streams)

    def _repr_html_(self) -> str | None:
        return getattr(self.model, "_repr_html_", lambda: None)()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name == "model":  # not there yet, or asked by copies
            raise AttributeError(name)
        return getattr(self.model, name)

    def __repr__(self) -> str:
        return repr(self.model).replace(type(self.model).__name__, type(self).__name__, 1)

    def __reduce__(self) -> NoReturn:
        """Refuse to copy or pickle native programs.

        Raises:
            InputError: always.
        """
        raise InputError.at(
            "compiled module",
            expected="use in the process that compiled it",
            found="a copy or a pickle of it",
            fix="keep the program with torch.export.save, and compile it again",
        )
