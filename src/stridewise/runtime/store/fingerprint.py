"""Outputs of a compiled model for seeded inputs, in few numbers, to compare two processes by."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stridewise.classes import dataclass
from stridewise.graph import Value
from stridewise.ops.geometry import storage_shape
from stridewise.runtime.execution.executor import CompiledModel
from stridewise.runtime.execution.inputs import made_up

__all__ = ["Fingerprint", "OutputSums", "differing", "fingerprint"]

_CHUNKS = 1024
"""Most chunks that an output is summed up in: few enough to store, many enough to show one wrong
element among them."""
_TOLERANCE = 1e-6
"""Largest difference of two means of a chunk, relative to the mean magnitude of the output. The
same program with the same kernels gives the same bits, so this is far above what may happen."""


@dataclass(frozen=True, slots=True)
class OutputSums:
    """One output, summed up in chunks of consecutive elements.

    Attributes:
        name: the output.
        magnitude: mean of the absolute values of all finite elements.
        means: mean of the finite elements of each chunk.
        odd: elements of each chunk that are not finite: NaN, and the infinities.
    """

    name: str
    magnitude: float
    means: tuple[float, ...]
    odd: tuple[int, ...]

    @classmethod
    def of(cls, name: str, array: NDArray[Any]) -> OutputSums:
        """Return the sums of an array of any dtype and shape."""
        flat = array.reshape(-1).astype(np.float64)
        finite = np.isfinite(flat)
        flat = np.where(finite, flat, 0.0)
        begins = np.linspace(0, flat.size, min(_CHUNKS, flat.size), endpoint=False).astype(np.intp)
        if not flat.size:
            return cls(name, 0.0, (), ())
        sizes = np.diff([*begins, flat.size])
        means = np.add.reduceat(flat, begins) / sizes
        odd = np.add.reduceat(~finite, begins, dtype=np.int64)
        return cls(name, float(np.abs(flat).mean()), tuple(means.tolist()), tuple(odd.tolist()))

    def difference(self, other: OutputSums) -> float:
        """Return the largest difference of two means relative to the magnitude of this output.

        It is infinite where shapes differ, or elements that are not finite lie elsewhere.
        """
        if len(self.means) != len(other.means) or self.odd != other.odd:
            return float("inf")
        gaps = np.abs(np.subtract(self.means, other.means))
        largest = float(gaps.max(initial=0.0))
        return largest / self.magnitude if self.magnitude else float("inf") if largest else 0.0


Fingerprint = tuple[OutputSums, ...]
"""Sums of each output of a model."""


def fingerprint(model: CompiledModel) -> Fingerprint:
    """Run a model once with seeded inputs and return the sums of its outputs.

    Raises:
        ExecutionError: the run fails.
    """
    signature, rng = model.call_signature, np.random.default_rng(0)
    values: Sequence[Value] = [signature.graph.values[name] for name in signature.graph.inputs]
    inputs = [
        made_up(value, storage_shape(value, signature.input_formats[value.name]), rng)
        for value in values
    ]
    outputs = model.run_program(inputs)
    return tuple(map(OutputSums.of, signature.graph.outputs, outputs))


def differing(stored: Fingerprint, found: Fingerprint) -> str:
    """Return which output differs and by how much; "" where none does."""
    for before, now in zip(stored, found, strict=True):
        difference = before.difference(now)
        if not difference <= _TOLERANCE:
            return f"output {before.name!r} differs by {difference:.1e} of its mean magnitude"
    return ""
