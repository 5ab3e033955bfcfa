"""The public function: a float model and samples give a quantized model."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from stridewise.api.models import ModelSource, load, save
from stridewise.errors import FormatError, InputError, ModelError
from stridewise.graph import Graph, Shapes
from stridewise.ops.registry import check_data_format
from stridewise.passes import passes_for, simplify
from stridewise.quantization.budget import contributions, within_budget
from stridewise.quantization.equalize import equalized
from stridewise.quantization.observe import Array, Sample, Simulation, observed, reference
from stridewise.quantization.rebuild import quantized_graph
from stridewise.quantization.report import LayerReport, Quantized
from stridewise.quantization.samples import CalibrationSource, checked_samples
from stridewise.quantization.scheme import Scheme, make_scheme
from stridewise.quantization.selection import PRODUCTS, refusals, select
from stridewise.quantization.settings import Settings
from stridewise.replacing import check_goal, reason
from stridewise.targets.onednn.target import ABILITY
from stridewise.tensor.ranges import Activations, Method
from stridewise.tensor.statistics import Observed

__all__ = ["quantize"]

Progress = Callable[[int, int, str], None]
_KEPT_NBYTES = 256_000_000
"""Bytes of samples that are kept to observe equalized models."""
_MEASURED = 8
"""Samples on which errors are measured."""
_FUSIONS = ("fuse_attention", "fuse_pointwise", "fuse_post_ops", "split_resize")
"""Passes whose results ONNX has no operators for, or that write an operator as several."""
_TURNS = ("part_axes", "sink_transposes")
"""Passes that turn convolutions into the other data format. Models of exporters with channels-last
need them to fold batch norms; where only some convolutions are turned, a graph has two formats."""


def quantize(  # noqa: PLR0913 (one parameter an option)
    model: ModelSource,
    calibration: CalibrationSource,
    output: str | os.PathLike[str] | None = None,
    *,
    shapes: Shapes | None = None,
    method: Method | str = "auto",
    percentile: float = 99.99,
    activations: Activations = "uint8",
    reduce_range: bool = False,
    max_error: float | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
) -> Quantized:
    """Make an int8 model of a float32 model.

    The result has QuantizeLinear and DequantizeLinear around float operators (QDQ), which ONNX
    Runtime and OpenVINO load, too. Weights are int8 with a scale for each channel, biases int32.
    Batch norms are folded first, and saturation replaces ReLU and clips where it does the same.
    Cross-layer equalization and bias correction are used if they lower the error.

    Args:
        model: path of an ONNX file, its bytes, an ``onnx.ModelProto``, or a graph; of float32.
        calibration: samples: mappings from input names to arrays of the shapes and dtypes of the
            model, tuples of arrays, or single arrays; or the path of an ``.npz`` or ``.npy`` file,
            arrays of which have samples along their first axis, or of a folder of such files. An
            iterator is read once.
        output: the ONNX file to write; by default none is written. It cannot be the model's own.
        shapes: shapes of inputs that the model leaves open; the result has these shapes.
        method: how ranges follow from values: ``"minmax"``, ``"percentile"``, ``"mse"`` (least
            squared error), or ``"auto"``, the default: the one with the least error of the outputs.
        percentile: the percentile at which ``"percentile"`` ends a range, on either side; 99.99 by
            default.
        activations: ``"uint8"``, the default, with any zero point, or ``"int8"`` with zero point 0.
        reduce_range: whether weights have 7 bits, for CPUs without VNNI, where sums of pairs of
            products saturate at 16 bits. Default: False.
        max_error: limit on the relative error of the outputs (norm of the difference over norm of
            the float result) on up to 8 samples; layers that would exceed it stay in
            float32. No limit by default.
        threads: as for :func:`stridewise.compile`.
        progress: called as ``progress(done, total, what)``.

    Returns:
        The graph, its error, and a report on each layer; ``str()`` gives a table.

    Raises:
        InputError: there are no samples, a sample does not fit or is not finite, an option does not
            fit, or the file cannot be written.
        ModelError: the model is damaged, has no layer to quantize, or has states.
        UnsupportedError: an operator is not supported.

    >>> import numpy as np
    >>> import stridewise as sw
    >>> b = sw.GraphBuilder("small")
    >>> w = b.constant(np.eye(4, dtype=np.float32))
    >>> graph = b.build([b.op("matmul", [b.input("x", (1, 4)), w], output="y")])
    >>> found = sw.quantize(graph, [np.linspace(-1, 1, 4, dtype=np.float32).reshape(1, 4)])
    >>> found.error < 1e-2, [row.name for row in found.rows]
    (True, ['matmul'])
    """
    settings = Settings(
        method=method,
        percentile=percentile,
        activations=activations,
        reduce_range=reduce_range,
        max_error=max_error,
        threads=threads,
    )
    if output is not None:
        _check_output(model, Path(output))
    graph = _float_graph(load(model, shapes, fallback=False))
    samples = _Samples(checked_samples(calibration, graph))
    work = _Work(graph, settings, samples, progress or (lambda _done, _total, _what: None))
    found = work.quantized()
    if output is not None:
        save(found.graph, output)
    return found


def _check_output(model: ModelSource, output: Path) -> None:
    """Check the output before the work begins."""
    try:
        check_goal(output)
    except (OSError, ValueError) as error:
        where, expected = f"output {str(output)!r}", "a file that can be written"
        raise InputError.at(where, expected=expected, found=reason(error)) from error
    is_path = isinstance(model, str | os.PathLike)
    if is_path and output.exists() and Path(model).exists() and output.samefile(model):
        raise InputError.at(
            "output", expected="another file than the model", found=repr(str(output))
        )


def _float_graph(graph: Graph) -> Graph:
    """Return the graph after the passes that fold; operators are those of ONNX.

    Raises:
        ModelError: runs change values of the graph, or another runtime computes a part.
    """
    if graph.states or graph.updates or graph.tail is not None:
        found = "states or updates" if graph.tail is None else "a part for another runtime"
        where = f"graph {graph.name!r}"
        raise ModelError.at(where, expected="a graph of operators alone", found=found)
    passes = [item for item in passes_for(ABILITY) if item.name not in _FUSIONS]
    found = simplify(graph, passes).graph
    try:
        check_data_format(found)
    except FormatError:
        found = simplify(graph, [item for item in passes if item.name not in _TURNS]).graph
    return found


@dataclass(slots=True)
class _Samples:
    """Samples that are read once; the first ones are kept."""

    source: Iterator[Sample]
    kept: list[Sample] = field(default_factory=list[Sample])
    count: int = 0

    def __iter__(self) -> Iterator[Sample]:
        nbytes = 0
        for sample in self.source:
            nbytes += sum(array.nbytes for array in sample.values())
            if not self.kept or nbytes <= _KEPT_NBYTES:
                self.kept.append(sample)
            self.count += 1
            yield sample


@dataclass(frozen=True, slots=True)
class _Trial:
    """One way to quantize, and its error with nothing left in float."""

    scheme: Scheme
    simulation: Simulation
    error: float
    method: Method
    is_equalized: bool
    is_corrected: bool


class _Work:
    """The stages of one quantization."""

    def __init__(
        self, graph: Graph, settings: Settings, samples: _Samples, progress: Progress
    ) -> None:
        self.graph, self.settings, self.samples, self.progress = graph, settings, samples, progress
        self.refused = refusals(graph)
        products = [node.name for node in graph.nodes if node.op in PRODUCTS]
        if not set(products) - set(self.refused):
            reasons = "; ".join(f"{name}: {why}" for name, why in self.refused.items())
            found = reasons or "none"
            where = f"graph {graph.name!r}"
            expected = "a convolution or matrix product of float32 with constant weights"
            raise ModelError.at(where, expected=expected, found=found)

    def quantized(self) -> Quantized:
        """Return the result of all stages."""
        seen = self._observed(self.graph, self.samples)
        measured = self.samples.kept[:_MEASURED]
        right = reference(self.graph, measured, self.settings.threads)
        best = self._best(seen, measured, right)
        total, done = len(best.scheme.layers), 0

        def advance() -> None:
            nonlocal done
            done += 1
            self.progress(done, total, "layers")

        errors = contributions(best.simulation, best.scheme, advance)
        left: tuple[str, ...] = ()
        limit, error = self.settings.max_error, best.error
        if limit is not None and error > limit:
            left = within_budget(best.simulation, best.scheme.graph, errors, limit)
            error = best.simulation.error(select(best.scheme.graph, left))
        return Quantized(
            quantized_graph(best.scheme, left),
            error,
            best.method,
            best.is_equalized,
            best.is_corrected,
            self.samples.count,
            tuple(self._rows(best.scheme, errors, left)),
        )

    def _observed(self, graph: Graph, samples: Iterable[Sample]) -> dict[str, Observed]:
        def counted() -> Iterator[Sample]:
            for number, sample in enumerate(samples):
                self.progress(number, 0, "samples")
                yield sample

        seen = observed(graph, counted(), self.settings.threads)
        for name, item in seen.items():
            if not item.histogram.is_finite:
                where = f"graph {graph.name!r}, tensor {name!r}"
                expected = "finite numbers for all samples"
                raise InputError.at(where, expected=expected, found="NaN or infinity")
        return seen

    def _best(
        self,
        seen: dict[str, Observed],
        measured: Sequence[Sample],
        right: Sequence[Sequence[Array]],
    ) -> _Trial:
        """Return the best trial: of the methods, then without correction, then equalized."""

        def trial(
            graph: Graph, known: dict[str, Observed], method: Method, correct: bool
        ) -> _Trial:
            scheme = make_scheme(graph, known, method, self.settings, correct=correct)
            simulation = Simulation(scheme, measured, right, self.settings.threads)
            error = simulation.error(select(graph, ()))
            return _Trial(scheme, simulation, error, method, graph is not self.graph, correct)

        def better(first: _Trial, second: _Trial) -> _Trial:
            return second if second.error < first.error else first

        methods = self.settings.methods
        best = trial(self.graph, seen, methods[0], True)
        for method in methods[1:]:
            best = better(best, trial(self.graph, seen, method, True))
        best = better(best, trial(self.graph, seen, best.method, False))
        equal = equalized(self.graph, seen)
        if equal is not None:
            known = self._observed(equal, self.samples.kept)
            best = better(best, trial(equal, known, best.method, best.is_corrected))
        return best

    def _rows(
        self, scheme: Scheme, errors: dict[str, float], left: Sequence[str]
    ) -> Iterator[LayerReport]:
        for node in scheme.graph.nodes:
            if node.op not in PRODUCTS:
                continue
            if node.name in self.refused:
                reason = self.refused[node.name]
                yield LayerReport(node.name, node.op, 0.0, 0.0, 0.0, reason)
                continue
            found, error = scheme.tensors[node.inputs[0]], errors[node.name]
            limit = self.settings.max_error
            reason = f"the error would exceed {limit:g}" if node.name in left else ""
            yield LayerReport(node.name, node.op, found.low, found.high, error, reason)
