"""Kernels of casts between floating-point types: reorders that keep the format."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from stridewise.graph import Refusal
from stridewise.targets.kernels import (
    Alias,
    Arg,
    Call,
    Element,
    KernelContext,
    KernelOption,
    KernelSpec,
    input_of,
    output_of,
)
from stridewise.targets.onednn.family import Family, Offer, refused
from stridewise.targets.onednn.memory import elementwise_formats
from stridewise.targets.onednn.precision import BF16, F32, FLOATS

__all__ = ["FAMILY", "views_in_bfloat16"]


def _kernels(context: KernelContext) -> Iterable[KernelOption | Refusal]:
    node = context.node
    x, y = context.value(node.inputs[0]), context.value(node.outputs[0])
    if not {x.dtype, y.dtype} <= FLOATS:
        yield refused(node, f"there is no kernel from {x.dtype} to {y.dtype}")
        return
    for source, result, memory in elementwise_formats(context, x, y):
        for stored in dict.fromkeys((x.dtype, F32)):
            elements = (Element(None if stored == x.dtype else stored), Element())
            option = KernelOption("cast", (source,), (result,), elements=elements)
            if stored == y.dtype:
                yield replace(option, aliases=(Alias(0, 0, 0, "view"),))
                continue
            sides = (("src", stored), ("dst", y.dtype))
            memories = tuple((role, replace(memory, dtype=dtype.short)) for role, dtype in sides)
            args = (Arg("src", input_of(0)), Arg("dst", output_of()))
            yield replace(option, calls=(Call(KernelSpec("reorder", memories), args),))


def views_in_bfloat16(context: KernelContext) -> Iterable[KernelOption]:
    """Yield options of a cast between float32 and bfloat16 that keep the bytes.

    The float32 tensor is stored as bfloat16, too.
    """
    node = context.node
    x, y = context.value(node.inputs[0]), context.value(node.outputs[0])
    if {x.dtype, y.dtype} != {BF16, F32} or (x if x.dtype == F32 else y).exact:
        return
    elements = tuple(Element(None if value.dtype == BF16 else BF16) for value in (x, y))
    view = (Alias(0, 0, 0, "view"),)
    for source, result, _ in elementwise_formats(context, x, y):
        yield KernelOption("cast, bf16", (source,), (result,), aliases=view, elements=elements)


FAMILY = Family({"cast": Offer(_kernels)})
