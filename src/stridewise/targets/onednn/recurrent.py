"""The core's kernel of recurrent layers: the steps, with weights packed for vectors of units."""

from __future__ import annotations

from collections.abc import Iterable

from stridewise.graph import Refusal
from stridewise.ops.geometry import user_format
from stridewise.ops.recurrent import CELLS, direction_count
from stridewise.targets.kernels import (
    Arg,
    Call,
    KernelContext,
    KernelOption,
    KernelSpec,
    MemorySpec,
    input_of,
    output_of,
)
from stridewise.targets.onednn.family import Family, KernelKind, Offer, float32_only, refused
from stridewise.targets.onednn.memory import plain_memory

__all__ = ["FAMILY"]

_OPTIONAL = {2: "bias", 3: "state", 4: "cell"}
"""The optional operands, by the input that has them."""


@float32_only
def _kernels(context: KernelContext) -> Iterable[KernelOption | Refusal]:
    node = context.node
    gates, weights = (context.value(name) for name in node.inputs[:2])
    outputs = [context.value(name) for name in node.outputs]
    cell, count = node.str_attr("cell"), direction_count(node)
    if cell == "gru_reset_first":
        yield refused(node, "the reset gate applies before the product with the state")
        return
    if not context.is_constant(weights.name):
        yield refused(node, "the weights are computed in the run")
        return
    if not all(gates.shape):
        yield refused(node, "the result has no elements")
        return
    units, steps, rows = weights.shape[2], gates.shape[0], gates.shape[1]
    shape = (count * CELLS[cell], units, units)
    memories = [("src", plain_memory(gates.shape)), ("weights", MemorySpec(shape, "any"))]
    args = [Arg("src", input_of(0)), Arg("weights", input_of(1), reshape=shape)]
    formats = [user_format(gates), None, *(None for _ in node.inputs[2:])]
    for index, role in _OPTIONAL.items():
        if index < len(node.inputs) and node.inputs[index] and (index != 2 or cell == "gru"):
            value = context.value(node.inputs[index])
            memories.append((role, plain_memory(value.shape)))
            args.append(Arg(role, input_of(index)))
            if not context.is_constant(value.name):
                formats[index] = user_format(value)
    for index, (role, value) in enumerate(zip(("dst", "out_cell"), outputs, strict=False)):
        memories.append((role, plain_memory(value.shape)))
        args.append(Arg(role, output_of(index)))
    direction = node.str_attr("direction", "forward")
    spec = KernelSpec(
        "recurrent",
        tuple(memories),
        (("cell", cell), ("direction", direction)),
        flops=2.0 * steps * rows * count * CELLS[cell] * units * units,
    )
    results = tuple(user_format(value) for value in outputs)
    yield KernelOption("steps", tuple(formats), results, (Call(spec, tuple(args)),))


FAMILY = Family({"recurrent": Offer(_kernels)}, {"recurrent": KernelKind({"plain": 0.25})})
