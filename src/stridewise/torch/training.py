"""Native parts of graphs that need gradients."""

from __future__ import annotations

import dataclasses
from typing import Any

from stridewise.formats import Format
from stridewise.frontends.torch.graphs import Border, PartGraph, graph_of
from stridewise.frontends.torch.partition import Part
from stridewise.frontends.torch.values import Values
from stridewise.options import Options
from stridewise.planner import derive
from stridewise.torch.memory import Memory
from stridewise.torch.steps import NativeStep

__all__ = ["TrainingStep"]


class TrainingStep(NativeStep):
    """A part of a forward or of a backward.

    Its graph has images in PyTorch's logical order, and their order in memory is a format. Forward
    and backward of channels-last images therefore have no transposes between their operators.
    """

    def __init__(self, *args: Any) -> None:
        """Compile the part; see :class:`NativeStep`."""
        super().__init__(*args)
        self._memory = Memory()
        self._empty = self._memory.empty

    def release(self) -> None:
        """Give back memory that is kept for the next run."""
        self._memory.release()

    def _described(
        self, name: str, part: Part, constants: Values, values: Values, options: Options
    ) -> tuple[PartGraph, Options]:
        turned = frozenset(
            node
            for node in (*part.inputs, *part.outputs)
            if (order := Border.of(values[node]).order) != tuple(sorted(order))
        )
        found = graph_of(name, part, constants, values, turned)
        origins = derive(found.graph).graph.values
        sides = (
            (part.inputs, found.graph.inputs, found.inputs),
            (part.outputs, found.graph.outputs, found.outputs),
        )
        formats: list[dict[str, Format]] = []
        unknown: set[Any] = set()
        for nodes, names, borders in sides:
            formats.append({})
            for node, value, border in zip(nodes, names, borders, strict=True):
                origin = origins[value].origin
                if node in turned and origin is None:
                    unknown.add(node)
                elif node in turned and origin is not None:
                    order = tuple(origin.order[axis] for axis in border.order)
                    formats[-1][value] = Format(origin.axes, order)
        if unknown:
            found = graph_of(name, part, constants, values, turned - unknown)
        given, taken = formats
        # Simplification may drop the node that says what the axes of an input mean.
        named = {value: origins[value].origin for value in given}
        options = dataclasses.replace(
            options, input_formats=given, output_formats=taken, origins=named
        )
        return found, options
