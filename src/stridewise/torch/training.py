"""Native parts of graphs that need gradients."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from stridewise.formats import Format, is_dense
from stridewise.frontends.torch.graphs import Border, PartGraph, graph_of
from stridewise.frontends.torch.keeping import is_kept
from stridewise.frontends.torch.library import submodule
from stridewise.frontends.torch.partition import Part
from stridewise.frontends.torch.values import Values
from stridewise.graph import Value
from stridewise.ops.geometry import canonical_shape, user_format
from stridewise.options import Options
from stridewise.planner import derive
from stridewise.runtime.machine.machine import this_machine
from stridewise.targets.onednn.target import onednn_cpu
from stridewise.tensor.desc import TensorDesc
from stridewise.torch.kept import Kept, border_of
from stridewise.torch.memory import Memory
from stridewise.torch.steps import NativeStep

__all__ = ["TrainingStep"]


class TrainingStep(NativeStep):
    """A part of a forward or of a backward.

    Its graph has images in PyTorch's logical order, and their order in memory is a format. Forward
    and backward of channels-last images therefore have no transposes between their operators. What
    the forward keeps has the format that its plan chose.
    """

    def __init__(self, kept: Kept, *args: Any) -> None:
        """Compile the part; see :class:`NativeStep`.

        Args:
            kept: what the forward has kept; a part of the forward adds to it.
            args: those of a native part.
        """
        self._kept = kept
        self._free: dict[Any, Value] = {}
        self._adopted: set[Any] = set()
        super().__init__(*args)
        self._memory = Memory()
        self._empty = self._memory.empty

    def release(self) -> None:
        """Give back memory that is kept for the next run."""
        self._memory.release()

    def adopts(self, node: Any) -> bool:
        """Return whether the part reads a kept tensor as the forward has stored it."""
        return node in self._adopted

    def _described(
        self, name: str, part: Part, constants: Values, values: Values, options: Options
    ) -> tuple[PartGraph, Options]:
        if options.dtype == "auto":  # its plans take no formats of inputs and outputs
            return super()._described(name, part, constants, values, options)
        kept = {node for node in part.inputs if node.name in self._kept.descs}
        free = {node for node in part.outputs if _is_free(node, part, values)}
        turned = frozenset(
            node
            for node in (*part.inputs, *part.outputs)
            if (order := Border.of(values[node]).order) != tuple(sorted(order))
        )
        logical = turned | kept | free
        found = graph_of(name, part, constants, values, logical)
        known = derive(found.graph).graph.values
        sides = (
            (part.inputs, found.graph.inputs, found.inputs),
            (part.outputs, found.graph.outputs, found.outputs),
        )
        formats: list[dict[str, Sequence[Format]]] = []
        unknown: set[Any] = set()
        for nodes, names, borders in sides:
            formats.append({})
            for node, value, border in zip(nodes, map(known.get, names), borders, strict=True):
                if value is None or value.origin is None:
                    unknown.add(node)
                    continue
                order = tuple(value.origin.order[axis] for axis in border.order)
                promised = Format(value.origin.axes, order)
                if node in kept and self._kept.descs[node.name].origin.format == value.origin:
                    formats[-1][value.name] = (self._kept.descs[node.name].storage.format,)
                    self._adopted.add(node)
                elif node in free:
                    formats[-1][value.name] = self._choices(value, promised)
                    self._free[node] = value
                elif node in turned:
                    formats[-1][value.name] = (promised,)
        if unknown & logical:
            found = graph_of(name, part, constants, values, logical - unknown)
        given, taken = formats
        # Simplification may drop the node that says what the axes of an input mean.
        named = {value: known[value].origin for value in given}
        options = dataclasses.replace(
            options, input_formats=given, output_formats=taken, origins=named
        )
        return found, options

    def _choices(self, value: Value, promised: Format) -> tuple[Format, ...]:
        """Return the formats in which a kept result may be stored, the promised one first."""
        kinds = onednn_cpu(this_machine(1)).formats(value).values()
        found = dict.fromkeys((promised, *kinds))
        return tuple(fmt for fmt in found if is_dense(fmt, canonical_shape(value, fmt)))

    def _bordered(self, found: PartGraph) -> PartGraph:
        inputs = [
            border_of(self._kept.descs[node.name]) if node in self._adopted else border
            for node, border in zip(self.part.inputs, found.inputs, strict=True)
        ]
        outputs = list(found.outputs)
        for at, node in enumerate(self.part.outputs):
            if node in self._free:
                value = self._free[node]
                fmt = self.model.plan.output_formats[value.name]
                desc = TensorDesc(value.shape, value.dtype, user_format(value), fmt)
                self._kept.descs[node.name] = desc
                outputs[at] = border_of(desc)
        return dataclasses.replace(found, inputs=tuple(inputs), outputs=tuple(outputs))

    def _entered(self, node: Any, tensor: Any) -> Any:
        return self._kept.stored(node.name, tensor) if node in self._adopted else tensor

    def _run(self, tensors: dict[Any, Any]) -> None:
        super()._run(tensors)
        if self._free and submodule("torch._dynamo.compiled_autograd").compiled_autograd_enabled:
            # PyTorch traces the operators of the backward instead of calling its program.
            for node in self._free:
                strides = node.meta["val"].stride()
                tensors[node] = self._kept.logical(node.name, tensors[node], strides)


def _is_free(node: Any, part: Part, values: Values) -> bool:
    """Return whether the backward alone reads a result of a part beside the part itself."""
    is_alone = all(user.op == "output" or user in part.nodes for user in node.users)
    return is_kept(node) and is_alone and values[node].dtype.is_floating_point
