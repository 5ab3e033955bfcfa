"""Running the float model for its intermediate tensors, and simulated models for their errors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stridewise.api.compiling import compile as compiled
from stridewise.errors import InputError
from stridewise.graph import Graph
from stridewise.quantization.rebuild import gate_of_layer, gate_of_tensor, simulated_graph
from stridewise.quantization.scheme import Scheme
from stridewise.quantization.selection import PRODUCTS, Selection, select
from stridewise.runtime.tuning.offers import channels_read
from stridewise.runtime.verification.closeness import relative_error
from stridewise.tensor.statistics import Channels, Observed

__all__ = ["Array", "Sample", "Simulation", "observed", "outputs_error", "reference"]

Array = NDArray[Any]
Sample = Mapping[str, Array]


def observed(graph: Graph, samples: Iterable[Sample], threads: int | None) -> dict[str, Observed]:
    """Run a float model and return what there is to know of the tensors to quantize.

    The tensors are outputs of the model that is compiled for this, so that none of them is fused
    away. Memory is that of one run.

    Args:
        graph: without post-ops.
        samples: inputs by name.
        threads: as for :func:`stridewise.compile`.
    """
    names = select(graph, ()).tensors
    found = {name: Observed() for name in names}
    for node in graph.nodes:
        if node.op in PRODUCTS and node.inputs[0] in found:
            name, axis = channels_read(graph, node)
            found[name].channels[axis] = Channels()
    inner = tuple(name for name in names if name not in graph.inputs)
    everything = tuple(dict.fromkeys((*graph.outputs, *inner)))
    model = compiled(
        replace(graph, outputs=everything), tune="model", accuracy="exact", threads=threads
    )
    for sample in samples:
        values = {**model.run(sample), **sample}
        for name, item in found.items():
            item.add(values[name])
    return found


def reference(graph: Graph, samples: Sequence[Sample], threads: int | None) -> list[list[Array]]:
    """Return the float outputs of a graph for each sample.

    Raises:
        InputError: an output is not finite, so that no error can be stated.
    """
    model = compiled(graph, tune="model", accuracy="exact", threads=threads)
    results: list[list[Array]] = []
    for number, sample in enumerate(samples):
        found = model.run(sample)
        results.append([found[name] for name in graph.outputs])
        for name, array in found.items():
            if array.dtype.kind == "f" and not np.isfinite(array).all():
                where = f"calibration, sample {number}, output {name!r}"
                raise InputError.at(where, expected="finite numbers", found="NaN or infinity")
    return results


class Simulation:
    """A compiled model that computes any part of a quantization in float."""

    def __init__(
        self,
        scheme: Scheme,
        samples: Sequence[Sample],
        outputs: Sequence[Sequence[Array]],
        threads: int | None,
    ) -> None:
        """Compile the simulated graph.

        Args:
            scheme: what is stored as what.
            samples: inputs by name.
            outputs: the float outputs for each sample; see :func:`reference`.
            threads: as for :func:`stridewise.compile`.
        """
        graph = simulated_graph(scheme)
        self._model = compiled(graph, tune="model", accuracy="exact", threads=threads)
        self._outputs, self._samples, self._names = outputs, samples, graph.outputs
        self._gates = [name for name in graph.inputs if name not in scheme.graph.inputs]

    def error(self, chosen: Selection, samples: int | None = None) -> float:
        """Return the relative error of a selection; see :func:`outputs_error`."""
        layers, tensors = map(gate_of_layer, chosen.layers), map(gate_of_tensor, chosen.tensors)
        is_open = {*layers, *tensors}
        gates = {name: np.full(1, name in is_open, np.float32) for name in self._gates}
        found = [self._model.run({**sample, **gates}) for sample in self._samples[:samples]]
        results = [[one[name] for name in self._names] for one in found]
        return outputs_error(results, self._outputs[:samples])


def outputs_error(found: Sequence[Sequence[Array]], right: Sequence[Sequence[Array]]) -> float:
    """Return the norm of the errors of all samples over the norm of the right results.

    With several outputs, it is that of the output with the greatest error.
    """
    worst = 0.0
    for place in range(len(right[0])):
        if right[0][place].dtype.kind != "f":
            continue
        ours, theirs = (
            np.concatenate([one[place].reshape(-1) for one in arrays]) for arrays in (found, right)
        )
        worst = max(worst, relative_error(ours, theirs))
    return worst
