"""One graph that was captured from PyTorch: its programs, for each set of weights and shapes.

Parameters are constants of programs. Before each run their identity, version and address are
compared with those at the time of packing, and a change packs them anew.
"""

from __future__ import annotations

import warnings
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from threading import Lock
from typing import Any

from stridewise.api.dynamic import SharedPrograms
from stridewise.errors import (
    ExecutionError,
    FormatError,
    GraphError,
    PlanError,
    UnsupportedError,
    describe,
)
from stridewise.frontends.torch.aliases import Aliases, beyond_views
from stridewise.frontends.torch.library import submodule, torch
from stridewise.frontends.torch.partition import Outside, Part, Partition, partition
from stridewise.frontends.torch.values import (
    UnknownExtentError,
    Values,
    constants_of,
    depends_on_data,
    has_symbols,
    tensors_of,
    values_of,
)
from stridewise.torch.collection import without_collection
from stridewise.torch.kept import Kept
from stridewise.torch.options import FallbackWarning, Options
from stridewise.torch.program import Program, Promised, Result
from stridewise.torch.steps import NativeStep, Step, TorchStep
from stridewise.torch.weights import Mark, Weights, count_optimizer_steps

__all__ = ["REGIONS", "Region", "summary"]

_MOST_WEIGHTS = 8
"""Sets of weights that one graph has programs for: instances of one class share a graph."""

_NEW_SHAPES = "almost every call has another shape; more max_programs may keep programs for all"

_TANGENTS = "its tensors have tangents of forward-mode differentiation"

REGIONS: weakref.WeakSet[Region] = weakref.WeakSet()
"""All graphs that are alive."""


class _Packed:
    """Programs with one set of weights packed, least recently used first."""

    def __init__(self, weights: Weights) -> None:
        self.weights = weights
        self.programs: OrderedDict[tuple[Any, ...], Program | None] = OrderedDict()
        self.shared = SharedPrograms()


class Region:
    """A captured graph that can be called with the tensors of its placeholders.

    Attributes:
        name: for messages and reports.
        module: the ``GraphModule``.
        options: how it is compiled.
        left: reasons for which PyTorch computed all of it in a call.
    """

    def __init__(
        self,
        name: str,
        module: Any,
        static: Sequence[int],
        options: Options,
        native: Callable[..., NativeStep] | None = None,
        kept: Kept | None = None,
    ) -> None:
        """Take a functional aten graph; nothing is compiled before the first run.

        Args:
            name: of the graph.
            module: the ``GraphModule``.
            static: positions of the placeholders that are parameters and buffers.
            options: how to compile it.
            native: how native parts run, by default as :class:`NativeStep`.
            kept: how inputs are stored that a forward has kept.
        """
        self.name, self.module, self.options = name, module, options
        self._native, self._kept = native or NativeStep, kept or Kept()
        module.graph.eliminate_dead_code()
        self._inputs = [node for node in module.graph.nodes if node.op == "placeholder"]
        self._static = tuple(static)
        self._free = [index for index in range(len(self._inputs)) if index not in set(static)]
        self._has_symbols = has_symbols(module.graph)
        output = next(node for node in module.graph.nodes if node.op == "output")
        self._outputs: Sequence[Any] = output.args[0]
        self._aliases = Aliases.of(self._outputs)
        self._weights: list[_Packed] = []
        self._latest: tuple[_Packed, tuple[Any, ...], Program | None] | None = None
        self._lock = Lock()
        self._forward_mode = submodule("torch.autograd.forward_ad")
        self._has_warned = False
        self._dropped: deque[int] = deque(maxlen=options.max_programs)
        self._watched: list[Mark] = []
        self.left: set[str] = set()
        count_optimizer_steps()
        REGIONS.add(self)

    # --- running ------------------------------------------------------------------------------

    def __call__(self, args: Sequence[Any]) -> list[Any]:
        """Run the graph.

        Args:
            args: tensors and numbers, one for each placeholder.

        Raises:
            UnsupportedError: with ``fallback="error"``, an operator is not native.
        """
        is_dual = self._forward_mode._current_level >= 0 and self._has_tangents(args)
        program = self._left(_TANGENTS) if is_dual else self._program(args)
        return self._eager(args) if program is None else program.run(args)

    def _eager(self, args: Sequence[Any]) -> list[Any]:
        """Return the results that PyTorch computes, of kept inputs as it promises them."""
        known = self._kept.descs
        pairs = zip(self._inputs, args, strict=True)
        given = [
            self._kept.logical(node.name, x, node.meta["val"].stride()) if node.name in known else x
            for node, x in pairs
        ]
        return list(self.module(*given))

    def _has_tangents(self, args: Sequence[Any]) -> bool:
        """Return whether an argument is a dual number of forward-mode differentiation."""
        tensors = (x for x in args if isinstance(x, torch.Tensor))
        return any(self._forward_mode.unpack_dual(x).tangent is not None for x in tensors)

    def _program(self, args: Sequence[Any]) -> Program | None:
        """Return the program for these weights and shapes; None if PyTorch runs the whole graph."""
        key = self._key(args) if self._has_symbols else ()
        latest = self._latest
        if latest is not None and latest[1] == key and latest[0].weights.holds(args):
            return latest[2]
        with self._lock:
            packed = self._packed(args)
            if latest is not None and latest[2] is not None:
                latest[2].release()
            if key in packed.programs:
                packed.programs.move_to_end(key)
            else:
                packed.programs[key] = self._made(args, packed.shared)
                if len(packed.programs) > self.options.max_programs:
                    dropped = packed.programs.popitem(last=False)[1]
                    self._dropped.extend([] if dropped is None else [dropped.calls])
            self._latest = (packed, key, packed.programs[key])
            return packed.programs[key]

    def _key(self, args: Sequence[Any]) -> tuple[Any, ...]:
        return tuple(
            (item.shape, item.stride()) if isinstance(item, torch.Tensor) else item
            for item in (args[index] for index in self._free)
        )

    def _packed(self, args: Sequence[Any]) -> _Packed:
        """Return the programs of these weights, none of them made before a change."""
        for packed in reversed(self._weights):
            if packed.weights.holds(args):
                return packed
        kept = [p for p in self._weights if p.weights.is_alive and not p.weights.is_of(args)]
        self._weights = kept[-_MOST_WEIGHTS + 1 :]
        self._weights.append(_Packed(Weights(args, self._static)))
        return self._weights[-1]

    # --- compiling ----------------------------------------------------------------------------

    def _made(self, args: Sequence[Any], shared: SharedPrograms) -> Program | None:
        reason = self._whole_reason(args)
        if reason:
            return self._left(reason)
        if self.options.fallback == "eager" and self._is_in_vain():
            return self._left(_NEW_SHAPES)
        given = (args[index] for index in self._free)
        if any(isinstance(x, torch.Tensor) and not x.numel() for x in given):
            return None  # nothing to compute, which PyTorch does as well
        unset = submodule("torch._subclasses.fake_tensor").unset_fake_temporarily
        with without_collection(), unset(), torch.no_grad(), _on_cpu():
            try:
                values = values_of(self.module, args)
            except UnknownExtentError as error:
                return self._left(str(error))
            beyond = beyond_views(self.module.graph, values)
            if beyond:
                return self._left(f"strides that lead out of views: {', '.join(beyond)}")
            packed = self._packable(args)
            known = {self._inputs[index]: args[index] for index in packed}
            constants = constants_of(self.module, known, values)
            results = self._aliases.computed
            found = partition(self.module.graph, constants, values, results, checks=True)
            if not any(part.is_native for part in found.parts) and not found.outside:
                return None  # views and constants alone
            self._warn(found)
            steps: list[Step] = []
            for part in found.parts:
                step, failure = self._step(part, constants, values, shared)
                steps.append(step)
                found = found.without(part, failure) if failure else found
        of_inputs = self._aliases.of_inputs
        roots = set(of_inputs.values())
        own = {index for index in packed if self._inputs[index] not in roots}
        inputs = tuple((at, node) for at, node in enumerate(self._inputs) if at not in own)
        origins = self._results(constants, values)
        views = [n for n in self._aliases.views if n in of_inputs or n not in constants]
        promised = self._promised(steps, views, values)
        return Program(found, steps, inputs, origins, views, values, promised)

    def _promised(self, steps: Sequence[Step], views: Sequence[Any], values: Values) -> Promised:
        """Return how kept inputs become what PyTorch promises, where anything reads them so."""
        readers = {node for view in views for node in view.all_input_nodes}.union(self._outputs)
        for step in steps:
            readers.update(node for node in step.part.inputs if not step.adopts(node))
        return tuple(
            (node, partial(self._kept.logical, node.name, strides=values[node].stride()))
            for node in self._inputs
            if node.name in self._kept.descs and node in readers
        )

    def _is_in_vain(self) -> bool:
        """Return whether the programs that were dropped at last had run once or twice only."""
        return len(self._dropped) == self.options.max_programs and max(self._dropped) < 3

    def _results(self, constants: Values, values: Values) -> tuple[Result, ...]:
        """Return where each result comes from; see :class:`Program`."""
        found: list[Result] = []
        for item in self._outputs:
            if not isinstance(item, submodule("torch.fx").Node):
                found.append((None, None, item))  # a number, or None
            elif item.op == "placeholder" and item.name not in self._kept.descs:
                found.append((None, self._inputs.index(item), None))
            elif item.op == "placeholder" or item in self._aliases.of_inputs:
                found.append((item, None, None))
            elif item in constants or not tensors_of(values[item]):
                found.append((None, None, constants.get(item, values[item])))
            else:
                found.append((item, None, None))
        return tuple(found)

    def _step(
        self, part: Part, constants: Values, values: Values, shared: SharedPrograms
    ) -> tuple[Step, str]:
        """Return a part ready to run, and why it is not native though it was to be.

        Raises:
            UnsupportedError: with ``fallback="error"``, it cannot be compiled.
        """
        if not part.is_native:
            return TorchStep(part, constants, values), ""
        try:
            kind = self._native
            return kind(self.name, part, constants, values, self.options, shared), ""
        except (ExecutionError, FormatError, GraphError, PlanError, UnsupportedError) as error:
            where = f"{self._where}, part from {part.nodes[0].name} to {part.nodes[-1].name}"
            message = describe(where, expected="a program", found=str(error))
            self._tell(message, str(error))
            return TorchStep(part, constants, values), str(error)

    def _whole_reason(self, args: Sequence[Any]) -> str:
        """Return why PyTorch has to run the whole graph, "" if it does not."""
        if self._static and not self._packable(args):
            return "its parameters are inference tensors, whose changes leave no trace"
        nodes = self.module.graph.nodes if self._has_symbols else ()
        unknown = [str(node.target) for node in nodes if depends_on_data(node)]
        if unknown:
            return f"shapes depend on data: {', '.join(dict.fromkeys(unknown))}"
        tensors = [x for x in args if isinstance(x, torch.Tensor)]
        layouts = {str(x.layout) for x in tensors if x.layout != torch.strided}
        if layouts:
            return f"its tensors have the layout {', '.join(sorted(layouts))}"
        kinds: set[Any] = set(map(type, tensors))
        other = kinds - {torch.Tensor, torch.nn.Parameter, torch.nn.Buffer}
        names = sorted(kind.__name__ for kind in other)
        return f"its tensors are {', '.join(names)}" if names else ""

    def _packable(self, args: Sequence[Any]) -> tuple[int, ...]:
        """Return the positions of parameters whose changes are noticed; others are inputs."""
        return tuple(index for index in self._static if not args[index].is_inference())

    def _left(self, reason: str) -> None:
        """Leave the whole graph to PyTorch, with a warning.

        Raises:
            UnsupportedError: with ``fallback="error"``.
        """
        self.left.add(reason)
        message = describe(self._where, expected="a graph for Stridewise", found=reason)
        self._tell(message, reason)

    def _warn(self, found: Partition) -> None:
        """Name the operators that PyTorch computes, once a graph.

        Raises:
            UnsupportedError: with ``fallback="error"``, if there are any.
        """
        if found.outside:
            share = len(found.outside) / (len(found.outside) + found.native)
            message = describe(
                self._where,
                expected="native operators",
                found=f"{len(found.outside)} ({share:.0%}) that PyTorch computes: "
                + summary(found.outside),
            )
            self._tell(message, summary(found.outside))

    def _tell(self, message: str, reason: str) -> None:
        if self.options.fallback == "error":
            raise UnsupportedError(message, reason)
        if not self._has_warned:
            self._has_warned = True
            warnings.warn(message, FallbackWarning, stacklevel=2)

    @property
    def _where(self) -> str:
        return f"torch.compile(backend='stridewise'), {self.name}"

    # --- what reports ask for -----------------------------------------------------------------

    def programs(self) -> list[Program]:
        """Return the programs that are ready."""
        with self._lock:
            return [p for w in self._weights for p in w.programs.values() if p is not None]

    def watch(self, tensors: Sequence[Mark]) -> None:
        """Note tensors that belong to a graph; reports find it by them."""
        self._watched = list(tensors)

    def reads(self, tensors: Mapping[int, Any]) -> bool:
        """Return whether the graph has read one of these parameters, which are given by ``id``."""
        with self._lock:
            packed = [mark for item in self._weights for mark in item.weights.marks]
            known = (*packed, *self._watched)
            found = ((mark, tensors.get(mark.identity)) for mark in known)
            return any(tensor is not None and mark.is_exactly(tensor) for mark, tensor in found)


def _on_cpu() -> Any:
    """Return the context in which new tensors are on the CPU.

    PyTorch's own asks Python for every access to an attribute of a tensor.
    """
    return nullcontext() if torch.get_default_device().type == "cpu" else torch.device("cpu")


def summary(outside: Sequence[Outside]) -> str:
    """Return operators with their numbers and reasons, the most frequent first."""
    counted: dict[tuple[str, str], int] = {}
    for item in outside:
        key = item.operator.removeprefix("aten."), item.reason
        counted[key] = counted.get(key, 0) + 1
    rows = sorted(counted.items(), key=lambda row: -row[1])
    return ", ".join(f"{count} x {name} ({reason})" for (name, reason), count in rows)
