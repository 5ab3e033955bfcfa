"""Parameters and states of a compiled model, as arrays by name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from numpy.typing import NDArray

from stridewise.errors import InputError
from stridewise.graph import Constant, Value
from stridewise.runtime.binding.program import NativeProgram
from stridewise.runtime.execution.inputs import as_array

__all__ = ["MutableValues"]

Array = NDArray[Any]


class MutableValues(Mapping[str, Array]):
    """Arrays of a model that may change: ``model.parameters`` or ``model.states``.

    Reading gives a copy in the user's order of axes. An assignment copies the array into the memory
    of the model, in every form that kernels read it in. Both wait for a run that is under way.

    >>> import numpy as np
    >>> import stridewise as sw
    >>> b = sw.GraphBuilder("scaled")
    >>> w = b.parameter(np.full((1, 2), 2, np.float32), "w")
    >>> graph = b.build([b.mul(b.input("x", (1, 2)), w)])
    >>> model = sw.compile(graph, tune="model", keep_parameters=True)
    >>> model.parameters["w"] = np.float32([[3, 5]])
    >>> model(np.float32([[1, 1]]))
    array([[3., 5.]], dtype=float32)
    """

    def __init__(
        self, kind: str, values: Mapping[str, Value], initial: Mapping[str, Constant],
        native: NativeProgram,
    ) -> None:  # fmt: skip
        """Show values of a program.

        Args:
            kind: what messages call one of them.
            values: their types, by name.
            initial: what they are before the first run.
            native: has them.
        """
        self._kind, self._initial, self._native = kind, initial, native
        self._values = {name: values[name] for name in initial}

    def __getitem__(self, name: str) -> Array:
        """Return a copy of one of them, as it is now.

        Raises:
            KeyError: the model has none of that name.
        """
        if name not in self._values:
            raise KeyError(name)
        return self._native.read(name)

    def __setitem__(self, name: str, array: Any) -> None:
        """Replace one of them; runs that begin afterwards see the new value.

        Args:
            name: which one.
            array: of its shape and dtype; NumPy, or anything that offers DLPack. It is copied.

        Raises:
            InputError: the model has none of that name, or shape or dtype are others.
        """
        if name not in self._values:
            expected = ", ".join(self._values) or "none, as the model was compiled without"
            where = f"{self._kind}s of the model"
            raise InputError.at(where, expected=expected, found=repr(name))
        found = as_array(self._values[name], array)
        self._native.write({name: Constant(found.copy())})

    def reset(self) -> None:
        """Give all of them the values that the graph has."""
        self._native.write(self._initial)

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)
