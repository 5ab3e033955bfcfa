"""Kernels of casts between float32 and bfloat16: reorders that keep the format."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from stridewise.graph import Refusal
from stridewise.targets.kernels import (
    Arg,
    Call,
    KernelContext,
    KernelOption,
    KernelSpec,
    input_of,
    output_of,
)
from stridewise.targets.onednn.family import Family, Offer
from stridewise.targets.onednn.memory import elementwise_formats

__all__ = ["FAMILY"]


def _kernels(context: KernelContext) -> Iterable[KernelOption | Refusal]:
    node = context.node
    x, y = context.value(node.inputs[0]), context.value(node.outputs[0])
    if {x.dtype.name, y.dtype.name} != {"float32", "bfloat16"}:
        reason = f"there is no kernel from {x.dtype} to {y.dtype}"
        yield Refusal("onednn-cpu", node.name, reason)
        return
    for source, result, memory in elementwise_formats(context, x, y):
        sides = (("src", x.dtype), ("dst", y.dtype))
        memories = tuple((role, replace(memory, dtype=dtype.short)) for role, dtype in sides)
        args = (Arg("src", input_of(0)), Arg("dst", output_of()))
        call = Call(KernelSpec("reorder", memories), args)
        yield KernelOption("cast", (source,), (result,), (call,))


FAMILY = Family({"cast": Offer(_kernels)})
