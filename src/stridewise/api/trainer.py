"""Training of graphs: forward, loss, backward and update as one compiled program."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from threading import RLock
from types import MappingProxyType
from typing import Any, NoReturn, Unpack, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stridewise.api.checkpoints import read_checkpoint, write_checkpoint
from stridewise.api.compiling import compile  # noqa: A004
from stridewise.api.training_inputs import (
    as_array,
    check_finite,
    check_options,
    pairs,
    step_arrays,
)
from stridewise.errors import InputError, ModelError
from stridewise.graph import Graph
from stridewise.ops.dropout import counter
from stridewise.options import GraphCompileOptions, checked
from stridewise.profile import Profile
from stridewise.runtime.execution.executor import CompiledModel
from stridewise.training import (
    Loss,
    Optimizer,
    evaluation_graph,
    loss_of,
    step_graph,
    trainable,
)

__all__ = ["Trainer"]

Array = NDArray[Any]
Inputs = ArrayLike | Mapping[str, ArrayLike]

_STEP = "optimizer.step"
"""The name of the number of steps in what a checkpoint holds."""


class Trainer:
    """Trains the parameters of a graph.

    Forward, loss, backward and update are one graph, which is planned and compiled as a whole.
    Parameters and what an optimizer keeps about them stay in the memory of the compiled model.

    A graph of :class:`~stridewise.GraphBuilder` with ``training=True`` has parameters, and batch
    norms with the statistics of the batch. In a graph without parameters, such as a loaded model,
    the weights of layers are trained; its batch norms are a scale and a shift, which are trained,
    too.

    Threads may share a trainer: steps run one after the other, and no method sees the state of a
    partial step.

    Attributes:
        model: the compiled step; its program and plan can be printed.
        parameters: names of what is trained.
        steps: number of steps done.
        losses: the loss of each step since the trainer was made, as it was before the update.

    >>> import numpy as np
    >>> import stridewise as sw
    >>> b = sw.GraphBuilder("line", training=True)
    >>> graph = b.build([b.dense(b.input("x", (4, 2)), 3)])
    >>> trainer = sw.Trainer(graph, optimizer=sw.SGD(lr=0.5), tune="model")
    >>> x, labels = np.eye(4, 2, dtype=np.float32), np.array([0, 1, 2, 2])
    >>> first = trainer.step(x, labels)
    >>> trainer.step(x, labels) < first
    True
    """

    def __init__(
        self,
        graph: Graph,
        *,
        optimizer: Optimizer,
        loss: str | Loss = "softmax_cross_entropy",
        train: Sequence[str] | None = None,
        clip_norm: float | None = None,
        accumulate: int = 1,
        seed: int = 0,
        **options: Unpack[GraphCompileOptions],
    ) -> None:
        """Compile the training step of a graph.

        Args:
            graph: from inputs to one output, the prediction, for the batch of one run. It is not
                simplified.
            optimizer: :class:`~stridewise.SGD` or :class:`~stridewise.AdamW`.
            loss: ``"softmax_cross_entropy"``, ``"mean_squared_error"``, or a function that adds
                one to a graph, see :data:`~stridewise.training.losses.Loss`.
            train: names of the parameters to train; all of them by default. The others stay as
                they are. For a graph without parameters, names of float32 constants; by default the
                weights of its layers.
            clip_norm: the largest Euclidean norm of all gradients together; no limit by default.
            accumulate: number of runs whose gradients make one step. A step then takes so many
                times the graph's batch.
            seed: of dropout, from 0 to 2**48 - 1. A step's masks depend on the seed and on the
                number of the step alone, whatever the threads, formats and checkpoints.
            **options: of :func:`stridewise.compile`. Without ``keep_originals`` the trainer keeps
                no initial values of what it trains, so that ``model.parameters.reset()`` fails.

        Raises:
            GraphError: the graph has several outputs, no parameters, parameters of another type
                than float32, or an operator without a gradient rule.
            InputError: an argument does not fit.
            StridewiseError: as for :func:`stridewise.compile`.
        """
        checked("Trainer", options, GraphCompileOptions)
        streams = options.get("streams", 1)
        check_options(graph, optimizer, loss, train, clip_norm, accumulate, seed, streams)
        self._graph = _with_own_values(trainable(graph, train or ()))
        names = self._graph.parameters if train is None else dict.fromkeys(train)
        self.parameters = tuple(name for name in names if name not in self._graph.updates)
        self._optimizer, self._accumulate, self._seed = optimizer, accumulate, seed
        self._step = step_graph(
            self._graph,
            self.parameters,
            loss_of(loss),
            optimizer,
            clip_norm=clip_norm,
            accumulate=accumulate,
        )
        self._loss = loss if isinstance(loss, str) else ""
        self._statistics = [name for name in self._graph.states if name in self._graph.updates]
        self.model: CompiledModel = compile(self._step.graph, **options)
        if not options.get("keep_originals", False):
            self._drop_initial()
        self.steps = 0
        self.losses: list[float] = []
        self._lock = RLock()  # schedules may read the trainer

    def _drop_initial(self) -> None:
        """Drop the initial values of what steps change, which the model has in its memory."""
        changing = (*self.parameters, *self._statistics)
        known = {**self._graph.parameters, **self._graph.states}
        for item in (*map(known.__getitem__, changing), *self.model.plan.graph.states.values()):
            item.drop()

    @property
    def nbytes(self) -> int:
        """Bytes of memory that steps use: the arena, packed constants, parameters and states.

        The arena holds activations and gradients. Arrays of the caller and the initial values in
        the graph are not counted.
        """
        return self.model.memory.used

    def __reduce__(self) -> NoReturn:
        """Refuse to copy or pickle a native program and its memory.

        Raises:
            InputError: always.
        """
        raise InputError.at(
            "trainer",
            expected="use in the process that made it",
            found="a copy or a pickle of it",
            fix="make another one of the same graph, and give it state_dict() or a checkpoint",
        )

    # --- steps ------------------------------------------------------------------------------------

    def step(self, x: Inputs, labels: ArrayLike) -> float:
        """Do one step, and return the loss of the parameters before it.

        Args:
            x: the input, float32 with a batch of ``accumulate`` times the graph's; for a graph of
                several inputs, arrays by name.
            labels: the target of the prediction. For ``"softmax_cross_entropy"``: classes, integers
                of the prediction's shape [N, K, ...] without its second axis, or probabilities of
                classes, float32 of the prediction's shape. For other losses: float32 of the
                prediction's shape.

        Raises:
            InputError: an array does not fit, or is not finite.
            ExecutionError: the loss, or a running statistic, is not finite any more. The step is
                done by then.
        """
        with self._lock:
            parts = (self.model.run(feeds) for feeds in self._feeds(x, labels))
            loss = float(
                np.mean([np.asarray(value).item() for part in parts for value in part.values()])
            )
            self.steps += 1
            self.losses.append(loss)
            statistics = {name: self.model.states[name] for name in self._statistics}
            check_finite(f"step {self.steps}", {"loss": np.array(loss), **statistics})
            return loss

    def fit(
        self,
        batches: Iterable[tuple[Inputs, ArrayLike]],
        *,
        progress: Callable[[int, float], object] | None = None,
    ) -> list[float]:
        """Do a step for each batch, and return the losses.

        Args:
            batches: inputs and labels as for :meth:`step`.
            progress: called after each step with the number of steps done and the loss.

        Raises:
            InputError: an array does not fit.
            ExecutionError: as for :meth:`step`.
        """
        losses: list[float] = []
        for x, labels in pairs(batches):
            losses.append(self.step(x, labels))
            if progress is not None:
                progress(self.steps, losses[-1])
        return losses

    def profile(self, x: Inputs, labels: ArrayLike, runs: int = 5) -> Profile:
        """Time every kernel of a step; parameters and states are then as they were.

        With ``accumulate``, the times are of the first run of a step.

        Args:
            x: the input, as for :meth:`step`.
            labels: what the prediction should be, as for :meth:`step`.
            runs: number of runs that the times are medians of.

        Raises:
            InputError: an array does not fit, or ``runs`` is below 1.
            ExecutionError: as for :meth:`step`.
        """
        with self._lock:
            kept = self.state_dict()
            try:
                return self.model.profile(next(self._feeds(x, labels)), runs)
            finally:
                self.load_state_dict(kept)

    def _feeds(self, x: Inputs, labels: ArrayLike) -> Iterator[dict[str, Array]]:
        """Yield the inputs of each run of a step."""
        step = self._step
        arrays = step_arrays(
            step.graph, self._graph.inputs, x, step.target, labels, self._accumulate,
            kind=self._loss,
        )  # fmt: skip
        numbers = self._optimizer.scalars(self.steps)
        scalars = {step.scalars[key]: _row(number) for key, number in numbers.items()}
        for part in range(self._accumulate):
            feeds = {name: self._part(array, part) for name, array in arrays.items()}
            if step.first:
                feeds[step.first] = _row(part == 0)
                feeds[step.last] = _row(part == self._accumulate - 1)
            if step.draws:
                feeds[step.draws] = counter(self.steps * self._accumulate + part, self._seed)
            yield {**feeds, **scalars}

    def _part(self, array: Array, part: int) -> Array:
        rows = len(array) // self._accumulate
        return array[part * rows : (part + 1) * rows]

    def to_html(self) -> str:
        """Return a page about the step: its plan, phases, memory against time, and the losses."""
        from stridewise.report import to_html  # noqa: PLC0415 (jinja2 takes time to load)

        model = self.model
        return to_html(model.plan, model.program, memory=model.memory, losses=self.losses)

    # --- what was learned -------------------------------------------------------------------------

    def graph(self) -> Graph:
        """Return the graph for inference with its parameters as they are now.

        Batch norms of the batch's statistics become a scale and a shift by the running ones. The
        graph can be compiled, and saved with :func:`stridewise.save`.

        Raises:
            ExecutionError: a parameter or a state is not finite.
        """
        with self._lock:
            values = {**self.model.parameters, **self.model.states}
            check_finite("graph of what was trained", values)
            return evaluation_graph(self._graph, values)

    def state_dict(self) -> dict[str, Array]:
        """Return copies of all that steps change, by name, in the user's order of axes.

        These are the parameters, the states of the graph, such as running statistics, what the
        optimizer keeps (``"optimizer.<parameter>.<role>"``), and the number of steps.
        """
        with self._lock:
            learned = {name: self.model.parameters[name] for name in self.parameters}
            return {**learned, **self.model.states, _STEP: np.array(self.steps)}

    def load_state_dict(self, arrays: Mapping[str, ArrayLike]) -> None:
        """Restore what :meth:`state_dict` returned; nothing is changed if something is missing.

        Raises:
            InputError: a value is no array.
            ModelError: names, shapes or element types are those of another training.
        """
        if not isinstance(cast("object", arrays), Mapping):
            found = type(arrays).__name__
            raise InputError.at("load_state_dict", expected="arrays by name", found=found)
        states = {name: as_array(f"state {name!r}", array) for name, array in arrays.items()}
        native = {
            name: array.astype(array.dtype.newbyteorder("="), copy=False)
            for name, array in states.items()
        }
        with self._lock:
            self._load(native)

    def _load(self, found: Mapping[str, Array]) -> None:
        own = self.state_dict()
        for name in dict.fromkeys((*own, *found)):
            ours, theirs = (_described(known.get(name)) for known in (own, found))
            if ours != theirs:
                raise ModelError.at(f"state {name!r}", expected=ours, found=theirs)
        if found[_STEP] < 0:
            expected, number = "a number from 0 on", str(found[_STEP])
            raise ModelError.at(f"state {_STEP!r}", expected=expected, found=number)
        for name in self.parameters:
            self.model.parameters[name] = found[name]
        for name in self.model.states:
            self.model.states[name] = found[name]
        self.steps = int(found[_STEP])

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a checkpoint, which replaces the file at once or not at all.

        A process or a machine that stops meanwhile leaves the file that was there before.

        Args:
            path: the file; its folder must exist.

        Raises:
            InputError: the file cannot be written.
            ExecutionError: a parameter or a state is not finite; the file is not replaced.
        """
        arrays = self.state_dict()
        check_finite(f"checkpoint {os.fspath(path)!r}", arrays)
        write_checkpoint(path, arrays)

    def load(self, path: str | os.PathLike[str]) -> None:
        """Continue from a checkpoint.

        Raises:
            InputError: the file cannot be read.
            ModelError: the file is damaged, or of another training.
        """
        self.load_state_dict(read_checkpoint(path))


def _with_own_values(graph: Graph) -> Graph:
    """Return a graph whose parameters and states can be dropped without those of the given one."""
    parameters, states = (
        MappingProxyType({name: item.shared() for name, item in known.items()})
        for known in (graph.parameters, graph.states)
    )
    return dataclasses.replace(graph, parameters=parameters, states=states)


def _row(number: float) -> Array:
    return np.array([number], np.float32)


def _described(array: Array | None) -> str:
    return "none" if array is None else f"{array.dtype.name}{list(array.shape)}"
