"""Kernels of pooling for training: maxima with their positions, and gradients.

They are the library's primitives. A position is that in the window, a byte, so the gradient of a
max pooling reads neither its source nor its result.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from math import prod

from stridewise.dtypes import dtype_of
from stridewise.graph import Node, Refusal
from stridewise.ops.geometry import canonical_shape
from stridewise.ops.pool import geometry
from stridewise.targets.kernels import (
    Arg,
    Call,
    Element,
    KernelContext,
    KernelOption,
    KernelSpec,
    input_of,
    output_of,
)
from stridewise.targets.onednn.family import Family, KernelKind, Offer, float32_only
from stridewise.targets.onednn.gradients import image_formats, image_memory, needed
from stridewise.targets.onednn.memory import memory_of

__all__ = ["FAMILY"]

_PLACED = "max_pool_places_gradient"
"""The operator whose first input is positions of maxima."""

_PLACES = Element(dtype_of("uint8"))
"""How kernels store positions."""


@float32_only
def _gradients(context: KernelContext) -> Iterable[KernelOption | Refusal]:
    node = context.node
    dx, is_max = context.value(node.outputs[0]), node.op != "avg_pool_gradient"
    include = node.int_attr("count_include_pad", 0)
    algorithm = "max" if is_max else "avg_include" if include else "avg_exclude"
    first, element = ("places", _PLACES) if node.op == _PLACED else ("src", Element())
    for kind, (*sources, result) in image_formats(context, *node.inputs, dx.name):
        roles = (first, "diff_dst")[-len(sources) :]
        memories = [
            (role, image_memory(context, name, fmt))
            for role, name, fmt in zip(roles, node.inputs, sources, strict=True)
        ]
        if first == "places":
            memories[0] = (first, replace(memories[0][1], dtype="u8"))
        spec = KernelSpec(
            "pooling_gradient",
            (*memories, ("dst", image_memory(context, dx.name, result))),
            (("algorithm", algorithm), *_window(node, len(dx.shape) - 2)),
            flops=_flops(node, context.value(node.inputs[-1]).shape),
        )
        args = (Arg(role, input_of(index)) for index, role in enumerate(roles))
        needs = tuple(needed(context, *item) for item in zip(node.inputs, sources, strict=True))
        if first == "places" and needs[0] is None:
            continue
        yield KernelOption(
            f"pooling gradient, {kind}",
            needs,
            (result,),
            (Call(spec, (*args, Arg("dst", output_of()))),),
            elements=(element, Element(), Element())[-len(needs) - 1 :],
        )


def _flops(node: Node, result: tuple[int, ...]) -> float:
    """Return the operations of a pooling whose result, or its gradient, has this shape."""
    return float(prod(result) * prod(node.ints_attr("kernel")))


def _window(node: Node, spatial: int) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """Return the parameters of a pooling primitive."""
    kernel, strides, dilations, begins, ends = geometry(node, spatial)
    # A dilation of one element has no effect, but the library checks it.
    dilations = tuple(d if k > 1 else 1 for d, k in zip(dilations, kernel, strict=True))
    return (
        ("begins", begins),
        ("dilations", dilations),
        ("ends", ends),
        ("kernel", kernel),
        ("strides", strides),
    )


@float32_only
def _places(context: KernelContext) -> Iterable[KernelOption | Refusal]:
    node = context.node
    x, y, places = (context.value(name) for name in (node.inputs[0], *node.outputs))
    for kind, fmt in context.formats(x.name).items():
        result = context.formats(y.name).get(kind)
        if result is None or context.formats(places.name).get(kind) != result:
            continue
        dst = memory_of(result, canonical_shape(y, result))
        memories = (
            ("src", memory_of(fmt, canonical_shape(x, fmt))),
            ("dst", dst),
            ("out_places", replace(dst, dtype="u8")),
        )
        flops = _flops(node, y.shape)
        spec = KernelSpec("pooling_places", memories, _window(node, len(x.shape) - 2), flops=flops)
        args = (
            Arg("src", input_of(0)),
            Arg("dst", output_of(0)),
            Arg("out_places", output_of(1)),
        )
        yield KernelOption(
            f"pooling with positions, {kind}",
            (fmt,),
            (result, result),
            (Call(spec, args),),
            elements=(Element(), Element(), _PLACES),
        )


FAMILY = Family(
    {
        "avg_pool_gradient": Offer(_gradients),
        "max_pool_gradient": Offer(_gradients),
        "max_pool_places": Offer(_places),
        "max_pool_places_gradient": Offer(_gradients),
    },
    {
        "pooling_gradient": KernelKind({"plain": 0.10, "channels-last": 0.20, "blocked": 0.25}),
        "pooling_places": KernelKind({"plain": 0.25, "channels-last": 0.40, "blocked": 0.40}),
    },
)
